//! Which sublayers of a model run, and in which order: a mask, or a list of steps.

use std::{collections::BTreeMap, fmt, ops::BitOr, str::FromStr};

use crate::{Error, Result};

/// What to run of one layer: a small bit set, and how many experts a token goes through. A coarse bit qualifies the run
/// bit beside it ("from the high planes of the weights only") and means nothing without it, nor do experts without the
/// MLP.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct LayerBits(u16);

impl LayerBits {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The attention.
    pub const ATTN: Self = Self(1);
    /// The MLP.
    pub const MLP: Self = Self(2);
    /// The attention from its high planes, with [`LayerBits::ATTN`].
    pub const COARSE_ATTN: Self = Self(4);
    /// The MLP from its high planes, with [`LayerBits::MLP`].
    pub const COARSE_MLP: Self = Self(8);
    /// Both sublayers, from all their bits.
    pub const FULL: Self = Self(3);
    /// Where the number of experts stands; 0 is as many as the model takes.
    const EXPERTS: Self = Self(0xff00);

    /// So many of the best experts in the MLP, with [`LayerBits::MLP`]: where a layer takes no more than these, it
    /// runs as it always does.
    ///
    /// # Panics
    /// If there are none, or more than 255.
    pub fn experts(n: usize) -> Self {
        assert!((1..=255).contains(&n), "{n} experts");
        Self((n as u16) << 8)
    }

    /// Whether a number of experts is told.
    pub fn contains_experts(self) -> bool {
        self.n_experts().is_some()
    }

    fn n_experts(self) -> Option<usize> {
        Some(usize::from(self.0 >> 8)).filter(|&n| n > 0)
    }

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that `other` does not have.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Equal sets for equal work: no coarse bit beside a sublayer that does not run.
    fn canonical(self) -> Self {
        let runs = self.0 & Self::FULL.0;
        let experts = if self.contains(Self::MLP) { self.0 & Self::EXPERTS.0 } else { 0 };
        Self(runs | (self.0 & (runs << 2)) | experts)
    }
}

impl BitOr for LayerBits {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One visit to a layer. At least one of `attn` and `mlp` is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The layer.
    pub layer: usize,
    /// Which of the layer's own K/V the attention of this step reads and writes: 0 where the layer's attention
    /// runs for the first time (the K/V it shares with the full model), 1 for the second, and so on.
    pub repetition: usize,
    /// Run the attention.
    pub attn: bool,
    /// Run the MLP.
    pub mlp: bool,
    /// Run the attention sublayer from the high planes of its weights, where they have planes.
    pub coarse_attn: bool,
    /// The same for the MLP.
    pub coarse_mlp: bool,
    /// The most experts that the MLP takes, if not as many as the model does.
    pub experts: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct MaskedVisit {
    layer: u32,
    repetition: u32,
    bits: LayerBits,
}

/// What of each layer to run.
///
/// Usually a mask: every layer once, in order, with its [`LayerBits`]. The research form is a list of steps:
/// any layers, in any order, repeated at will. Two values are equal if and only if they run the same work.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunLayers {
    n_layer: usize,
    /// A mask has exactly one visit for each layer, in order, also for those it skips altogether.
    /// A step list has no empty visits.
    visits: Vec<MaskedVisit>,
    is_mask: bool,
}

/// The longest list of steps: each repetition has its own keys and values, and each step its time.
pub const MOST_STEPS: usize = 4096;

impl RunLayers {
    /// Everything, in full. `n_layer` comes from a model whose tensors have been found, so it is small.
    pub fn all(n_layer: usize) -> Self {
        Self::mask(vec![LayerBits::FULL; n_layer])
    }

    /// A mask from the bits of the layers in order.
    pub fn mask(bits: Vec<LayerBits>) -> Self {
        let visits = (0u32..)
            .zip(&bits)
            .map(|(layer, bits)| MaskedVisit { layer, repetition: 0, bits: bits.canonical() })
            .collect();
        Self { n_layer: bits.len(), visits, is_mask: true }
    }

    /// The first `layers` layers and the head, if there are as many.
    pub fn exit(n_layer: usize, layers: usize) -> Self {
        Self::mask((0..n_layer).map(|l| if l < layers { LayerBits::FULL } else { LayerBits::NONE }).collect())
    }

