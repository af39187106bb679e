//! The small models of all architectures, for tests of packages.

use std::{path::PathBuf, sync::Arc};

use spec_run_gguf::{
    Gguf,
    gguf::{TensorInfo, Writer},
    quant::{GgmlType, dequantize, quantize},
};
use spec_run_model::Model;

pub fn fixtures() -> Vec<Model> {
    let load = |file: &PathBuf| match Model::load(Arc::new(Gguf::open(file).unwrap())) {
        Ok(model) => model,
        Err(e) => panic!("{}: {e}", file.display()),
    };
    spec_run_fixtures::architectures().iter().map(load).collect()
}

/// The same with matrices in three types of 32 weights to a block; of a gate and its second factor in different ones.
pub fn quantized(model: &Model) -> Model {
    let ty = |tensor: &TensorInfo| {
        let is_matrix =
            tensor.shape.len() > 1 && tensor.shape[0].is_multiple_of(32) && tensor.name.ends_with("weight");
        match tensor.name.as_str() {
            name if !is_matrix || name.contains("ffn_gate_inp") || name.contains("position") => tensor.ty,
            name if name.contains("ffn_gate") => GgmlType::MXFP4,
            name if name.contains("ffn_down") || name.contains("attn_output") => GgmlType::Q4_0,
            _ => GgmlType::Q8_0,
        }
    };
    let mut writer = Writer::new();
    for (key, value) in model.gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    let tensors = model.gguf.tensors();
    for tensor in tensors {
        writer.tensor(&tensor.name, ty(tensor), &tensor.shape);
    }
    let mut bytes = Vec::new();
    let written = writer.write(&mut bytes, |i, out| {
        let tensor = &tensors[i];
        let mut numbers = vec![0.0; tensor.elements() as usize];
        dequantize(tensor.ty, model.gguf.bytes(tensor), &mut numbers);
        let mut blocks = Vec::new();
        quantize(ty(tensor), &numbers, &mut blocks).expect("a type that can be written");
        out.write(&blocks)
    });
    written.unwrap();
    Model::load(Arc::new(Gguf::from_bytes("quantized", bytes).unwrap())).unwrap()
}
