//! Models in NVFP4, with the factors that stand beside such weights in files.

use std::sync::Arc;

use spec_run::{Gguf, Model, gguf::TensorInfo, quant::GgmlType};

use super::parts::{Part, Parts, numbers};

/// Matrices of layers, and the head; routers, tables of positions and norms are floats in all files.
pub fn is_matrix(tensor: &TensorInfo) -> bool {
    let is_named = tensor.name.starts_with("blk.") || tensor.name == "output.weight";
    let are_floats = ["ffn_gate_inp", "position", "norm"].iter().any(|part| tensor.name.contains(part));
    is_named
        && !are_floats
        && tensor.name.ends_with(".weight")
        && tensor.shape.len() > 1
        && tensor.shape[0].is_multiple_of(64)
}

/// Twice a code's value.
fn doubled(code: u8) -> u8 {
    assert!(code < 0x70, "no code is so large");
    if code < 8 { 2 * code } else { code + 8 }
}

/// The model with its matrices in NVFP4. Each matrix is stored larger than it is by a factor of its own, by `doublings` of its
/// number among the experts times larger still, and has a factor beside it that makes up for that.
pub fn in_nvfp4(
    model: &Model,
    is_matrix: impl Fn(&TensorInfo) -> bool,
    doublings: impl Fn(usize) -> usize,
    beside: impl Fn(&str, Vec<f32>) -> Option<Vec<f32>>,
) -> Gguf {
    Gguf::from_bytes("nvfp4", bytes_in_nvfp4(model, is_matrix, doublings, beside)).unwrap()
}

/// The same as a file's bytes.
pub fn bytes_in_nvfp4(
    model: &Model,
    is_matrix: impl Fn(&TensorInfo) -> bool,
    doublings: impl Fn(usize) -> usize,
    beside: impl Fn(&str, Vec<f32>) -> Option<Vec<f32>>,
) -> Vec<u8> {
    // Some have factors already, which are left out: these are other models.
    let has_factor = |name: &str| {
        let part = name.strip_suffix(".scale").or(name.strip_suffix(".input_scale"));
        let matrix = part.and_then(|part| model.gguf.tensor(&format!("{part}.weight")));
        matrix.is_some_and(&is_matrix)
    };
    let mut n = 0;
    let mut parts = Parts::of(&model.gguf);
    for part in std::mem::take(&mut parts.tensors) {
        if has_factor(&part.name) {
            continue;
        }
        if !is_matrix(model.gguf.tensor(&part.name).unwrap()) {
            parts.tensors.push(part);
            continue;
        }
        let factor = (1 + n % 5) as f32 / 64.0;
        n += 1;
        let numbers: Vec<f32> = part.numbers().iter().map(|x| x / factor).collect();
        let mut matrix = part.with_numbers(GgmlType::NVFP4, &numbers);
        let experts = part.shape.iter().skip(2).product::<u64>() as usize;
        let of_expert = matrix.bytes.len() / experts;
        for (expert, blocks) in matrix.bytes.chunks_exact_mut(of_expert).enumerate() {
            for code in blocks.chunks_exact_mut(36).flat_map(|block| &mut block[..4]) {
                *code = (0..doublings(expert)).fold(*code, |code, _| doubled(code));
            }
        }
        parts.tensors.push(matrix);
        let name = part.name.strip_suffix(".weight").unwrap();
        let factors = (0..experts).map(|expert| factor / (1 << doublings(expert)) as f32).collect();
        for (end, factors) in [("scale", factors), ("input_scale", vec![3.0; experts])] {
            let Some(factors) = beside(end, factors) else { continue };
            let shape = [factors.len() as u64];
            parts.tensors.push(Part::new(&format!("{name}.{end}"), GgmlType::F32, &shape, &factors));
        }
    }
    parts.bytes()
}

/// The same weights as floats, without factors.
pub fn as_floats(gguf: &Gguf) -> Gguf {
    let factors = |tensor: &Part, end: &str| tensor.name.replace(".weight", end);
    let mut parts = Parts::of(gguf);
    let in_four_bits = parts.tensors.iter().filter(|tensor| tensor.ty == GgmlType::NVFP4);
    let folded: Vec<String> =
        in_four_bits.flat_map(|tensor| [".scale", ".input_scale"].map(|end| factors(tensor, end))).collect();
    parts.tensors.retain(|tensor| !folded.contains(&tensor.name));
    for tensor in &mut parts.tensors {
        let mut all = tensor.numbers();
        let name = factors(tensor, ".scale");
        if tensor.ty == GgmlType::NVFP4 && gguf.tensor(&name).is_some() {
            let factors = numbers(gguf, &name);
            let of_each = all.len() / factors.len();
            for (all, factor) in all.chunks_exact_mut(of_each).zip(factors) {
                all.iter_mut().for_each(|x| *x *= factor);
            }
        }
        *tensor = tensor.with_numbers(GgmlType::F32, &all);
    }
    parts.gguf("floats")
}

/// Factors as they belong.
pub fn as_it_is(_: &str, factors: Vec<f32>) -> Option<Vec<f32>> {
    Some(factors)
}

pub fn loaded(file: Gguf) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(file)).unwrap())
}
