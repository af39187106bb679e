//! Norms whose scale meets the sums of the products behind them: the same bits whether the product before the norm makes
//! their rows or the norm does it, and for few rows and many.

use super::{
    super::{
        device::Gpu,
        formats::BLOCK,
        harness::{Dispatch, How, Matrix, Random, Scratch, bind, blocks, numbers, plain, run},
        params::{NormUnscaledParams, ProductParams},
        pipelines::{Bindings, Kernel, Mode, Pipelines},
        tuning::FEW_ROWS,
        tuning::TILE_ROWS,
        variants::Arith,
    },
    U, is_more, same_bits,
};
use crate::{
    Result,
    quant::{GgmlType, dequantize},
};

/// Weights in a row of the product before the norm, and rows of the one behind it.
const K: usize = 256;
const OUTPUTS: usize = 72;
const EPS: f32 = 1e-5;

/// Of so many rows of so many numbers, with weights of this type.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub ty: GgmlType,
    pub dim: usize,
    pub columns: usize,
    pub arith: Arith,
}

/// Who makes the norm's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Product,
    /// For the product of a few rows, with or without parts as the tuning says.
    Norm,
    /// The norm, as if there were many rows; then a tile of so many lanes, 0 for all, or a wide one.
    Many {
        share: u32,
        wide: bool,
    },
}

/// What the first product is added to, and what comes out in the end.
pub struct Made {
    rows: Vec<f32>,
    outputs: Vec<f32>,
}

impl Made {
    pub fn has_bits_of(&self, other: &Made) -> bool {
        same_bits(&self.rows, &other.rows) && same_bits(&self.outputs, &other.outputs)
    }
}

