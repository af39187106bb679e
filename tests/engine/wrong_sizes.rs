//! Sizes of recurrent layers and latents that are not those of the tensors: the error names the key.

use crate::common::{fixture, parts::Parts};
use spec_run::{Gguf, Model};

/// The error for a file with one number changed.
fn refused(file: &Gguf, key: &str, number: u32) -> String {
    let arch = file.metadata().str("general.architecture").unwrap().unwrap();
    let full = format!("{arch}.{key}");
    assert!(file.metadata().u32(&full).unwrap().is_some_and(|now| now != number), "{full}");
    let file = Parts::of(file).with(&full, number).gguf("broken.gguf");
    Model::load(file.into()).err().unwrap_or_else(|| panic!("{full} {number} is taken")).to_string()
}

/// The key stands in the error by itself, or beside another that it does not go with.
fn is_named(file: &Gguf, (arch, key, number): (&str, &str, u32)) {
    let message = refused(file, key, number);
    let own = format!("`{arch}.{key}` is {number}");
    let itself = [";", ":", " and"].iter().any(|end| message.contains(&format!("{own}{end}")));
    let named = itself || message.contains(&format!("{key} {number}"));
    assert!(message.starts_with("broken.gguf: ") && named, "{arch}.{key} {number}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn the_key_of_a_size_that_does_not_fit_is_named() {
    const TEST: &str = "the_key_of_a_size_that_does_not_fit_is_named";
    let ssm = ["conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"];
    let ssm: Vec<String> = ssm.iter().map(|key| format!("ssm.{key}")).collect();
    let latent = [
        "attention.q_lora_rank",
        "attention.kv_lora_rank",
        "attention.key_length_mla",
        "attention.value_length_mla",
        "attention.head_count",
        "rope.dimension_count",
    ];
    let latent: Vec<String> = latent.map(str::to_owned).into();
    let convolution = ["shortconv.l_cache".to_owned()];
    let mut checked = 0;
    for (name, keys) in [
        ("qwen35", &ssm[..]),
        ("qwen35moe", &ssm),
        ("qwen3next", &ssm),
        ("mamba2", &ssm),
        ("falcon-h1", &ssm),
        ("granitehybrid", &ssm),
        ("nemotron_h", &ssm),
        ("lfm2", &convolution),
        ("lfm2moe", &convolution),
        ("deepseek2", &latent),
    ] {
        let Some(path) = fixture(TEST, &format!("archs/{name}.gguf")) else { return };
        let file = Gguf::open(&path).unwrap();
        let arch = file.metadata().str("general.architecture").unwrap().unwrap();
        for key in keys {
            let now = file.metadata().u32(&format!("{arch}.{key}")).unwrap().expect(key);
            // Half and double divide what the number divides; the others are just wrong.
            for number in [now / 2, 2 * now, now + 1, 0, u32::MAX, 1 << 30].into_iter().filter(|&n| n != now)
            {
                is_named(&file, (arch, key, number));
                checked += 1;
            }
        }
    }
    // Tensors have no groups of experts: they must divide these, and be enough for those that are chosen.
    let Some(path) = fixture(TEST, "archs/deepseek2.gguf") else { return };
    let file = Gguf::open(&path).unwrap();
    for (key, numbers) in
        [("expert_group_count", [3, 8, u32::MAX]), ("expert_group_used_count", [0, 5, u32::MAX])]
    {
        numbers.into_iter().for_each(|number| is_named(&file, ("deepseek2", key, number)));
    }
    assert!(checked > 200, "{checked}");
}