    /// An explicit list of steps. One that visits layers in order, none twice, is the same as a mask.
    pub fn from_steps(n_layer: usize, steps: impl IntoIterator<Item = (usize, LayerBits)>) -> Result<Self> {
        let mut list = Vec::new();
        for (position, (layer, bits)) in steps.into_iter().enumerate() {
            if position >= MOST_STEPS {
                return Err(Error::Mask(format!("a list of more than {MOST_STEPS} steps: shorten it")));
            }
            check_layer(layer as u64, n_layer, || format!("step {position} of the list of steps"))?;
            list.push((layer, bits));
        }
        Ok(Self::from_checked(n_layer, list))
    }

    fn from_checked(n_layer: usize, mut list: Vec<(usize, LayerBits)>) -> Self {
        list.retain_mut(|(_, bits)| {
            *bits = bits.canonical();
            *bits != LayerBits::NONE
        });
        if list.is_sorted_by(|a, b| a.0 < b.0) {
            let mut bits = vec![LayerBits::NONE; n_layer];
            list.into_iter().for_each(|(layer, b)| bits[layer] = b);
            return Self::mask(bits);
        }
        let mut attn_runs = vec![0; n_layer];
        let visits = list
            .into_iter()
            .map(|(layer, bits)| {
                let repetition = attn_runs[layer];
                attn_runs[layer] += u32::from(bits.contains(LayerBits::ATTN));
                MaskedVisit { layer: layer as u32, repetition, bits }
            })
            .collect();
        Self { n_layer, visits, is_mask: false }
    }

    /// Leaves out the attention of `layer`, wherever it occurs.
    ///
    /// # Panics
    /// This and the three below panic if the model has no such layer; [`LayerList::resolve`] checks input.
    pub fn skip_attn(self, layer: usize) -> Self {
        self.with(layer, LayerBits::ATTN | LayerBits::COARSE_ATTN, LayerBits::NONE)
    }

    /// Leaves out the MLP of `layer`, wherever it occurs.
    pub fn skip_mlp(self, layer: usize) -> Self {
        self.with(layer, LayerBits::MLP | LayerBits::COARSE_MLP | LayerBits::EXPERTS, LayerBits::NONE)
    }

    /// Runs the attention of `layer` from its high planes, also where it was skipped before.
    pub fn coarse_attn(self, layer: usize) -> Self {
        self.with(layer, LayerBits::NONE, LayerBits::ATTN | LayerBits::COARSE_ATTN)
    }

    /// Runs the MLP of `layer` from its high planes, also where it was skipped before.
    pub fn coarse_mlp(self, layer: usize) -> Self {
        self.with(layer, LayerBits::NONE, LayerBits::MLP | LayerBits::COARSE_MLP)
    }

    /// Runs the MLP of `layer` with its `n` best experts, also where it was skipped before.
    ///
    /// # Panics
    /// Also if there are no experts, or more than 255.
    pub fn experts(self, layer: usize, n: usize) -> Self {
        self.with(layer, LayerBits::EXPERTS, LayerBits::MLP | LayerBits::experts(n))
    }

    fn with(mut self, layer: usize, remove: LayerBits, add: LayerBits) -> Self {
        assert!(layer < self.n_layer, "layer {layer} of a model with {} layers", self.n_layer);
        let change = |bits: LayerBits| bits.without(remove) | add;
        if self.is_mask {
            let bits = &mut self.visits[layer].bits;
            *bits = change(*bits);
            return self;
        }
        let list = self.visits.iter().map(|v| {
            let l = v.layer as usize;
            (l, if l == layer { change(v.bits) } else { v.bits })
        });
        Self::from_checked(self.n_layer, list.collect())
    }

    /// Layers of the model that it is for.
    pub fn n_layer(&self) -> usize {
        self.n_layer
    }

