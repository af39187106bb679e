//! Tokens without bytes, of which Qwen's vocabulary has hundreds.

use spec_run::{
    Tokenizer,
    constraint::{Grammar, Vocabulary},
    sampler::Rule,
};

/// Holds that no grammar can choose one, except where it ends a text. How often one was refused.
pub fn are_never_chosen(name: &str, tokenizer: &Tokenizer) -> usize {
    let mut refused = 0;
    let vocabulary = Vocabulary::new(tokenizer).unwrap_or_else(|e| panic!("{name}: {e}"));
    for grammar in [Grammar::Json, Grammar::Gbnf("root ::= .*".into())] {
        let mut constraint = vocabulary.compile(&grammar).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        constraint.mask(&[], &mut logits);
        assert!(constraint.fault().is_none() && logits.contains(&0.0), "{name}: {grammar:?} allows nothing");
        let silent = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.piece(id).is_empty());
        for id in silent.filter(|&id| !tokenizer.is_eog(id)) {
            assert!(logits[id as usize] < 0.0, "{name}: {grammar:?} allows token {id}");
            refused += 1;
        }
    }
    refused
}
