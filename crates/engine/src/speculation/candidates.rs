//! The draft sources for the texts of a context, and those to try on a model about which nothing is known.

use super::{
    ExitsProposer, HeadSource, MaskProposer, ModelSource, MtpProposer, NgramProposer, Proposer, TrainedSource,
};
use crate::{Context, RunLayers, head};

/// The draft sources for each text of a context.
#[derive(Clone, Default)]
pub struct Drafters {
    /// Lookups in the text so far.
    pub ngram: bool,
    /// A head that was fitted to the model.
    pub head: Option<HeadSource>,
    /// Another model.
    pub model: Option<ModelSource>,
    /// A head that others trained for the model. One pass can leave rows for one head only, so it excludes the others.
    pub trained: Option<TrainedSource>,
    /// The head that was trained to predict one token more.
    pub mtp: bool,
    /// Early exits, of which each token takes its own.
    pub exits: Option<ExitsProposer>,
    /// The model with some of its layers skipped or coarse.
    pub masks: Vec<MaskProposer>,
}

impl Drafters {
    /// All sources that suit a model about which nothing is known. A head next to the model's file that cannot be used is left out.
    pub fn all(context: &Context) -> Self {
        let model = context.model();
        let masks = masks_by_default(context);
        let mtp = context.has_mtp();
        // One pass cannot leave rows for both heads.
        let file = head::find_default(model).filter(|_| !mtp);
        let head = file.and_then(|file| HeadSource::open(&file, context).ok());
        Drafters { ngram: true, head, model: None, trained: None, mtp, exits: None, masks }
    }

    /// The same without drafts whose rows verification can go on from: it then begins with the first layer.
    pub fn keeping_nothing(self) -> Self {
        let exits = self.exits.map(ExitsProposer::keeping_nothing);
        let masks = self.masks.into_iter().map(MaskProposer::keeping_nothing).collect();
        Drafters { exits, masks, ..self }
    }

    /// The proposers for one text. Those that cost nothing come first, for policies that take the first offer.
    pub fn proposers(&self) -> Vec<Box<dyn Proposer>> {
        let mut all: Vec<Box<dyn Proposer>> = Vec::new();
        all.extend(self.ngram.then(|| Box::<NgramProposer>::default() as _));
        all.extend(self.head.iter().map(|head| Box::new(head.proposer()) as _));
        all.extend(self.model.iter().map(|model| Box::new(model.proposer()) as _));
        all.extend(self.trained.iter().map(TrainedSource::proposer));
        all.extend(self.mtp.then(|| Box::new(MtpProposer) as _));
        all.extend(self.exits.iter().map(|exits| Box::new(exits.clone()) as _));
        all.extend(self.masks.iter().map(|mask| Box::new(mask.clone()) as _));
        all
    }
}

/// Masks that leave out no layer. On real models, masks that leave some out cost more than they gained unless they were chosen for
/// the model, as `search` and flags do.
pub fn masks_by_default(context: &Context) -> Vec<MaskProposer> {
    let (n_layer, model) = (context.model().n_layer(), context.model());
    let all = masks(n_layer, context.has_planes(), model.experts_used());
    let is_whole = |mask: &RunLayers| (0..n_layer).all(|l| mask.runs_attn(l) && mask.runs_mlp(l));
    all.into_iter().filter(|mask| is_whole(mask.layers())).collect()
}

/// Masks to try. First all layers by their high bits alone, where the weights have them apart: the best draft that needs no
/// training and no search. Then also with layers in the middle skipped, where models can spare them most; without planes the
/// other layers run in full. With `experts` a token goes through half of them.
pub fn masks(n_layer: usize, planes: bool, experts: Option<usize>) -> Vec<MaskProposer> {
    let whole = RunLayers::all(n_layer);
    let coarse = (0..n_layer).fold(whole.clone(), |mask, l| mask.coarse_attn(l).coarse_mlp(l));
    let middle = (n_layer / 4).max(1)..n_layer.saturating_sub((n_layer / 8).max(1));
    let skip = |mask: &RunLayers, step: usize| {
        middle.clone().step_by(step).fold(mask.clone(), |mask, l| mask.skip_attn(l).skip_mlp(l))
    };
    let halved = |mask: &RunLayers, experts: usize| {
        (0..n_layer).fold(mask.clone(), |mask, l| mask.experts(l, experts / 2))
    };
    let mut masks = match planes {
        true => vec![
            ("coarse", coarse.clone()),
            ("coarse, every third skipped", skip(&coarse, 3)),
            ("coarse, middle skipped", skip(&coarse, 1)),
        ],
        false => vec![("middle skipped", skip(&whole, 1)), ("every second skipped", skip(&whole, 2))],
    };
    if let Some(experts) = experts.filter(|&experts| experts > 1) {
        masks.push(("half of the experts", halved(if planes { &coarse } else { &whole }, experts)));
    }
    masks.into_iter().filter(|(_, mask)| *mask != whole).map(|(n, m)| MaskProposer::new(n, m)).collect()
}

/// Early exits, which only models trained for them are good at.
pub fn exits(n_layer: usize) -> Vec<MaskProposer> {
    let mut layers: Vec<usize> = [n_layer / 4, n_layer * 3 / 8].into_iter().filter(|&e| e > 0).collect();
    layers.dedup();
    layers.into_iter().map(|e| MaskProposer::exit(n_layer, e)).collect()
}

/// Exits of which each token may take its own: after a quarter, three eighths and half of the layers.
pub fn exits_to_choose_from(n_layer: usize) -> Vec<usize> {
    let mut layers: Vec<usize> = [2, 3, 4]
        .map(|eighths| n_layer * eighths / 8)
        .into_iter()
        .filter(|&e| e > 0 && e < n_layer)
        .collect();
    layers.dedup();
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContextConfig, Model};

    #[test]
    fn nothing_leaves_out_a_layer_unless_somebody_chose_it() {
        let model = Model::embedded().unwrap();
        let context = Context::new(model.clone(), &ContextConfig::default()).unwrap();
        let drafters = Drafters::all(&context);
        assert!(drafters.ngram && drafters.exits.is_none());
        let names: Vec<String> = drafters.masks.iter().map(|mask| mask.info(&context).name).collect();
        assert_eq!(names, ["coarse"]);
        let n_layer = model.n_layer();
        assert!(
            drafters.masks.iter().all(|mask| {
                (0..n_layer).all(|l| mask.layers().runs_attn(l) && mask.layers().runs_mlp(l))
            })
        );
    }
}