    /// What to run, in order; sublayers that are skipped do not appear.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.visits.iter().filter(|v| v.bits != LayerBits::NONE).map(|v| Step {
            layer: v.layer as usize,
            repetition: v.repetition as usize,
            attn: v.bits.contains(LayerBits::ATTN),
            mlp: v.bits.contains(LayerBits::MLP),
            coarse_attn: v.bits.contains(LayerBits::COARSE_ATTN),
            coarse_mlp: v.bits.contains(LayerBits::COARSE_MLP),
            experts: v.bits.n_experts(),
        })
    }

    /// Every sublayer, in full, in order: the same as no mask at all.
    pub fn is_full(&self) -> bool {
        self.is_mask && self.visits.iter().all(|v| v.bits == LayerBits::FULL)
    }

    /// How many layers run in full, from the first on, before anything else does: up to there it is the full model.
    pub fn full_prefix(&self) -> usize {
        let in_full =
            |(layer, v): &(usize, &MaskedVisit)| v.layer as usize == *layer && v.bits == LayerBits::FULL;
        self.visits.iter().enumerate().take_while(in_full).count()
    }

    /// Each layer at most once and in order. False for the research form.
    pub fn is_mask(&self) -> bool {
        self.is_mask
    }

    /// Whether the attention of `layer` runs.
    pub fn runs_attn(&self, layer: usize) -> bool {
        self.runs(layer, LayerBits::ATTN)
    }

    /// Whether the MLP of `layer` runs.
    pub fn runs_mlp(&self, layer: usize) -> bool {
        self.runs(layer, LayerBits::MLP)
    }

    fn runs(&self, layer: usize, what: LayerBits) -> bool {
        match self.is_mask {
            true => self.visits.get(layer).is_some_and(|v| v.bits.contains(what)),
            false => self.visits.iter().any(|v| v.layer as usize == layer && v.bits.contains(what)),
        }
    }

    /// Whether anything runs from its high planes.
    pub fn has_coarse(&self) -> bool {
        self.steps().any(|s| s.coarse_attn || s.coarse_mlp)
    }

    /// The layers of a mask whose MLPs take fewer experts, by their number.
    pub fn layers_by_experts(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut layers = BTreeMap::<usize, Vec<usize>>::new();
        for step in self.steps() {
            if let Some(n) = step.experts {
                layers.entry(n).or_default().push(step.layer);
            }
        }
        layers
    }

    /// Whether some MLP takes fewer experts than the model.
    pub fn has_experts(&self) -> bool {
        self.steps().any(|s| s.experts.is_some())
    }

    /// How often the attention of `layer` runs, each time with K/V of its own.
    pub fn repetitions(&self, layer: usize) -> usize {
        self.steps().filter(|s| s.layer == layer && s.attn).count()
    }

    /// The most K/V any layer needs: 1 for every mask, more where steps repeat a layer's attention.
    pub fn max_repetitions(&self) -> usize {
        self.steps().filter(|s| s.attn).map(|s| s.repetition + 1).max().unwrap_or(1)
    }

    /// The K/V needed beyond the one that every layer has, summed over the layers.
    pub fn extra_repetitions(&self) -> usize {
        self.steps().filter(|s| s.attn && s.repetition > 0).count()
    }
}

impl fmt::Display for RunLayers {
    /// `attn skips 3,5-8; mlp skips 2`, or `steps 0-2,1,2:attn,3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_full() {
            return write!(f, "all {} layers", self.n_layer);
        }
        if !self.is_mask {
            return write!(f, "steps {}", StepRuns(&self.visits));
        }
        let mut separator = "";
        for (label, has, lacks) in [
            ("attn skips", LayerBits::NONE, LayerBits::ATTN),
            ("mlp skips", LayerBits::NONE, LayerBits::MLP),
            ("attn coarse", LayerBits::COARSE_ATTN, LayerBits::NONE),
            ("mlp coarse", LayerBits::COARSE_MLP, LayerBits::NONE),
        ] {
            let listed = self
                .visits
                .iter()
                .filter(|v| v.bits.contains(has) && (lacks == LayerBits::NONE || !v.bits.contains(lacks)));
            let layers: Vec<_> = listed.map(|v| v.layer as usize).collect();
            if !layers.is_empty() {
                write!(f, "{separator}{label} {}", ranges(&layers))?;
                separator = "; ";
            }
        }
        for (n, layers) in self.layers_by_experts() {
            write!(f, "{separator}{n} expert{} in {}", if n == 1 { "" } else { "s" }, ranges(&layers))?;
            separator = "; ";
        }
        Ok(())
    }
}

