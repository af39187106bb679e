//! A head made of noise.

use std::sync::Arc;

use spec_run::{
    Context, Model,
    head::{Head, HeadShape, Made, Tables, Weights},
    speculation::HeadSource,
};

/// Right now and then, since it proposes what the text is made of. `None` for models that have none.
pub fn head(model: &Arc<Model>) -> Option<(Head, Arc<Tables>)> {
    let shape = HeadShape::of(model).ok()?;
    let tables = Arc::new(Tables::new(model.clone()));
    let mut weights = Weights::zero(shape);
    let mut state = 9u32;
    for x in weights.numbers_mut() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *x = 0.1 * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0);
    }
    let tokens = (0..8.min(model.n_vocab() as u32)).collect();
    let head = Head { weights, tokens, embedding_rms: tables.embedding_rms(), made: Made::default() };
    Some((head, tables))
}

/// The same, ready for a context.
pub fn source(model: &Arc<Model>, context: &Context) -> Option<HeadSource> {
    let (head, tables) = head(model)?;
    Some(HeadSource::new(&head, tables, context).unwrap())
}
