//! Experts: what a row chooses against its definition, and products by experts against products with their matrices alone.

use super::{
    super::{
        formats::BLOCK,
        harness::{How, Matrix, Random, bind, blocks, numbers, plain, run, storage},
        params::{ChooseParams, ExpertsSortParams, ExpertsSumParams, ProductParams},
        pipelines::{Bindings, Kernel, Mode, Pipelines},
        tuning::Tuning,
        variants::{Arith, Variants},
    },
    TUNINGS, U, bits, gpu, gpu_with,
};
use crate::{plan::Gating, quant::GgmlType};

struct Choice {
    experts: usize,
    used: usize,
    gating: Gating,
    /// So many groups, of which so many are chosen from.
    groups: Option<(usize, usize)>,
    biased: bool,
    renormalises: bool,
    scale: f32,
    factors: bool,
}

impl Choice {
    /// Experts in order, and their weights.
    fn of(&self, scores: &[f32], bias: &[f32], factors: &[f32]) -> Vec<(usize, f64)> {
        let softmax = |x: &[f64]| -> Vec<f64> {
            let max = x.iter().copied().fold(f64::MIN, f64::max);
            let e: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.into_iter().map(|e| e / sum).collect()
        };
        let scores: Vec<f64> = scores.iter().map(|&x| f64::from(x)).collect();
        let weights = match self.gating {
            Gating::Softmax => softmax(&scores),
            Gating::Sigmoid => scores.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Gating::SoftmaxOfChosen => scores,
        };
        let bias = |i: usize| if self.biased { f64::from(bias[i]) } else { 0.0 };
        let mut keys: Vec<f64> = weights.iter().enumerate().map(|(i, w)| w + bias(i)).collect();
        if let Some((count, used)) = self.groups {
            let size = self.experts / count;
            let mut sums: Vec<(usize, f64)> = keys
                .chunks(size)
                .map(|group| {
                    let mut group = group.to_vec();
                    group.sort_by(|a, b| b.total_cmp(a));
                    group[0] + group[1]
                })
                .enumerate()
                .collect();
            sums.sort_by(|a, b| b.1.total_cmp(&a.1));
            sums[used..].iter().for_each(|&(group, _)| keys[group * size..][..size].fill(f64::MIN));
        }
        let mut order: Vec<usize> = (0..self.experts).collect();
        order.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]));
        order.truncate(self.used);
        let mut chosen: Vec<f64> = order.iter().map(|&i| weights[i]).collect();
        if self.gating == Gating::SoftmaxOfChosen {
            chosen = softmax(&chosen);
        }
        let sum: f64 = if self.renormalises { chosen.iter().sum() } else { 1.0 };
        let factor = |i: usize| if self.factors { f64::from(factors[i]) } else { 1.0 };
        let weight = |(i, w): (usize, f64)| (i, w / sum * f64::from(self.scale) * factor(i));
        order.into_iter().zip(chosen).map(weight).collect()
    }
}

#[test]
fn rows_choose_their_best_experts() {
    let test = "rows_choose_their_best_experts";
    let Some(mut gpu) = gpu(test) else { return };
    let plain = Choice {
        experts: 8,
        used: 2,
        gating: Gating::Softmax,
        groups: None,
        biased: false,
        renormalises: false,
        scale: 1.0,
        factors: false,
    };
    let choices = [
        Choice { renormalises: true, ..plain },
        Choice { experts: 128, used: 8, scale: 2.5, factors: true, ..plain },
        Choice { experts: 60, used: 4, gating: Gating::SoftmaxOfChosen, ..plain },
        Choice { experts: 64, used: 6, gating: Gating::Sigmoid, groups: Some((8, 3)), biased: true, ..plain },
        Choice { experts: 1000, used: 10, gating: Gating::Sigmoid, renormalises: true, ..plain },
        Choice { experts: 4, used: 4, biased: true, ..plain },
    ];
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        for choice in &choices {
            let Choice { experts, used, .. } = *choice;
            let (rows, first, stride) = (3, 2, experts + 5);
            let mut random = Random::new((experts + used) as u64);
            let scores: Vec<f32> = random.floats(rows * stride).iter().map(|x| 4.0 * x).collect();
            let (bias, factors) = (random.floats(experts), random.floats(experts));
            let params = ChooseParams {
                experts: experts as u32,
                used: used as u32,
                scores_stride: stride as u32,
                scores_first: first as u32,
                chosen_stride: 64,
                gating: match choice.gating {
                    Gating::Softmax => 0,
                    Gating::Sigmoid => 1,
                    Gating::SoftmaxOfChosen => 2,
                },
                has_bias: u32::from(choice.biased),
                has_factors: u32::from(choice.factors),
                groups: choice.groups.map_or(1, |(count, _)| count as u32),
                groups_used: choice.groups.map_or(1, |(_, used)| used as u32),
                renormalises: u32::from(choice.renormalises),
                scale: choice.scale,
                weights_at: used as u32,
            };
            let made = [&scores, &bias, &factors].map(|x| numbers(&gpu, x).unwrap());
            let chosen = numbers(&gpu, &vec![0.0; rows * 64]).unwrap();
            let buffers = [&made[0], &made[1], &made[2], &chosen].map(|scratch| &scratch.buffer);
            let bound = bind(&gpu, &pipelines, Kernel::Choose, &params, &buffers).unwrap();
            let steps = [(Kernel::Choose, bound, [1, rows as u32, 1])];
            let got = run(&gpu, &mut pipelines, &steps, &chosen.buffer, rows * 64).unwrap();
            for (row, got) in got.chunks_exact(64).enumerate() {
                let want = choice.of(&scores[row * stride + first..][..experts], &bias, &factors);
                for (i, (expert, weight)) in want.into_iter().enumerate() {
                    let (number, got) = (got[i], f64::from(got[used + i]));
                    assert_eq!(number as usize, expert, "{experts} experts, row {row}, place {i}");
                    // Exponentials of up to 3 + 2·8 units, and sums of all experts.
                    let limit = (experts as f64 + 64.0) * 2.0 * U * weight.abs() + 1e-12;
                    assert!((got - weight).abs() <= limit, "{experts} experts, {i}: {got}, {weight}");
                }
            }
        }
    }
}

