//! The bits of the CPU, of every form that a shader reads.

use naga::back::hlsl::ShaderModel;

use super::{check::of_cpu, *};
use crate::{
    backend::cpu::{
        matmul::{Acts, HighBits, Mode, OutMatrix, PackedMemory, Planes, matmul},
        simd::Isa,
    },
    harness::{self, Random},
    pipelines::Final,
    quant::GgmlType,
    tests::{chosen_in_turn, gpu},
};

const TYPES: [GgmlType; 17] = [
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q2_K,
    GgmlType::Q3_K,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
    GgmlType::IQ4_NL,
    GgmlType::IQ4_XS,
    GgmlType::MXFP4,
    GgmlType::NVFP4,
    GgmlType::TQ2_0,
    GgmlType::Q1_0,
    GgmlType::Q2_0,
];

/// A matrix in each form of these instruction sets, one set in turn or all.
fn of_every_form(random: &mut Random, isas: &[&[Isa]]) -> Vec<Packed> {
    let mut cases = Vec::new();
    let mut forms = Vec::new();
    let mut turn = 0;
    for ty in TYPES {
        let lows = HighBits::ALL.map(Lies::Low).into_iter().filter(|_| Packed::has_low_plane(ty));
        let planes = [Planes::Cheap, Planes::All, Planes::Never].map(Lies::All);
        for lies in planes.into_iter().chain(lows) {
            turn += 1;
            for isa in chosen_in_turn(turn, isas) {
                let packed = matrix(random, ty, (150, 512), lies, isa);
                let form = Form::of(&packed).expect("all of these are read");
                if !forms.contains(&form) {
                    forms.push(form);
                    cases.push(packed);
                }
            }
        }
    }
    cases
}

fn sizes() -> Sizes {
    // So little that a matrix is many pieces.
    Sizes { acts: 1 << 20, weights: 40 << 10, products: 30 << 10 }
}

fn rounded(random: &mut Random, columns: usize, k: usize) -> QuantRows {
    let x: Vec<f32> =
        (0..columns * k).map(|i| random.float() * 2f32.powi((i / 32 % 41) as i32 - 30)).collect();
    QuantRows::of(Isa::detect(), &x, k)
}

fn multiplied(offloader: &mut Offloader, packed: &Packed, x: &QuantRows, out: &mut [f32]) -> bool {
    offloader.multiply(&mut [Bundle::of_rows(x, [(Weight::packed(packed), out)])]).unwrap()
}

/// Whether all products have the CPU's bits; the first that has not, if any.
fn differs(offloader: &mut Offloader, packed: &Packed, x: &QuantRows) -> Option<String> {
    let want = of_cpu(packed, x);
    let mut got = vec![f32::NAN; want.len()];
    assert!(multiplied(offloader, packed, x, &mut got));
    let first = std::iter::zip(&got, &want).position(|(a, b)| a.to_bits() != b.to_bits())?;
    Some(format!("product {first}: {:e}, not {:e}", got[first], want[first]))
}

/// What of a matrix is packed.
#[derive(Clone, Copy)]
enum Lies {
    All(Planes),
    Low(HighBits),
}

fn matrix(random: &mut Random, ty: GgmlType, (rows, cols): (usize, usize), lies: Lies, isa: Isa) -> Packed {
    let mut bytes = harness::blocks(random, ty, rows * cols / ty.block_len());
    // Scales below the normal halves in some rows, as Q6_K has them in real models.
    if ty == GgmlType::Q6_K {
        for block in bytes.chunks_exact_mut(210).step_by(3) {
            block[208..].copy_from_slice(&[37, 1]);
        }
    }
    let weight = Weight::new(ty, &bytes, rows, cols);
    match lies {
        Lies::All(planes) => Packed::new(isa, &weight, planes, |_| ()),
        Lies::Low(high) => Packed::low_plane_in(&mut PackedMemory::default(), isa, &weight, high, |_| ()),
    }
    .unwrap()
}

/// With the device's `fma` if that rounds once, and with one that is made of other operations in any case.
#[test]
fn products_have_the_bits_of_the_cpu() {
    const TEST: &str = "products_have_the_bits_of_the_cpu";
    let Some(gpu) = gpu(TEST).map(Arc::new) else { return };
    let mut random = Random::new(5);
    let isas = Isa::available();
    let isas: Vec<&[Isa]> = isas.iter().map(std::slice::from_ref).collect();
    let cases = of_every_form(&mut random, &isas);
    let mut offloader = Offloader::of(gpu.clone(), sizes()).unwrap();
    let x = rounded(&mut random, 37, 512);
    let wrong = differs(&mut offloader, &cases[0], &x);
    println!("with the device's fma: {}", wrong.unwrap_or("the same bits".into()));
    let mut offloader = offloader.without_fma();
    for packed in &cases {
        for columns in [1, 33, 70] {
            let x = rounded(&mut random, columns, 512);
            let wrong = differs(&mut offloader, packed, &x);
            assert!(wrong.is_none(), "{} of {} lanes: {wrong:?}", packed.ty(), packed.lanes());
        }
    }
}

