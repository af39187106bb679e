//! Embeddings of every kind of encoder, and of decoders, against llama.cpp on tiny random models; and a vector's bits, which
//! are the same alone and in company.

use spec_run::{
    Batch, Context, ContextConfig, Embedder, Error,
    context::Isa,
    embed::{Pooling, cosine},
};

use crate::common::{
    bits,
    embeddings::{allowed, embedder, farthest, golden, model},
    parts::Parts,
};

#[test]
fn embeddings_are_llama_cpps() {
    let golden = golden();
    for name in golden.names() {
        let model = model(name);
        for pooling in Pooling::ALL {
            let Some(expected) = golden.vectors(name, pooling) else { continue };
            let mut embedder = embedder(&model, Some(pooling), |_| {});
            let made = embedder.embed(&golden.texts[..expected.len()]).unwrap();
            for (made, text) in made.iter().zip(&golden.texts) {
                assert_eq!(made.tokens, text.len());
                assert!(made.vectors.iter().all(|vector| vector.len() == embedder.width()), "{name}");
            }
            let worst = farthest(&made, &expected);
            println!("{name}, {}: {worst:.1e}", pooling.name());
            assert!(worst < allowed(name), "{name}, {pooling:?}: {worst}");
        }
    }
}

/// Alone, with all others, in passes of few tokens, with other threads and on every tier: the same bits.
#[test]
fn a_vector_has_the_same_bits_alone_and_in_company() {
    let golden = golden();
    for name in golden.names() {
        let model = model(name);
        let texts = &golden.texts[..golden.vectors(name, Pooling::Mean).unwrap().len()];
        let all = |embedder: &mut Embedder, texts: &[Vec<u32>]| -> Vec<Vec<Vec<u32>>> {
            let made = embedder.embed(texts).unwrap();
            made.iter().map(|made| made.vectors.iter().map(|vector| bits(vector)).collect()).collect()
        };
        for pooling in [Pooling::None, Pooling::Mean] {
            let mut one = embedder(&model, Some(pooling), |config| config.n_ubatch = 512);
            let alone: Vec<_> =
                texts.iter().flat_map(|text| all(&mut one, std::slice::from_ref(text))).collect();
            assert!(all(&mut one, texts) == alone, "{name}: together");
            let turned: Vec<_> = texts.iter().rev().cloned().collect();
            assert!(all(&mut one, &turned).into_iter().rev().eq(alone.clone()), "{name}: backwards");
            for isa in Isa::available() {
                let mut other = embedder(&model, Some(pooling), |config| {
                    (config.isa, config.threads, config.n_ubatch) = (Some(isa), 3, 310);
                });
                assert!(all(&mut other, texts) == alone, "{name}: {isa}, few tokens at once");
            }
            // What sees only backwards may come in pieces.
            if !model.sees_both_ways() {
                let mut pieces = embedder(&model, Some(pooling), |config| config.n_ubatch = 7);
                assert!(all(&mut pieces, texts) == alone, "{name}: in pieces");
            }
        }
    }
}

/// A token far behind changes the first row where a text is seen both ways, and only there; beyond a window it does not.
#[test]
fn rows_see_what_comes_behind_them() {
    let first_row = |name: &str, last: u32| {
        let mut text: Vec<u32> = (0..40).map(|i| 5 + i % 50).collect();
        text[39] = last;
        let mut embedder = embedder(&model(name), Some(Pooling::Cls), |_| {});
        embedder.embed(&[text]).unwrap().remove(0).vectors.remove(0)
    };
    for (name, sees) in [("bert", true), ("modern-bert", true), ("gemma-embedding", true), ("qwen3", false)] {
        assert_eq!(first_row(name, 9) != first_row(name, 10), sees, "{name}");
    }
}

#[test]
fn what_cannot_be_embedded_is_refused_in_one_line() {
    let model = model("bert");
    let mut embedder = embedder(&model, None, |config| config.n_ubatch = 32);
    let said = |result: Result<Vec<_>, Error>| {
        let said = result.expect_err("it must be refused").to_string();
        assert!(!said.contains('\n'), "{said}");
        said
    };
    let long = said(embedder.embed(&[vec![5; 33]]));
    assert!(
        long.contains("33 tokens") && long.contains("too large") && long.contains("`n_ubatch`"),
        "{long}"
    );
    assert!(said(embedder.embed(&[vec![5], vec![]])).contains("an empty text"));
    assert!(said(embedder.embed(&[vec![5, 9999]])).contains("9999"));
    let made = embedder.embed(&[vec![5; 32]]).unwrap();
    assert!((cosine(&made[0].vectors[0], &made[0].vectors[0]) - 1.0).abs() < 1e-9);
    // No head that ranks, and no head for logits.
    let context =
        || Context::new(model.clone(), &ContextConfig { n_ctx: 64, ..ContextConfig::default() }).unwrap();
    let rank = Embedder::new(context(), Some(Pooling::Rank)).err().unwrap().to_string();
    assert!(rank.contains("no head") && rank.contains("bert.gguf"), "{rank}");
    let mut context = context();
    let logits = context.decode(&Batch::prompt(&[5, 6], 0, 0)).unwrap_err().to_string();
    assert!(logits.contains("gives no logits"), "{logits}");
    let mut batch = Batch::new();
    batch.push(5, 0, 0, false);
    context.decode(&batch).unwrap();
    batch.rows[0].pos = 1;
    let again = context.decode(&batch).unwrap_err().to_string();
    assert!(again.contains("evaluate it whole"), "{again}");
}

/// XLM-RoBERTa has one type of tokens, and files leave the table's second side out then.
#[test]
fn a_table_of_one_type_may_be_a_vector() {
    let whole = model("bert");
    let mut parts = Parts::of(&whole.gguf);
    let types = parts.tensor("token_types.weight");
    types.shape.truncate(1);
    types.bytes.truncate(types.bytes.len() / 2);
    let vector = parts.model("one type");
    let text = &golden().texts[..1];
    let made = |model| embedder(model, None, |_| {}).embed(text).unwrap();
    assert_eq!(made(&vector), made(&whole));
}

/// Of a chat model the mean is taken, unless its file says otherwise.
#[test]
fn how_rows_are_pooled_is_as_the_file_says_or_the_mean() {
    let pooling = |name: &str| embedder(&model(name), None, |_| {}).pooling();
    assert_eq!([pooling("qwen3"), pooling("bert")], [Pooling::Mean; 2]);
    assert_eq!(pooling("qwen3-rank"), Pooling::Rank);
}