/// A router that gives no numbers still chooses as many experts as there are to be, each once.
#[test]
fn a_row_without_numbers_has_a_choice() {
    let Some(gpu) = gpu("a_row_without_numbers_has_a_choice") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let params = ChooseParams {
        experts: 6,
        used: 3,
        scores_stride: 6,
        chosen_stride: 6,
        gating: 1,
        groups: 1,
        groups_used: 1,
        scale: 1.0,
        weights_at: 3,
        ..ChooseParams::default()
    };
    let scores = numbers(&gpu, &[f32::NAN, 1.0, f32::NAN, 2.0, f32::NAN, f32::NAN]).unwrap();
    let chosen = numbers(&gpu, &[0.0; 6]).unwrap();
    let buffers = [&scores, &scores, &scores, &chosen].map(|scratch| &scratch.buffer);
    let bound = bind(&gpu, &pipelines, Kernel::Choose, &params, &buffers).unwrap();
    let got = run(&gpu, &mut pipelines, &[(Kernel::Choose, bound, [1, 1, 1])], &chosen.buffer, 3).unwrap();
    assert_eq!(got, [3.0, 1.0, 0.0]);
}

#[test]
fn products_by_experts_are_those_of_their_matrices_alone() {
    const TEST: &str = "products_by_experts_are_those_of_their_matrices_alone";
    let Some(mut gpu) = gpu(TEST) else { return };
    for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE] {
        gpu.tuning = tuning.within(&gpu.limits);
        check_products(&gpu, Arith::Summed);
    }
    if let Some(gpu) = gpu_with(TEST, Variants::DOT4) {
        check_products(&gpu, Arith::Int8);
    }
}

