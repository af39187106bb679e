//! Models in NVFP4, with the factors that stand beside such weights in files.

use std::sync::Arc;

use spec_run::{
    Gguf, Model,
    gguf::{TensorInfo, Writer},
    quant::{GgmlType, dequantize, quantize},
};

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
    let mut writer = Writer::new();
    for (key, value) in model.gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    let mut data: Vec<Vec<u8>> = Vec::new();
    let mut n = 0;
    // Some have factors already, which are left out: these are other models.
    let has_factor = |name: &str| {
        let part = name.strip_suffix(".scale").or(name.strip_suffix(".input_scale"));
        let matrix = part.and_then(|part| model.gguf.tensor(&format!("{part}.weight")));
        matrix.is_some_and(&is_matrix)
    };
    for tensor in model.gguf.tensors().iter().filter(|tensor| !has_factor(&tensor.name)) {
        let bytes = model.gguf.bytes(tensor);
        if !is_matrix(tensor) {
            writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
            data.push(bytes.to_vec());
            continue;
        }
        let factor = (1 + n % 5) as f32 / 64.0;
        n += 1;
        let mut numbers = vec![0.0; tensor.elements() as usize];
        dequantize(tensor.ty, bytes, &mut numbers);
        numbers.iter_mut().for_each(|x| *x /= factor);
        let mut blocks = Vec::new();
        quantize(GgmlType::NVFP4, &numbers, &mut blocks).unwrap();
        let experts = tensor.shape.iter().skip(2).product::<u64>() as usize;
        let of_expert = blocks.len() / experts;
        for (expert, blocks) in blocks.chunks_exact_mut(of_expert).enumerate() {
            for code in blocks.chunks_exact_mut(36).flat_map(|block| &mut block[..4]) {
                *code = (0..doublings(expert)).fold(*code, |code, _| doubled(code));
            }
        }
        writer.tensor(&tensor.name, GgmlType::NVFP4, &tensor.shape);
        data.push(blocks);
        let name = tensor.name.strip_suffix(".weight").unwrap();
        let factors = (0..experts).map(|expert| factor / (1 << doublings(expert)) as f32).collect();
        for (end, factors) in [("scale", factors), ("input_scale", vec![3.0; experts])] {
            let Some(factors) = beside(end, factors) else { continue };
            writer.tensor(&format!("{name}.{end}"), GgmlType::F32, &[factors.len() as u64]);
            data.push(factors.iter().flat_map(|x| x.to_le_bytes()).collect());
        }
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes, |i, out| out.write(&data[i])).unwrap();
    bytes
}

/// The same weights as floats, without factors.
pub fn as_floats(gguf: &Gguf) -> Gguf {
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    let mut data: Vec<Vec<u8>> = Vec::new();
    let numbers = |tensor: &TensorInfo| {
        let mut numbers = vec![0.0; tensor.elements() as usize];
        dequantize(tensor.ty, gguf.bytes(tensor), &mut numbers);
        numbers
    };
    let factors = |tensor: &TensorInfo, end: &str| gguf.tensor(&tensor.name.replace(".weight", end));
    let four_bits = |tensor: &&TensorInfo| tensor.ty == GgmlType::NVFP4;
    let folded: Vec<String> = [".scale", ".input_scale"]
        .iter()
        .flat_map(|end| gguf.tensors().iter().filter(four_bits).filter_map(|tensor| factors(tensor, end)))
        .map(|tensor| tensor.name.clone())
        .collect();
    for tensor in gguf.tensors().iter().filter(|tensor| !folded.contains(&tensor.name)) {
        let mut all = numbers(tensor);
        if let Some(factors) = factors(tensor, ".scale").filter(|_| four_bits(&tensor)) {
            let factors = numbers(factors);
            let of_each = all.len() / factors.len();
            for (all, factor) in all.chunks_exact_mut(of_each).zip(factors) {
                all.iter_mut().for_each(|x| *x *= factor);
            }
        }
        writer.tensor(&tensor.name, GgmlType::F32, &tensor.shape);
        data.push(all.iter().flat_map(|x| x.to_le_bytes()).collect());
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes, |i, out| out.write(&data[i])).unwrap();
    Gguf::from_bytes("floats", bytes).unwrap()
}

/// Factors as they belong.
pub fn as_it_is(_: &str, factors: Vec<f32>) -> Option<Vec<f32>> {
    Some(factors)
}

pub fn loaded(file: Gguf) -> Arc<Model> {
    Arc::new(Model::load(Arc::new(file)).unwrap())
}
