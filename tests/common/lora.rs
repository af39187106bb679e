//! Adapters and control vectors of the small models, as `tests/golden/lora.py` makes them: their numbers come from a formula.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde_json::Value;
use spec_run::{Model, control::ControlVector, lora::LoraFile, quant::GgmlType};

use super::parts::{Part, Parts};

/// What `tests/golden/lora.json` has of a model.
pub struct Golden {
    /// Which have adapters.
    pub tensors: Vec<String>,
    /// The log-probabilities of the first tokens after the prompt, with both adapters.
    pub adapted: Vec<f32>,
    /// The same with a control vector.
    pub steered: Vec<f32>,
}

pub fn golden(name: &str) -> &'static Golden {
    static ALL: OnceLock<BTreeMap<String, Golden>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let json: BTreeMap<String, Value> =
            serde_json::from_str(include_str!("../golden/lora.json")).unwrap();
        let of = |value: &Value| {
            let list = |key: &str| value[key].as_array().unwrap().clone();
            let floats = |key| list(key).iter().map(|x| x.as_f64().unwrap() as f32).collect();
            let tensors = list("tensors").iter().map(|name| name.as_str().unwrap().to_owned()).collect();
            Golden { tensors, adapted: floats("adapted"), steered: floats("steered") }
        };
        json.iter().map(|(name, value)| (name.clone(), of(value))).collect()
    });
    &all[name]
}

/// How much of each of both adapters the numbers are with.
pub const SCALES: [f32; 2] = [0.75, -0.5];

/// Multiples of 1/16 from -1 up to 1: the top five bits of splitmix64, counted on from the FNV-1a of the name.
pub fn numbers(name: &str, count: usize) -> Vec<f32> {
    let fnv = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let state = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let number = |i: u64| {
        let z = state.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 59) as f32 / 16.0 - 1.0
    };
    (0..count as u64).map(number).collect()
}

/// A thin matrix.
pub struct Thin {
    pub name: String,
    pub shape: Vec<u64>,
    pub numbers: Vec<f32>,
}

/// Both beside a tensor of a shape.
pub fn thin(name: &str, shape: &[u64], rank: u64) -> [Thin; 2] {
    let (cols, rows, more) = (shape[0], shape[1], &shape[2..]);
    let [a, b] = match name {
        "token_embd.weight" => [[rank, rows], [rank, cols]],
        _ => [[cols, rank], [rank, rows]],
    };
    [("a", a, 0.25), ("b", b, 0.125)].map(|(which, sides, by)| {
        let name = format!("{name}.lora_{which}");
        let shape = [&sides, more].concat();
        let mut numbers = numbers(&format!("{name} of {rank}"), shape.iter().product::<u64>() as usize);
        numbers.iter_mut().for_each(|x| *x *= by);
        Thin { name, shape, numbers }
    })
}

/// A file of tensors.
pub fn write(path: &Path, keys: &[(&str, spec_run::gguf::Value)], tensors: &[Thin], ty: GgmlType) {
    let tensors = tensors.iter().map(|thin| Part::new(&thin.name, ty, &thin.shape, &thin.numbers)).collect();
    let parts = Parts { tensors, ..Parts::new() };
    let parts = keys.iter().fold(parts, |parts, (key, value)| parts.with(key, value.clone()));
    std::fs::write(path, parts.bytes()).unwrap();
}

/// The keys of an adapter for an architecture.
pub fn keys(arch: &str, alpha: Option<f32>) -> Vec<(&'static str, spec_run::gguf::Value)> {
    let mut keys = vec![
        ("general.type", "adapter".into()),
        ("general.architecture", arch.into()),
        ("adapter.type", "lora".into()),
    ];
    keys.extend(alpha.map(|alpha| ("adapter.lora.alpha", alpha.into())));
    keys
}

/// Both adapters of a model: one of rank 4 and alpha 8 for all of these tensors, and one of rank 3 without for every other.
pub fn adapters(folder: &Path, model: &Model, tensors: &[String]) -> Vec<LoraFile> {
    let matrices = |rank, every| -> Vec<Thin> {
        let shape = |name: &String| model.gguf.tensor(name).unwrap().shape.clone();
        tensors.iter().step_by(every).flat_map(|name| thin(name, &shape(name), rank)).collect()
    };
    let (one, two) = (folder.join("one.gguf"), folder.join("two.gguf"));
    write(&one, &keys(&model.arch, Some(8.0)), &matrices(4, 1), GgmlType::F16);
    write(&two, &keys(&model.arch, None), &matrices(3, 2), GgmlType::F32);
    std::iter::zip([one, two], SCALES).map(|(path, scale)| LoraFile { path, scale }).collect()
}

/// A control vector for all of so many layers.
pub fn vector(folder: &Path, layers: usize, width: usize) -> ControlVector {
    let direction = |layer: usize| {
        let name = format!("direction.{layer}");
        let numbers = numbers(&name, width).iter().map(|x| x * 0.5).collect();
        Thin { name, shape: vec![width as u64], numbers }
    };
    let path: PathBuf = folder.join("vector.gguf");
    let directions: Vec<Thin> = (1..layers).map(direction).collect();
    write(&path, &[("general.architecture", "controlvector".into())], &directions, GgmlType::F32);
    ControlVector { path, scale: 1.0 }
}
