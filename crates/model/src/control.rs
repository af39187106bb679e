//! Control vectors: directions that are added to the stream behind layers. They are a part of the model as a context runs it,
//! the same for all texts.

use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, sync::Arc};

use crate::{
    Error, Gguf, Model, Result,
    lora::check_scale,
    quant::{GgmlType, dequantize},
    quoted::{Quoted, one_line},
};

/// A file with directions, and what they are multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlVector {
    /// The GGUF.
    pub path: PathBuf,
    /// Any number; below 0 they point the other way.
    pub scale: f32,
}

/// The model with the sum of these directions behind those of its layers that are in `layers`, or behind all.
pub fn steered(
    model: &Arc<Model>,
    files: &[ControlVector],
    layers: Option<&RangeInclusive<usize>>,
) -> Result<Arc<Model>> {
    if files.is_empty() {
        return Ok(model.clone());
    }
    if let Some(layers) = layers.filter(|layers| layers.is_empty()) {
        let (first, last) = (layers.start(), layers.end());
        return Err(Error::Usage(format!(
            "`control_layers` {first} to {last}: the first is behind the last"
        )));
    }
    let mut sums = BTreeMap::new();
    for file in files {
        add_directions(file, model, &mut sums)?;
    }
    // The first layer has none, as in llama.cpp; files may have one for a layer more than there are.
    let takes =
        |layer: &usize| (1..model.n_layer()).contains(layer) && layers.is_none_or(|of| of.contains(layer));
    sums.retain(|layer, _| takes(layer));
    Ok(Arc::new(model.steered(sums)?))
}

/// Adds a file's directions to those of their layers.
fn add_directions(
    ControlVector { path, scale }: &ControlVector,
    model: &Model,
    sums: &mut BTreeMap<usize, Vec<f32>>,
) -> Result<()> {
    check_scale(&path.display().to_string(), *scale)?;
    let file = Gguf::open(path)?;
    let wrong = |what: String| Err(Error::gguf(one_line(file.name(), 200), what));
    if file.tensors().is_empty() {
        return wrong("it has no directions: not a control vector, or an incomplete file".into());
    }
    let width = model.plan.dims.dim;
    for tensor in file.tensors() {
        let name = Quoted(&tensor.name);
        let layer = tensor.name.strip_prefix("direction.").and_then(|layer| layer.parse::<usize>().ok());
        let Some(layer) = layer.filter(|&layer| layer > 0) else {
            return wrong(format!(
                "tensor {name} is no `direction.LAYER` of layer 1 or later: not a control vector"
            ));
        };
        if tensor.ty != GgmlType::F32 || tensor.elements() != width as u64 || tensor.shape[0] != width as u64
        {
            return wrong(format!(
                "tensor {name} has shape {:?} and type {}; rows of {} are [{width}] of F32: the control vector is for another model",
                tensor.shape, tensor.ty, model.name
            ));
        }
        let mut direction = vec![0.0; width];
        dequantize(tensor.ty, file.bytes(tensor), &mut direction);
        if let Some(x) = direction.iter().find(|x| !x.is_finite()) {
            return wrong(format!("tensor {name} has {x} among its numbers: the file is damaged"));
        }
        let sum = sums.entry(layer).or_insert_with(|| vec![0.0; width]);
        sum.iter_mut().zip(&direction).for_each(|(sum, x)| *sum += x * scale);
    }
    Ok(())
}
