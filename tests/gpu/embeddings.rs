//! Embeddings on the GPU: llama.cpp's numbers, and the same bits alone and in company.

use spec_run::{Context, ContextConfig, Model, context::Device, embed::Pooling};

use crate::common::{
    bits,
    embeddings::{allowed, embedder, farthest, golden, model},
    gpu,
};

#[test]
fn embeddings_are_llama_cpps_and_the_same_in_company() {
    const TEST: &str = "embeddings_are_llama_cpps_and_the_same_in_company";
    let Some(device) = gpu::device(TEST) else { return };
    let golden = golden();
    let here = |model: &Model| model.arch != "jina-bert-v2";
    for name in golden.names() {
        let model = model(name);
        if !here(&model) {
            continue;
        }
        let expected = golden.vectors(name, Pooling::Mean).unwrap();
        let texts = &golden.texts[..expected.len()];
        let mut embedder = embedder(&model, Some(Pooling::Mean), |config| {
            config.device = Device::Named(device.clone());
        });
        let made = embedder.embed(texts).unwrap();
        let worst = farthest(&made, &expected);
        println!("{name}: {worst:.1e}");
        assert!(worst < allowed(name), "{name}: {worst}");
        for (text, made) in texts.iter().zip(&made) {
            let alone = embedder.embed(&[text]).unwrap();
            assert!(bits(&alone[0].vectors[0]) == bits(&made.vectors[0]), "{name}");
        }
    }
}

#[test]
fn what_the_kernels_do_not_know_is_said_in_a_line() {
    let Some(device) = gpu::device("what_the_kernels_do_not_know_is_said_in_a_line") else { return };
    let config = ContextConfig { n_ctx: 64, device: Device::Named(device), ..ContextConfig::default() };
    let said = Context::new(model("jina-bert-v2"), &config).err().unwrap().to_string();
    assert!(said.contains("ALiBi") && said.contains("`device` cpu") && !said.contains('\n'), "{said}");
}