/// No driver for Metal or DX12 is here; what they would be given can be made all the same.
#[test]
fn every_text_is_translated_for_vulkan_metal_and_dx12() {
    for packed in of_every_form(&mut Random::new(9), &[&[Isa::Scalar, Isa::Avx2]]) {
        let form = Form::of(&packed).unwrap();
        for fused in [0.0, 1.0] {
            let ready = Final::of_text(&form.text(), [("FUSED".to_string(), fused)]).unwrap();
            let refused = [
                ready.spirv().err(),
                ready.msl().err(),
                ready.hlsl(ShaderModel::V5_1, STORAGE.0).err(),
                ready.hlsl(ShaderModel::V6_6, STORAGE.0).err(),
            ];
            assert_eq!(refused, [None, None, None, None], "{form:?}");
        }
    }
}

/// Several matrices of two types with parts of rows, as experts have them, in one go, and each with a factor: the bits of
/// each by itself.
#[test]
fn matrices_with_parts_of_rows_have_the_bits_of_each_alone() {
    let Some(gpu) = gpu("matrices_with_parts_of_rows_have_the_bits_of_each_alone").map(Arc::new) else {
        return;
    };
    let mut random = Random::new(7);
    let mut offloader = Offloader::of(gpu, sizes()).unwrap().without_fma();
    let isa = Isa::detect();
    let x = rounded(&mut random, 90, 3 * 64);
    let mut matrices = |ty| -> Vec<Packed> {
        (0..7).map(|_| matrix(&mut random, ty, (150, 64), Lies::All(Planes::Cheap), isa)).collect()
    };
    let [firsts, seconds] = [matrices(GgmlType::MXFP4), matrices(GgmlType::Q8_0)];
    let parts = |expert: usize| -> Vec<(usize, usize)> {
        (0..x.rows()).filter(|row| row % (expert + 1) == 0).map(|row| (row, row % 3 * 64)).collect()
    };
    let weights = |expert: usize| {
        let factor = 1.0 + expert as f32 / 3.0;
        [Weight::packed(&firsts[expert]).times(factor), Weight::packed(&seconds[expert])]
    };
    let mut got: Vec<[Vec<f32>; 2]> =
        (0..7).map(|expert| [(); 2].map(|()| vec![f32::NAN; parts(expert).len() * 150])).collect();
    let mut bundles: Vec<Bundle> = got
        .iter_mut()
        .enumerate()
        .map(|(expert, out)| Bundle {
            x: &x,
            parts: parts(expert),
            with: std::iter::zip(weights(expert), out)
                .map(|(weight, out)| (weight, out.chunks_exact_mut(150).collect()))
                .collect(),
        })
        .collect();
    assert!(offloader.multiply(&mut bundles).unwrap());
    drop(bundles);
    for (expert, got) in got.iter().enumerate() {
        let mut rows = QuantRows::new();
        rows.gather(&x, 64, parts(expert).into_iter());
        for (weight, got) in std::iter::zip(weights(expert), got) {
            let mut want = vec![0.0; got.len()];
            let mut products = OutMatrix::new(&mut want, 150, Mode::Store);
            matmul(isa, &weight, Acts::Quantized(&rows), &mut products.whole());
            let differ = std::iter::zip(got, &want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(differ, 0, "{} of expert {expert}", weight.ty());
        }
    }
}

/// A block of MXFP4 may have a power of two with which a product is too small for a device, or too large; where its levels
/// are zero the least ones do not matter.
#[test]
fn matrices_with_extreme_powers_of_two_are_not_taken() {
    let Some(gpu) = gpu("matrices_with_extreme_powers_of_two_are_not_taken").map(Arc::new) else { return };
    let offloader = Offloader::of(gpu, sizes()).unwrap();
    for isa in Isa::available() {
        for (power, level, taken) in
            [(65, 1, true), (64, 1, false), (64, 8, true), (0, 0, true), (167, 1, true), (168, 0, false)]
        {
            let mut bytes = harness::blocks(&mut Random::new(8), GgmlType::MXFP4, 40 * 4);
            let block = &mut bytes[17 * 131..][..17];
            block.fill(level << 4 | level);
            (block[0], block[9]) = (power, level << 4);
            let weight = Weight::new(GgmlType::MXFP4, &bytes, 40, 128);
            let packed = Packed::new(isa, &weight, Planes::Cheap, |_| ()).unwrap();
            assert_eq!(offloader.knows(&packed), taken, "{isa}: {power}, {level}");
        }
    }
}

/// Where a product could pass through numbers that a device may take for zero, or beyond all, the CPU makes it.
#[test]
fn numbers_of_extreme_sizes_are_declined() {
    let Some(gpu) = gpu("numbers_of_extreme_sizes_are_declined").map(Arc::new) else { return };
    let mut random = Random::new(6);
    let packed = matrix(&mut random, GgmlType::Q4_0, (32, 64), Lies::All(Planes::Cheap), Isa::detect());
    let mut offloader = Offloader::of(gpu, sizes()).unwrap();
    for (value, taken) in [(1.0, true), (0.0, true), (1e-20, false), (1e30, false), (f32::NAN, false)] {
        let mut x = vec![1.0; 128];
        x[70] = value;
        x[64..96].iter_mut().for_each(|x| *x = if value == 1.0 { *x } else { value });
        let rows = QuantRows::of(Isa::detect(), &x, 64);
        assert_eq!(multiplied(&mut offloader, &packed, &rows, &mut [0.0; 64]), taken, "{value}");
    }
}