struct StepRuns<'a>(&'a [MaskedVisit]);

impl fmt::Display for StepRuns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same_run = |a: &MaskedVisit, b: &MaskedVisit| a.bits == b.bits && a.layer + 1 == b.layer;
        for (i, run) in self.0.chunk_by(same_run).enumerate() {
            let layers: Vec<_> = run.iter().map(|v| v.layer as usize).collect();
            write!(f, "{}{}", if i == 0 { "" } else { "," }, ranges(&layers))?;
            let bits = run[0].bits;
            if bits != LayerBits::FULL {
                let parts = [
                    ("attn", LayerBits::ATTN, LayerBits::COARSE_ATTN),
                    ("mlp", LayerBits::MLP, LayerBits::COARSE_MLP),
                ];
                let parts = parts.iter().filter(|(_, runs, _)| bits.contains(*runs));
                let names: Vec<_> = parts
                    .map(
                        |(name, _, coarse)| {
                            if bits.contains(*coarse) { format!("{name}~") } else { name.to_string() }
                        },
                    )
                    .collect();
                write!(f, ":{}", names.join("+"))?;
                if let Some(n) = bits.n_experts() {
                    write!(f, "/{n}")?;
                }
            }
        }
        Ok(())
    }
}

/// `3,5-8` from ascending layers.
pub fn ranges(layers: &[usize]) -> String {
    let runs = layers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Layers as written on the command line: `3,5-8`, ranges inclusive. Parsed before the model is open; the
/// ranges are only spelt out, by [`LayerList::resolve`], once its number of layers is known. Or `all`; or `each`:
/// every layer by itself, one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerList(Layers);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Layers {
    All,
    Each,
    Ranges(Vec<(u64, u64)>),
}

impl FromStr for LayerList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |item: &str| {
            let number = |digits: &str| {
                let digits = digits.trim();
                let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                let value = is_number.then(|| digits.parse::<u64>().ok()).flatten();
                value.ok_or_else(|| format!("`{}`: write layers and ranges, as in 3,5-8", item.trim()))
            };
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last) = (number(first)?, number(last)?);
            match first <= last {
                true => Ok((first, last)),
                false => Err(format!("{first}-{last} ends before it begins: write {last}-{first}")),
            }
        };
        match text.trim() {
            "all" => return Ok(Self(Layers::All)),
            "each" => return Ok(Self(Layers::Each)),
            _ => (),
        }
        text.split(',').map(range).collect::<Result<_, _>>().map(|ranges| Self(Layers::Ranges(ranges)))
    }
}

impl LayerList {
    /// Every layer by itself: several masks in place of one.
    pub fn is_each(&self) -> bool {
        self.0 == Layers::Each
    }

    /// The layers, ascending and without duplicates; an error names the flag and a layer that is not there.
    pub fn resolve(&self, flag: &str, n_layer: usize) -> Result<Vec<usize>> {
        let ranges = match &self.0 {
            Layers::All => return Ok((0..n_layer).collect()),
            Layers::Ranges(ranges) => ranges,
            Layers::Each => {
                return Err(Error::Usage(format!(
                    "{flag} each: only `spec-run perplexity` goes through the layers one by one; name them, as in 3,5-8"
                )));
            }
        };
        let mut named = vec![false; n_layer];
        for &(first, last) in ranges {
            check_layer(last, n_layer, || flag.to_string())?;
            named[first as usize..=last as usize].fill(true);
        }
        Ok((0..n_layer).filter(|&layer| named[layer]).collect())
    }
}

/// A layer from input; `origin` says where it stood.
pub fn check_layer(layer: u64, n_layer: usize, origin: impl FnOnce() -> String) -> Result<usize> {
    match usize::try_from(layer) {
        Ok(layer) if layer < n_layer => Ok(layer),
        _ if n_layer == 0 => {
            Err(Error::Mask(format!("{}: layer {layer} does not exist: the model has no layers", origin())))
        }
        _ => Err(Error::Mask(format!(
            "{}: layer {layer} does not exist: the model has {n_layer} layers, 0 to {}; remove it or use a mask made for this model",
            origin(),
            n_layer - 1
        ))),
    }
}
