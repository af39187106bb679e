//! Which sublayers of a model run: masks, and files of them.

use std::path::PathBuf;

use pyo3::{
    prelude::*,
    types::{PyDict, PyString},
};
use spec_run::mask::{
    LayerBits,
    skips::{NamedMask, Skips},
};

use crate::{
    errors::{raised, wrong},
    model::Model,
};

/// What of each layer of a model runs. A mask never changes; what changes one gives another.
#[pyclass(module = "spec_run", frozen, eq, hash, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RunLayers(pub spec_run::RunLayers);

type Change = fn(spec_run::RunLayers, usize) -> spec_run::RunLayers;

impl RunLayers {
    fn change(&self, layers: Layers, change: Change) -> PyResult<Self> {
        let all = layers.of(self.0.n_layer())?;
        Ok(RunLayers(all.into_iter().fold(self.0.clone(), change)))
    }

    fn which(&self, runs: impl Fn(usize) -> bool) -> Vec<bool> {
        (0..self.0.n_layer()).map(runs).collect()
    }
}

/// A layer, or several.
#[derive(FromPyObject)]
enum Layers {
    One(i64),
    Several(Vec<i64>),
}

impl Layers {
    /// Layers from the end are negative, as in Python's own lists.
    fn of(self, n_layer: usize) -> PyResult<Vec<usize>> {
        let layers = match self {
            Layers::One(layer) => vec![layer],
            Layers::Several(layers) => layers,
        };
        let place = |layer: i64| {
            let from_start = if layer < 0 { layer + n_layer as i64 } else { layer };
            let known = usize::try_from(from_start).ok().filter(|&layer| layer < n_layer);
            known.ok_or_else(|| wrong(format!("layer {layer}: the model has layers 0 to {}", n_layer - 1)))
        };
        layers.into_iter().map(place).collect()
    }
}

#[pymethods]
impl RunLayers {
    /// All layers, but for what is named.
    #[new]
    #[pyo3(signature = (n_layer, *, skip_attn=None, skip_mlp=None, coarse_attn=None, coarse_mlp=None))]
    fn new(
        n_layer: usize,
        skip_attn: Option<Layers>,
        skip_mlp: Option<Layers>,
        coarse_attn: Option<Layers>,
        coarse_mlp: Option<Layers>,
    ) -> PyResult<Self> {
        // No model has more; a mistyped number must not take all memory.
        const MOST: usize = 4096;
        if !(1..=MOST).contains(&n_layer) {
            return Err(wrong(format!("n_layer {n_layer}: 1 to {MOST}")));
        }
        let mut mask = RunLayers(spec_run::RunLayers::all(n_layer));
        let changes: [(_, Change); 4] = [
            (coarse_attn, spec_run::RunLayers::coarse_attn),
            (coarse_mlp, spec_run::RunLayers::coarse_mlp),
            (skip_attn, spec_run::RunLayers::skip_attn),
            (skip_mlp, spec_run::RunLayers::skip_mlp),
        ];
        for (layers, change) in changes {
            if let Some(layers) = layers {
                mask = mask.change(layers, change)?;
            }
        }
        Ok(mask)
    }

    /// The first layers and the head.
    #[staticmethod]
    fn exit(n_layer: usize, layers: usize) -> PyResult<Self> {
        if !(1..=n_layer).contains(&layers) {
            return Err(wrong(format!("exit {layers}: 1 to {n_layer} layers")));
        }
        Ok(RunLayers(spec_run::RunLayers::exit(n_layer, layers)))
    }

    /// Layers in any order, repeated at will.
    #[staticmethod]
    fn steps(n_layer: usize, layers: Vec<usize>) -> PyResult<Self> {
        let steps = layers.into_iter().map(|layer| (layer, LayerBits::FULL));
        Ok(RunLayers(spec_run::RunLayers::from_steps(n_layer, steps).map_err(raised)?))
    }

    /// Without the attention of these layers.
    fn skip_attn(&self, layers: Layers) -> PyResult<Self> {
        self.change(layers, spec_run::RunLayers::skip_attn)
    }

    /// Without the MLPs of these layers.
    fn skip_mlp(&self, layers: Layers) -> PyResult<Self> {
        self.change(layers, spec_run::RunLayers::skip_mlp)
    }

    /// Without these layers.
    fn skip(&self, layers: Layers) -> PyResult<Self> {
        self.change(layers, |mask, layer| mask.skip_attn(layer).skip_mlp(layer))
    }

    /// With the attention of these layers from the high bits of its weights.
    fn coarse_attn(&self, layers: Layers) -> PyResult<Self> {
        self.change(layers, spec_run::RunLayers::coarse_attn)
    }

