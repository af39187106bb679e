//! The bits of the CPU, of every form that a shader reads.

use super::{check::of_cpu, *};
use crate::{
    backend::{
        cpu::{
            matmul::{Planes, Weight},
            simd::Isa,
        },
        gpu::{
            lab::{self, Random},
            tests::gpu,
        },
    },
    quant::GgmlType,
};

const TYPES: [GgmlType; 8] = [
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

fn sizes() -> Sizes {
    // So little that a matrix is many pieces.
    Sizes { acts: 1 << 20, weights: 40 << 10, products: 30 << 10 }
}

fn rounded(random: &mut Random, columns: usize, k: usize) -> QuantRows {
    let x: Vec<f32> =
        (0..columns * k).map(|i| random.float() * 2f32.powi((i / 32 % 41) as i32 - 30)).collect();
    let mut rows = QuantRows::new();
    rows.resize(columns, k);
    rows.quantize(Isa::detect(), &x);
    rows
}

/// Whether all products have the CPU's bits; the first that has not, if any.
fn differs(lender: &mut Lender, packed: &Packed, x: &QuantRows) -> Option<String> {
    let want = of_cpu(packed, x);
    let mut got = vec![f32::NAN; want.len()];
    assert!(lender.multiply(packed, x, &mut got).unwrap());
    let first = std::iter::zip(&got, &want).position(|(a, b)| a.to_bits() != b.to_bits())?;
    Some(format!("product {first}: {:e}, not {:e}", got[first], want[first]))
}

fn matrix(
    random: &mut Random,
    ty: GgmlType,
    (rows, cols): (usize, usize),
    planes: Planes,
    isa: Isa,
) -> Packed {
    let mut bytes = lab::blocks(random, ty, rows * cols / ty.block_len());
    // Scales below the normal halves in some rows, as Q6_K has them in real models.
    if ty == GgmlType::Q6_K {
        for block in bytes.chunks_exact_mut(210).step_by(3) {
            block[208..].copy_from_slice(&[37, 1]);
        }
    }
    Packed::new(isa, &Weight::new(ty, &bytes, rows, cols), planes, |_| ()).unwrap()
}

/// With the device's `fma` if that rounds once, and with one that is made of other operations in any case.
#[test]
fn products_have_the_bits_of_the_cpu() {
    const TEST: &str = "products_have_the_bits_of_the_cpu";
    let Some(gpu) = gpu(TEST).map(Arc::new) else { return };
    let mut random = Random::new(5);
    let mut cases = Vec::new();
    for ty in TYPES {
        for planes in [Planes::Cheap, Planes::All, Planes::Never] {
            for isa in Isa::available() {
                let packed = matrix(&mut random, ty, (150, 512), planes, isa);
                if Form::of(&packed).is_some() {
                    cases.push(packed);
                }
            }
        }
    }
    let mut lender = Lender::of(gpu.clone(), sizes()).unwrap();
    let x = rounded(&mut random, 37, 512);
    let wrong = cases.iter().find_map(|packed| differs(&mut lender, packed, &x));
    println!("with the device's fma: {}", wrong.unwrap_or("the same bits".into()));
    let mut lender = lender.without_fma();
    for packed in &cases {
        for columns in [1, 31, 33, 70] {
            let x = rounded(&mut random, columns, 512);
            let wrong = differs(&mut lender, packed, &x);
            assert!(wrong.is_none(), "{} of {} lanes: {wrong:?}", packed.ty(), packed.lanes());
        }
    }
}

/// Where a product could pass through numbers that a device may take for zero, or beyond all, the CPU makes it.
#[test]
fn numbers_of_extreme_sizes_are_declined() {
    let Some(gpu) = gpu("numbers_of_extreme_sizes_are_declined").map(Arc::new) else { return };
    let mut random = Random::new(6);
    let packed = matrix(&mut random, GgmlType::Q4_0, (32, 64), Planes::Cheap, Isa::detect());
    let mut lender = Lender::of(gpu, sizes()).unwrap();
    for (value, taken) in [(1.0, true), (0.0, true), (1e-20, false), (1e30, false), (f32::NAN, false)] {
        let mut x = vec![1.0; 128];
        x[70] = value;
        x[64..96].iter_mut().for_each(|x| *x = if value == 1.0 { *x } else { value });
        let mut rows = QuantRows::new();
        rows.resize(2, 64);
        rows.quantize(Isa::detect(), &x);
        assert_eq!(lender.multiply(&packed, &rows, &mut [0.0; 64]).unwrap(), taken, "{value}");
    }
}