fn check_products(gpu: &super::Gpu, arith: Arith) {
    let mut pipelines = Pipelines::new(gpu);
    let (experts, used, each, rows) = (5usize, 2usize, 70usize, 33usize);
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q6_K, GgmlType::MXFP4, GgmlType::F16, GgmlType::F32]
    {
        let k = if ty.block_len() == 1 { 100 } else { 256 };
        let mut random = Random::new(ty as u64 + 77);
        let bytes = blocks(&mut random, ty, experts * each * k / ty.block_len());
        let whole = Matrix::new(gpu, ty, &bytes, experts * each, k).unwrap();
        let arith = arith.of(whole.format);
        let bias = random.floats(experts * each);
        let x: Vec<f32> = random.floats(rows * k).iter().map(|x| x / 8.0).collect();
        let choices: Vec<usize> =
            (0..rows * used).map(|_| (random.next() % experts as u64) as usize).collect();
        for mode in [Mode::Store, Mode::Gate(super::super::pipelines::Curve::Silu)] {
            let outputs = whole.outputs(mode) / experts;
            // Every expert by itself, of all rows.
            let alone: Vec<Vec<f32>> = (0..experts)
                .map(|expert| {
                    let part = bytes.len() / experts;
                    let matrix = Matrix::new(gpu, ty, &bytes[expert * part..][..part], each, k).unwrap();
                    let bias = Some(&bias[expert * each..][..each]);
                    let how = How { mode, bias, arith, ..plain(rows, true) };
                    matrix.product(gpu, &mut pipelines, &x, &how).unwrap()
                })
                .collect();
            let most_tiles = experts + rows * used / 32;
            let chosen: Vec<f32> = choices
                .chunks(used)
                .flat_map(|row| row.iter().map(|&e| e as f32).chain([0.5, 0.5]).collect::<Vec<_>>())
                .collect();
            let params = ProductParams {
                rows: each as u32,
                blocks: whole.blocks as u32,
                x_stride: whole.blocks as u32,
                y_stride: outputs as u32,
                has_bias: 1,
                used: used as u32,
                pairs_in_row: used as u32,
                chosen_stride: 2 * used as u32,
                experts: experts as u32,
                pairs_at: 1 + 3 * most_tiles as u32,
                ..ProductParams::default()
            };
            let sort = ExpertsSortParams {
                experts: experts as u32,
                used: used as u32,
                chosen_stride: 2 * used as u32,
                count_at: 0,
                pairs_at: params.pairs_at,
            };
            let how = How { arith, ..plain(rows, false) };
            let floats = whole.input(gpu, &x, rows).unwrap();
            let prepared = whole.scratch_for(gpu, arith, rows).unwrap();
            let count = storage(gpu, bytemuck::cast_slice(&[rows as u32])).unwrap();
            let [bias_room, chosen] = [&bias, &chosen].map(|x| numbers(gpu, x).unwrap());
            let sorted = storage(gpu, &vec![0; 4 * (1 + 3 * most_tiles + rows * used)]).unwrap();
            let lanes = gpu.tuning.lanes(whole.blocks);
            for tiles in [false, true] {
                let y = numbers(gpu, &vec![7.0; rows * used * outputs]).unwrap();
                let x = if arith == Arith::Float { &floats } else { &prepared };
                let by = if tiles { &sorted } else { &chosen };
                let [high, low, scales] = &whole.streams;
                let buffers = [high, low, scales, &bias_room, x, &y, by].map(|scratch| &scratch.buffer);
                let bound = bind(gpu, &pipelines, Bindings::EXPERT_MATMUL, &params, &buffers).unwrap();
                let mut steps = Vec::new();
                if arith != Arith::Float {
                    steps.push(whole.prepare(gpu, &pipelines, &floats, &prepared, &how).unwrap());
                }
                let (format, coarse) = (whole.format, false);
                if tiles {
                    let buffers = [&count, &chosen, &sorted].map(|scratch| &scratch.buffer);
                    let sort = bind(gpu, &pipelines, Kernel::ExpertsSort, &sort, &buffers).unwrap();
                    steps.push((Kernel::ExpertsSort, sort, [1, 1, 1]));
                    let kernel = Kernel::ExpertTile { format, mode, lanes, coarse, arith };
                    steps.push((kernel, bound, [each.div_ceil(64) as u32, most_tiles as u32, 1]));
                } else {
                    let kernel = Kernel::ExpertRows { format, mode, lanes, coarse, arith };
                    let groups = (each as u32).div_ceil(kernel.rows_at_once(&gpu.tuning));
                    steps.push((kernel, bound, [groups, (rows * used) as u32, 1]));
                }
                let got = run(gpu, &mut pipelines, &steps, &y.buffer, rows * used * outputs).unwrap();
                for (pair, got) in got.chunks_exact(outputs).enumerate() {
                    let want = &alone[choices[pair]][pair / used * outputs..][..outputs];
                    assert!(bits(got) == bits(want), "{ty}, {mode:?}, tiles {tiles}: pair {pair}");
                }
            }
        }
    }
    assert_eq!(BLOCK, 32);
}

#[test]
fn results_are_summed_by_their_weights() {
    let Some(gpu) = gpu("results_are_summed_by_their_weights") else { return };
    let mut pipelines = Pipelines::new(&gpu);
    let (rows, used, width, stride, dst_stride) = (2usize, 3usize, 70usize, 96usize, 80usize);
    let mut random = Random::new(41);
    let results = random.floats(rows * used * stride);
    let chosen = random.floats(rows * 2 * used);
    let before = random.floats(rows * dst_stride);
    for adds in [false, true] {
        let params = ExpertsSumParams {
            width: width as u32,
            used: used as u32,
            result_stride: stride as u32,
            chosen_stride: 2 * used as u32,
            dst_stride: dst_stride as u32,
            dst_first: 4,
            adds: u32::from(adds),
            weights_at: used as u32,
        };
        let made = [&results, &chosen, &before].map(|x| numbers(&gpu, x).unwrap());
        let buffers = made.each_ref().map(|scratch| &scratch.buffer);
        let bound = bind(&gpu, &pipelines, Kernel::ExpertsSum, &params, &buffers).unwrap();
        let steps = [(Kernel::ExpertsSum, bound, [2, rows as u32, 1])];
        let got = run(&gpu, &mut pipelines, &steps, buffers[2], before.len()).unwrap();
        for row in 0..rows {
            for i in 0..width {
                let at = row * dst_stride + 4 + i;
                let of = |place: usize| {
                    let result = results[(row * used + place) * stride + i];
                    f64::from(result) * f64::from(chosen[row * 2 * used + used + place])
                };
                let want = (0..used).map(of).sum::<f64>() + if adds { f64::from(before[at]) } else { 0.0 };
                assert!((f64::from(got[at]) - want).abs() <= 16.0 * U, "row {row}, {i}: {}, {want}", got[at]);
            }
        }
    }
}