/// What a case is made of.
struct Given<'a> {
    before: Matrix<'a>,
    behind: Matrix<'a>,
    behind_bytes: Vec<u8>,
    x: Vec<f32>,
    residual: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn given<'a>(&self, gpu: &'a Gpu) -> Result<Given<'a>> {
        let &Case { ty, dim, columns, .. } = self;
        let mut random = Random::new(dim as u64 + ty as u64);
        let before_bytes = blocks(&mut random, ty, dim * K / ty.block_len());
        let behind_bytes = blocks(&mut random, ty, OUTPUTS * dim / ty.block_len());
        let residual = random.floats(columns.next_multiple_of(TILE_ROWS) * dim);
        Ok(Given {
            before: Matrix::new(gpu, ty, &before_bytes, dim, K)?,
            behind: Matrix::new(gpu, ty, &behind_bytes, OUTPUTS, dim)?,
            behind_bytes,
            x: random.floats(columns * K),
            residual: residual.iter().map(|x| 3.0 * x).collect(),
            weight: random.floats(dim),
            bias: random.floats(OUTPUTS),
        })
    }

    pub fn made(&self, gpu: &Gpu, pipelines: &mut Pipelines, way: Way) -> Result<Made> {
        let &Case { dim, columns, arith, .. } = self;
        let given = self.given(gpu)?;
        let (input, none) = (given.before.input(gpu, &given.x, columns)?, numbers(gpu, &[0.0])?);
        let ready = given.before.scratch_for(gpu, arith, columns)?;
        let rows = numbers(gpu, &given.residual)?;
        let weight = numbers(gpu, &given.weight)?;
        let h = given.behind.scratch_for(gpu, arith, columns)?;
        let mut todo = vec![given.before.prepare(
            gpu,
            pipelines,
            &input,
            &ready,
            &How { arith, ..plain(columns, false) },
        )?];
        if way == Way::Product {
            todo.push(self.added_and_normed(
                gpu,
                pipelines,
                &given.before,
                [&none, &ready, &rows, &weight, &h],
            )?);
        } else {
            let how = How { arith, mode: Mode::Add, ..plain(columns, false) };
            todo.extend(given.before.multiply(gpu, pipelines, &ready, &rows, &none, &how)?);
            let whole = matches!(way, Way::Many { .. }) || columns as u32 > gpu.tuning.norms_in_products;
            let lanes = gpu.tuning.lanes(dim / BLOCK);
            let per_number = 1.0 / dim as f32;
            let params = NormUnscaledParams { stride: dim as u32 / 4, eps: EPS, per_number, zero: 0 };
            let buffers = [&weight, &rows, &h].map(|scratch| &scratch.buffer);
            let kernel = Kernel::NormUnscaled { arith, lanes, whole };
            let bound = bind(gpu, pipelines, kernel, &params, &buffers)?;
            todo.push((kernel, bound, [1, columns as u32, 1]));
        }
        let outputs = numbers(gpu, &vec![0.0; columns.next_multiple_of(2 * TILE_ROWS) * OUTPUTS])?;
        let bias = numbers(gpu, &given.bias)?;
        let how = How { arith, bias: Some(&given.bias), scales: true, ..plain(columns, false) };
        let how = match way {
            Way::Many { share, wide } => How { tile: true, share, wide, ..how },
            Way::Product | Way::Norm => how,
        };
        todo.extend(given.behind.multiply(gpu, pipelines, &h, &outputs, &bias, &how)?);
        let outputs = run(gpu, pipelines, &todo, &outputs.buffer, columns * OUTPUTS)?;
        Ok(Made { rows: run(gpu, pipelines, &[], &rows.buffer, columns * dim)?, outputs })
    }

    fn added_and_normed(
        &self,
        gpu: &Gpu,
        pipelines: &Pipelines,
        before: &Matrix,
        [bias, x, rows, weight, h]: [&Scratch; 5],
    ) -> Result<Dispatch> {
        let &Case { dim, columns, arith, .. } = self;
        let params = ProductParams {
            rows: dim as u32,
            blocks: before.blocks as u32,
            x_stride: before.blocks as u32,
            y_stride: dim as u32,
            eps: EPS,
            per_number: 1.0 / dim as f32,
            ..ProductParams::default()
        };
        let [high, low, scales] = before.streams.each_ref();
        let buffers = [high, low, scales, bias, x, rows, weight, h].map(|scratch| &scratch.buffer);
        let bound = bind(gpu, pipelines, Bindings::ADD_ROWS, &params, &buffers)?;
        let (format, lanes, columns) = (before.format, gpu.tuning.lanes(before.blocks), columns as u32);
        let kernel = Kernel::AddRows { format, lanes, columns, coarse: false, arith };
        Ok((kernel, bound, [(dim / BLOCK) as u32, 1, 1]))
    }

    /// The first output that is more off than the roundings of products in floats explain, and what it should be.
    pub fn wrong_output(&self, gpu: &Gpu, made: &Made) -> Result<Option<(f32, f64)>> {
        let dim = self.dim;
        let given = self.given(gpu)?;
        let mut weights = vec![0.0; OUTPUTS * dim];
        dequantize(self.ty, &given.behind_bytes, &mut weights);
        for (row, outputs) in made.rows.chunks_exact(dim).zip(made.outputs.chunks_exact(OUTPUTS)) {
            let square: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
            let scale = 1.0 / (square / dim as f64 + f64::from(EPS)).sqrt();
            for ((&got, weights), &bias) in outputs.iter().zip(weights.chunks_exact(dim)).zip(&given.bias) {
                let terms = row.iter().zip(&given.weight).zip(weights);
                let terms = terms.map(|((&x, &g), &w)| f64::from(x) * f64::from(g) * f64::from(w) * scale);
                let (want, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                // Every addition rounds once, offsets make terms up to twice as large, and the scale has a root and a sum
                // of its own.
                let limit = (2.0 * dim as f64 + 16.0) * U * (size + f64::from(bias).abs());
                let want = want + f64::from(bias);
                if is_more((f64::from(got) - want).abs(), limit) {
                    return Ok(Some((got, want)));
                }
            }
        }
        Ok(None)
    }
}

/// The first thing that is wrong.
pub fn fault(gpu: &Gpu, pipelines: &mut Pipelines, arith: Arith, all: bool) -> Result<Option<String>> {
    for &columns in if all { &[1, 3, FEW_ROWS][..] } else { &[1] } {
        let case = Case { ty: GgmlType::Q8_0, dim: 512, columns, arith };
        let made = case.made(gpu, pipelines, Way::Norm)?;
        let many = (Way::Many { share: 0, wide: false }, "of many rows");
        let in_product = columns as u32 <= gpu.tuning.norms_in_products;
        let product = in_product.then_some((Way::Product, "in a product"));
        for (way, what) in product.into_iter().chain([many]) {
            if !made.has_bits_of(&case.made(gpu, pipelines, way)?) {
                return Ok(Some(format!("norms {what}, {columns} rows: other bits than by themselves")));
            }
        }
        // Dots round what they multiply; that their sums are right is for the trial to say.
        let wrong = if arith == Arith::Summed { case.wrong_output(gpu, &made)? } else { None };
        if let Some((got, want)) = wrong {
            return Ok(Some(format!("norms before a product: {got} for {want}")));
        }
    }
    Ok(None)
}
