//! A text that is asked for.

use std::collections::HashMap;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};
use spec_run::{Request, sampler::Number};

use crate::layers;

/// A text to be made. Settings of sampling have llama.cpp's names and defaults.
#[pyclass(module = "spec_run", frozen)]
pub struct Job {
    /// As the library has it, but for the mask.
    job: spec_run::Job,
    /// Looked at when it is known which model it is for.
    mask: Option<Py<PyAny>>,
    pub stop: Vec<String>,
    pub streams: bool,
}

#[pymethods]
impl Job {
    #[new]
    #[pyo3(signature = (prompt, **settings))]
    fn new(prompt: Vec<u32>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let job = spec_run::Job::new(Request::new(&prompt));
        let mut job = Job { job, mask: None, stop: Vec::new(), streams: false };
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
        let spec_run::Job { request, sampler, .. } = &mut self.job;
        match name {
            "max_tokens" => request.max_tokens = Some(value.extract()?),
            "ignore_eos" => request.ignore_eos = value.extract()?,
            "logprobs" => request.logprobs = value.extract()?,
            "scores_from" => self.job.scores_from = Some(value.extract()?),
            "mask" => self.mask = Some(value.clone().unbind()),
            "loras" => self.job.loras = value.extract()?,
            "drafts" => self.job.drafts = value.extract()?,
            "reuses" => self.job.reuses = value.extract()?,
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
                Some(number) => *(number.field)(sampler) = value.extract()?,
                None => return Err(PyTypeError::new_err(format!("there is no setting {other:?}"))),
            },
        }
        Ok(())
    }

    /// As the library has it.
    pub fn job(&self, py: Python<'_>, n_layer: usize) -> PyResult<spec_run::Job> {
        let mask = layers::mask(self.mask.as_ref().map(|mask| mask.bind(py)), n_layer)?;
        Ok(spec_run::Job { mask: mask.filter(|mask| !mask.is_full()), ..self.job.clone() })
    }
}
