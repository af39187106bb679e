//! The adapters of a server's model, and how much of each requests get that do not say.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::wire::{ApiError, LoraScale};
use crate::lora::Lora;

/// What clients are told of one.
struct Listed {
    path: String,
    task_name: String,
    prompt_prefix: String,
}

/// All of them, by number.
#[derive(Default)]
pub struct Adapters {
    listed: Vec<Listed>,
    scales: Mutex<Vec<f32>>,
}

impl Adapters {
    /// Those of a context.
    pub fn new(loras: &[Lora]) -> Self {
        let listed = |Lora { path, task_name, prompt_prefix, .. }: &Lora| Listed {
            path: path.clone(),
            task_name: task_name.clone(),
            prompt_prefix: prompt_prefix.clone(),
        };
        let scales = loras.iter().map(|lora| lora.scale).collect();
        Adapters { listed: loras.iter().map(listed).collect(), scales: Mutex::new(scales) }
    }

    /// As llama-server tells of them.
    pub fn to_json(&self) -> Value {
        let scales = self.scales.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |(id, (listed, scale)): (usize, (&Listed, &f32))| {
            let Listed { path, task_name, prompt_prefix } = listed;
            json!({ "id": id, "path": path, "scale": scale, "task_name": task_name, "prompt_prefix": prompt_prefix })
        };
        std::iter::zip(&self.listed, &*scales).enumerate().map(entry).collect()
    }

    /// Requests that do not say get this from now on; nothing of those that are not among them.
    pub fn set(&self, wanted: &[LoraScale]) -> Result<(), ApiError> {
        let scales = self.scales_of(wanted)?;
        *self.scales.lock().unwrap_or_else(PoisonError::into_inner) = scales;
        Ok(())
    }

    /// What a request gets; `None` where there are no adapters.
    pub fn of_request(&self, wanted: &[LoraScale]) -> Result<Option<Vec<f32>>, ApiError> {
        let scales = match wanted {
            [] => self.scales.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            [..] => self.scales_of(wanted)?,
        };
        Ok(Some(scales).filter(|scales| !scales.is_empty()))
    }

    fn scales_of(&self, wanted: &[LoraScale]) -> Result<Vec<f32>, ApiError> {
        let mut scales = vec![0.0; self.listed.len()];
        for &LoraScale { id, scale } in wanted {
            match scales.get_mut(id) {
                Some(place) => *place = scale,
                // Nothing of what is not there is had by all.
                None if scale == 0.0 => {}
                None => {
                    let there = self.listed.len();
                    let message =
                        format!("no adapter {id}: there are {there}, and /lora-adapters lists them");
                    return Err(ApiError::field("lora", message));
                }
            }
        }
        Ok(scales)
    }
}
