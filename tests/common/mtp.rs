//! Models with a head for one token more, of `tests/data/mtp`.

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::Value;
use spec_run::{Model, quant::GgmlType};

use super::{load, parts, retyped, reweighted};

/// A small random model, and what llama.cpp's head says after some of its tokens.
pub struct Sample {
    pub name: &'static str,
    pub model: Arc<Model>,
    pub json: Value,
}

/// One of each architecture that has such a head; `tests/data/mtp/README.md` says how they were made.
pub fn samples() -> impl Iterator<Item = Sample> {
    const NAMES: [&str; 6] = ["qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2", "nemotron_h_moe"];
    NAMES.into_iter().map(|name| {
        let path = |end| {
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/mtp").join(format!("{name}.{end}"))
        };
        // The files are half as large as what llama.cpp read, and hold the same numbers.
        let model = retyped(&load(&path("gguf")), |_| GgmlType::F32);
        let json = serde_json::from_str(&fs::read_to_string(path("json")).unwrap()).unwrap();
        Sample { name, model, json }
    })
}

impl Sample {
    pub fn prompt(&self) -> Vec<u32> {
        self.json["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }

    /// The same architecture with a head that is often right: layers add little to the table's row, so that model and head
    /// say what follows from the last token alone, more or less. It still depends on all that it reads.
    pub fn with_a_good_head(&self) -> Arc<Model> {
        let behind = format!("blk.{}.", self.model.n_layer());
        let adds = [
            "attn_output.weight",
            "ssm_out.weight",
            "ffn_down.weight",
            "ffn_down_exps.weight",
            "ffn_down_shexp.weight",
        ];
        reweighted(&self.model, |tensor, numbers| {
            let name = tensor.name.as_str();
            if adds.iter().any(|end| name.ends_with(end)) {
                let by = if name.starts_with(&behind) { 0.2 } else { 0.04 };
                numbers.iter_mut().for_each(|x| *x *= by);
            } else if name.ends_with("nextn.eh_proj.weight") {
                // The token's half as it is, and a little of the row's.
                let columns = tensor.shape[0] as usize;
                for (i, x) in numbers.iter_mut().enumerate() {
                    let (row, column) = (i / columns, i % columns);
                    *x = if column < columns / 2 { f32::from(u8::from(row == column)) } else { *x * 0.2 };
                }
            } else if name.ends_with("nextn.embed_tokens.weight") {
                numbers.copy_from_slice(&parts::numbers(&self.model.gguf, "token_embd.weight"));
            } else if name.ends_with("nextn.shared_head_head.weight") {
                numbers.copy_from_slice(&parts::numbers(&self.model.gguf, "output.weight"));
            } else if name.contains("nextn.") || name == "output_norm.weight" {
                numbers.fill(1.0);
            }
        })
    }
}