    /// With the MLPs of these layers from the high bits of their weights.
    fn coarse_mlp(&self, layers: Layers) -> PyResult<Self> {
        self.change(layers, spec_run::RunLayers::coarse_mlp)
    }

    /// With so many experts in these layers.
    fn experts(&self, layers: Layers, n: usize) -> PyResult<Self> {
        if !(1..=255).contains(&n) {
            return Err(wrong(format!("{n} experts: 1 to 255")));
        }
        let all = layers.of(self.0.n_layer())?;
        Ok(RunLayers(all.into_iter().fold(self.0.clone(), |mask, layer| mask.experts(layer, n))))
    }

    #[getter]
    fn n_layer(&self) -> usize {
        self.0.n_layer()
    }

    /// By layer, whether its attention runs.
    #[getter]
    fn attn(&self) -> Vec<bool> {
        self.which(|layer| self.0.runs_attn(layer))
    }

    /// By layer, whether its MLP runs.
    #[getter]
    fn mlp(&self) -> Vec<bool> {
        self.which(|layer| self.0.runs_mlp(layer))
    }

    /// Whether it is the whole model.
    #[getter]
    fn is_full(&self) -> bool {
        self.0.is_full()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.RunLayers {}>", self.0)
    }
}

/// A mask as people give it: a `RunLayers`, the path of a file (its first mask), or what such a file has, as a dict.
pub fn mask(given: Option<&Bound<'_, PyAny>>, n_layer: usize) -> PyResult<Option<spec_run::RunLayers>> {
    let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(None) };
    let mask = if let Ok(mask) = given.cast::<RunLayers>() {
        mask.get().0.clone()
    } else if given.is_instance_of::<PyDict>() {
        let json: String = given.py().import("json")?.call_method1("dumps", (given,))?.extract()?;
        first(&Skips::parse("mask", json.as_bytes(), n_layer).map_err(raised)?)?
    } else if given.is_instance_of::<PyString>() || given.hasattr("__fspath__")? {
        let path: PathBuf = given.extract()?;
        first(&Skips::read(path, n_layer).map_err(raised)?)?
    } else {
        let name = given.get_type().name()?;
        return Err(wrong(format!("mask: a RunLayers, a path or a dict is needed, not {name}")));
    };
    fits(&mask, n_layer)?;
    Ok(Some(mask))
}

/// The mask, if it is for as many layers.
pub fn fits(mask: &spec_run::RunLayers, n_layer: usize) -> PyResult<&spec_run::RunLayers> {
    match mask.n_layer() {
        of if of == n_layer => Ok(mask),
        of => Err(wrong(format!("mask: it is for {of} layers, the model has {n_layer}"))),
    }
}

fn first(skips: &Skips) -> PyResult<spec_run::RunLayers> {
    Ok(skips.pick(None).map_err(raised)?.mask.clone())
}

/// The masks of a file, by name, best first.
#[pyfunction]
pub fn read_masks(path: PathBuf, model: &Model) -> PyResult<Vec<(String, RunLayers)>> {
    let skips = Skips::read(path, model.model.n_layer()).map_err(raised)?;
    skips.check_model(&model.model.id()).map_err(raised)?;
    Ok(skips.masks.into_iter().map(|mask| (mask.name, RunLayers(mask.mask))).collect())
}

/// Writes a file of masks for a model, best first. What is known of a mask is a dict with `agreement`, `overlap`, `cost`,
/// `predicted` and `measured`; the last two are dicts of numbers.
#[pyfunction]
pub fn write_masks(
    path: PathBuf,
    model: &Model,
    masks: Vec<(String, RunLayers, String)>,
    provenance: &str,
) -> PyResult<()> {
    let named = |(name, mask, known): (String, RunLayers, String)| {
        let mut named = NamedMask::new(name, mask.0);
        let known: serde_json::Value =
            serde_json::from_str(&known).map_err(|e| wrong(format!("of a mask: {e}")))?;
        let number = |key: &str| known.get(key).and_then(serde_json::Value::as_f64);
        let numbers = |key: &str| known.get(key).and_then(|v| v.as_object()).cloned().unwrap_or_default();
        (named.agreement, named.overlap, named.cost) =
            (number("agreement"), number("overlap"), number("cost"));
        (named.predicted, named.measured) = (numbers("predicted"), numbers("measured"));
        Ok(named)
    };
    let masks = masks.into_iter().map(named).collect::<PyResult<Vec<_>>>()?;
    let provenance: serde_json::Value =
        serde_json::from_str(provenance).map_err(|e| wrong(format!("provenance: {e}")))?;
    Skips::new(model.model.id(), masks).write_with(path, Some(&provenance)).map_err(raised)
}
