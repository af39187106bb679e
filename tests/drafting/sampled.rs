//! A seed's text is llama.cpp's where the logits agree, and the same with drafts.

use crate::common::{
    context, fixture, load,
    samplers::{config, golden, ids},
};
use spec_run::{
    Gguf, Sampler, Tokenizer,
    generate::{Request, Speculation, generate, speculate},
    speculation::{Fixed, MaskProposer, NgramProposer, Proposer},
};
use std::ops::ControlFlow;

#[test]
fn seeds_give_llama_cpps_texts_with_drafts_and_without() {
    let test = "seeds_give_llama_cpps_texts_with_drafts_and_without";
    let Some(path) = fixture(test, "models/stories260K.gguf") else { return };
    let model = load(&path);
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
    let mut context = context(&model, |c| (c.n_ctx, c.threads) = (256, 1));
    for case in golden("texts") {
        let (prompt, expected) = (ids(&case["prompt"]), ids(&case["tokens"]));
        let request = Request { max_tokens: Some(expected.len()), ignore_eos: true, ..Request::new(&prompt) };
        let mut sampler = Sampler::new(config(&case, &tokenizer)).unwrap();
        let go_on = |_| Ok(ControlFlow::Continue(()));
        let plain = generate(&mut context, &tokenizer, &mut sampler, &request, go_on).unwrap();
        assert_eq!(plain.tokens, expected, "seed {}, {}", case["seed"], case["settings"]);
        let proposers: [Box<dyn Proposer>; 2] =
            [Box::new(MaskProposer::exit(model.n_layer(), 3)), Box::new(NgramProposer::new(1, 4))];
        for proposer in proposers {
            let mut sampler = Sampler::new(config(&case, &tokenizer)).unwrap();
            let mut speculation = Speculation { proposers: &mut [proposer], policy: &mut Fixed::default() };
            let go_on = |_| Ok(ControlFlow::Continue(()));
            let (drafted, report) =
                speculate(&mut context, &tokenizer, &mut sampler, &request, &mut speculation, go_on).unwrap();
            assert_eq!(drafted.tokens, expected, "drafted, seed {}, {}", case["seed"], case["settings"]);
            assert!(report.drafting.drafted > 0, "{report}");
        }
    }
}
