//! Embeddings by all-MiniLM-L6-v2, against its own runtime.

use spec_run::{
    Context, ContextConfig, Embedder, Model,
    embed::{Pooling, cosine},
    tokenizer::EncodeOptions,
};

use crate::{MINILM, golden, ids, models, tokenizer};

#[test]
fn vectors_are_those_of_sentence_transformers() {
    for (_, path) in models("vectors_are_those_of_sentence_transformers", &[MINILM]) {
        let (tokenizer, golden) = (tokenizer(&path), golden("minilm.json"));
        let rows = golden.as_array().unwrap();
        assert!(rows.len() >= 15);
        let texts: Vec<Vec<u32>> = rows
            .iter()
            .map(|row| tokenizer.encode(row["text"].as_str().unwrap(), EncodeOptions::PROMPT))
            .collect();
        rows.iter()
            .zip(&texts)
            .for_each(|(row, text)| assert_eq!(*text, ids(&row["tokens"]), "{}", row["text"]));
        let model = Model::open(&path).unwrap();
        let mut config = ContextConfig { n_ctx: 512, ..ContextConfig::default() };
        Embedder::prepare(&mut config, &model);
        let mut embedder = Embedder::new(Context::new(model, &config).unwrap(), None).unwrap();
        assert_eq!((embedder.pooling(), embedder.width()), (Pooling::Mean, 384));
        let mut least = 1.0f64;
        for (row, made) in rows.iter().zip(embedder.embed(&texts).unwrap()) {
            let theirs: Vec<f32> = serde_json::from_value(row["vector"].clone()).unwrap();
            least = least.min(cosine(&made.vectors[0], &theirs));
        }
        println!("the least cosine is {least:.7}");
        assert!(least > 0.999_99, "{least}");
    }
}
