//! Settings of a context, from keyword arguments.

use std::path::PathBuf;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};
use spec_run::{
    Context, ContextConfig, Model,
    context::{Device, Isa, KvType, Planes},
    control::ControlVector,
    lora::LoraFile,
};

use crate::errors::{raised, wrong};

/// What a model is opened with; `settings` are the keyword arguments of `Context` and `LLM`.
pub fn config(model: &Model, settings: Option<&Bound<'_, PyDict>>) -> PyResult<ContextConfig> {
    let mut config = ContextConfig::default();
    config.n_ctx = config.n_ctx.min(model.n_ctx_train);
    let (mut repacks, mut planes) = (true, false);
    for (name, value) in settings.into_iter().flatten() {
        let name: String = name.extract()?;
        // None is the default, whatever it is.
        if value.is_none() {
            continue;
        }
        let bad = |e: PyErr| {
            let what = e.value(value.py()).to_string();
            PyTypeError::new_err(format!("{name}: {what}"))
        };
        match name.as_str() {
            "n_ctx" => config.n_ctx = value.extract().map_err(bad)?,
            "n_ubatch" => config.n_ubatch = value.extract().map_err(bad)?,
            "threads" => config.threads = value.extract().map_err(bad)?,
            "prompt_threads" => config.prompt_threads = value.extract().map_err(bad)?,
            "sequences" => config.sequences = value.extract().map_err(bad)?,
            "extra_slots" => config.extra_slots = value.extract().map_err(bad)?,
            "swa_full" => config.swa_full = value.extract().map_err(bad)?,
            "repack" => repacks = value.extract().map_err(bad)?,
            "planes" => planes = value.extract().map_err(bad)?,
            "key_type" => config.key_type = kv_type(&name, value.extract().map_err(bad)?)?,
            "value_type" => config.value_type = kv_type(&name, value.extract().map_err(bad)?)?,
            "isa" => config.isa = Some(isa(value.extract().map_err(bad)?)?),
            "device" => config.device = device(value.extract().map_err(bad)?)?,
            "gpu_layers" => config.placement.gpu_layers = Some(value.extract().map_err(bad)?),
            "vram" => config.placement.vram = Some(value.extract().map_err(bad)?),
            "loras" => {
                let files: Vec<File> = value.extract().map_err(bad)?;
                let lora = |file: File| file.scaled(|path, scale| LoraFile { path, scale });
                config.loras = files.into_iter().map(lora).collect();
            }
            "control_vectors" => {
                let files: Vec<File> = value.extract().map_err(bad)?;
                let vector = |file: File| file.scaled(|path, scale| ControlVector { path, scale });
                config.control_vectors = files.into_iter().map(vector).collect();
            }
            "control_layers" => {
                let (first, last): (usize, usize) = value.extract().map_err(bad)?;
                config.control_layers = Some(first..=last);
            }
            "ram" => config.placement.ram = Some(value.extract().map_err(bad)?),
            unknown => {
                return Err(PyTypeError::new_err(format!("there is no setting {unknown:?}")));
            }
        }
    }
    const MOST_THREADS: usize = 1024;
    for (name, threads) in [("threads", config.threads), ("prompt_threads", config.prompt_threads)] {
        if threads > MOST_THREADS {
            return Err(wrong(format!("{name} {threads}: at most {MOST_THREADS}")));
        }
    }
    if config.n_ubatch == 0 || config.sequences == 0 {
        return Err(wrong("n_ubatch and sequences: at least 1"));
    }
    config.planes = match (repacks, planes) {
        (false, true) => return Err(wrong("planes: they need repack=True")),
        (false, false) => None,
        (true, true) => Some(Planes::All),
        (true, false) => Some(Planes::Cheap),
    };
    Ok(config)
}

/// A file, whole or with how much of it.
#[derive(FromPyObject)]
enum File {
    Scaled(PathBuf, f32),
    Whole(PathBuf),
}

impl File {
    fn scaled<T>(self, make: impl Fn(PathBuf, f32) -> T) -> T {
        match self {
            File::Scaled(path, scale) => make(path, scale),
            File::Whole(path) => make(path, 1.0),
        }
    }
}

fn kv_type(name: &str, text: String) -> PyResult<KvType> {
    text.parse().map_err(|what| wrong(format!("{name} {text:?}: {what}")))
}

fn isa(text: String) -> PyResult<Isa> {
    let isa: Isa = text.parse().map_err(|what| wrong(format!("isa {text:?}: {what}")))?;
    match Isa::available().contains(&isa) {
        true => Ok(isa),
        false => Err(wrong(format!("isa {isa}: this machine does not have it; leave it out"))),
    }
}

fn device(text: String) -> PyResult<Device> {
    text.parse().map_err(|what| wrong(format!("device {text:?}: {what}")))
}

/// Opens a context, without Python in the way.
pub fn open(py: Python<'_>, model: &std::sync::Arc<Model>, config: &ContextConfig) -> PyResult<Context> {
    let context = py.detach(|| Context::new(model.clone(), config)).map_err(raised)?;
    let slow = cfg!(target_arch = "x86_64") && config.isa.is_none() && Isa::available() == [Isa::Scalar];
    let slow = slow.then(|| {
        "this processor has no AVX2: spec-run runs its portable code, which is several times slower".into()
    });
    for note in context.notes().iter().cloned().chain(slow) {
        py.import("warnings")?.call_method1("warn", (note,))?;
    }
    Ok(context)
}
