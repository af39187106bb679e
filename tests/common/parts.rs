//! A model's file taken apart, to be put together with other parts.

use std::sync::Arc;

use spec_run::{
    Gguf, Model,
    gguf::{TensorInfo, Value, Writer},
    quant::{GgmlType, dequantize, quantize},
};

pub struct Parts {
    pub keys: Writer,
    pub tensors: Vec<Part>,
}

/// A tensor.
pub struct Part {
    pub name: String,
    pub ty: GgmlType,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl Parts {
    /// None.
    pub fn new() -> Self {
        Parts { keys: Writer::new(), tensors: Vec::new() }
    }

    pub fn of(gguf: &Gguf) -> Self {
        let part = |tensor: &TensorInfo| Part {
            name: tensor.name.clone(),
            ty: tensor.ty,
            shape: tensor.shape.clone(),
            bytes: gguf.bytes(tensor).to_vec(),
        };
        let tensors = gguf.tensors().iter().map(part).collect();
        gguf.metadata()
            .iter()
            .fold(Parts { tensors, ..Parts::new() }, |parts, (key, value)| parts.with(key, value.clone()))
    }

    /// With a key's value.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.set(key, value);
        self
    }

    /// Without a tensor that is there.
    pub fn without(mut self, name: &str) -> Self {
        let before = self.tensors.len();
        self.tensors.retain(|tensor| tensor.name != name);
        assert_eq!(self.tensors.len() + 1, before, "{name}");
        self
    }

    pub fn tensor(&mut self, name: &str) -> &mut Part {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// A file of these parts.
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = self.keys.clone();
        for tensor in &self.tensors {
            writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |i, out| out.write(&self.tensors[i].bytes)).unwrap();
        bytes
    }

    /// The same, opened.
    pub fn gguf(&self, name: &str) -> Gguf {
        Gguf::from_bytes(name, self.bytes()).unwrap()
    }

    pub fn model(&self, name: &str) -> Arc<Model> {
        Arc::new(Model::load(Arc::new(self.gguf(name))).unwrap())
    }

    /// Why it is no model.
    #[track_caller]
    pub fn refused(&self, name: &str) -> String {
        Model::load(Arc::new(self.gguf(name))).err().expect("it must be refused").to_string()
    }
}

impl Part {
    pub fn new(name: &str, ty: GgmlType, shape: &[u64], numbers: &[f32]) -> Self {
        let mut bytes = Vec::new();
        quantize(ty, numbers, &mut bytes).expect("a type that can be written");
        Part { name: name.into(), ty, shape: shape.into(), bytes }
    }

    pub fn numbers(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.shape.iter().product::<u64>() as usize];
        dequantize(self.ty, &self.bytes, &mut numbers);
        numbers
    }

    /// The same tensor of other numbers.
    pub fn with_numbers(&self, ty: GgmlType, numbers: &[f32]) -> Self {
        Part::new(&self.name, ty, &self.shape, numbers)
    }
}

/// The numbers of a tensor.
pub fn numbers(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    let mut numbers = vec![0.0; tensor.elements() as usize];
    dequantize(tensor.ty, gguf.bytes(tensor), &mut numbers);
    numbers
}
