//! A text that is asked for.

use std::collections::HashMap;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};
use spec_run::sampler::{Number, SamplerConfig};

use crate::layers;

/// A text to be made. Settings of sampling have llama.cpp's names and defaults.
#[pyclass(module = "spec_run", frozen)]
pub struct Job {
    pub prompt: Vec<u32>,
    pub sampler: SamplerConfig,
    pub max_tokens: Option<usize>,
    pub ignore_eos: bool,
    pub logprobs: usize,
    pub scores_from: Option<usize>,
    /// Looked at when it is known which model it is for.
    mask: Option<Py<PyAny>>,
    loras: Option<Vec<f32>>,
    pub drafts: bool,
    pub reuses: bool,
    pub stop: Vec<String>,
    pub streams: bool,
}

#[pymethods]
impl Job {
    #[new]
    #[pyo3(signature = (prompt, **settings))]
    fn new(prompt: Vec<u32>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut job = Job {
            prompt,
            sampler: SamplerConfig::default(),
            max_tokens: None,
            ignore_eos: false,
            logprobs: 0,
            scores_from: None,
            mask: None,
            loras: None,
            drafts: true,
            reuses: true,
            stop: Vec::new(),
            streams: false,
        };
        for (name, value) in settings.into_iter().flatten() {
            let name: String = name.extract()?;
            if !value.is_none() {
                job.set(&name, &value).map_err(|e| of_setting(&name, e, &value))?;
            }
        }
        Ok(job)
    }
}

fn of_setting(name: &str, error: PyErr, value: &Bound<'_, PyAny>) -> PyErr {
    let line = error.value(value.py()).to_string();
    let type_error = error.is_instance_of::<PyTypeError>(value.py());
    if type_error { PyTypeError::new_err(format!("{name}: {line}")) } else { error }
}

impl Job {
    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let sampler = &mut self.sampler;
        match name {
            "max_tokens" => self.max_tokens = Some(value.extract()?),
            "ignore_eos" => self.ignore_eos = value.extract()?,
            "logprobs" => self.logprobs = value.extract()?,
            "scores_from" => self.scores_from = Some(value.extract()?),
            "mask" => self.mask = Some(value.clone().unbind()),
            "loras" => self.loras = value.extract()?,
            "drafts" => self.drafts = value.extract()?,
            "reuses" => self.reuses = value.extract()?,
            "stop" => self.stop = value.extract()?,
            "streams" => self.streams = value.extract()?,
            "seed" => sampler.seed = Some(value.extract()?),
            "top_k" => sampler.top_k = value.extract()?,
            "repeat_last_n" => sampler.repeat_last_n = value.extract()?,
            "logit_bias" => {
                let biases: HashMap<u32, f32> = value.extract()?;
                sampler.logit_bias = biases.into_iter().collect();
                sampler.logit_bias.sort_by_key(|(token, _)| *token);
            }
            other => match Number::of_name(other) {
                Some(number) => *(number.place)(sampler) = value.extract()?,
                None => return Err(PyTypeError::new_err(format!("there is no setting {other:?}"))),
            },
        }
        Ok(())
    }

    /// As the library has it.
    pub fn job(&self, py: Python<'_>, n_layer: usize) -> PyResult<spec_run::Job> {
        let mask = layers::mask(self.mask.as_ref().map(|mask| mask.bind(py)), n_layer)?;
        Ok(spec_run::Job {
            sampler: self.sampler.clone(),
            max_tokens: self.max_tokens,
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            scores_from: self.scores_from,
            mask: mask.filter(|mask| !mask.is_full()),
            loras: self.loras.clone(),
            drafts: self.drafts,
            reuses: self.reuses,
            ..spec_run::Job::new(self.prompt.clone())
        })
    }
}
