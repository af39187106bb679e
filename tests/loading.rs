//! What loading takes of the memory. A test program of its own, since it looks at the whole process.

use std::{fs, ops::ControlFlow, process::Command, sync::Arc};

use spec_run::{
    Context, ContextConfig, Gguf, Model, Sampler, Tokenizer,
    context::Planes,
    generate::{Request, generate},
    sampler::SamplerConfig,
};

/// Bytes of `key` (VmHWM: the most that was resident) of this process.
fn status(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[test]
fn packing_never_holds_more_than_a_little_over_the_file() {
    // Wine shows the file of Linux, with numbers that mean nothing.
    let Some(before) = status("VmHWM").filter(|_| cfg!(target_os = "linux")) else {
        eprintln!(
            "NOT RUN: packing_never_holds_more_than_a_little_over_the_file: only Linux has /proc/self/status"
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let made = Command::new(env!("CARGO_BIN_EXE_spec-run"))
        .args(["synth", "--like", "llama-1b", "--layers", "4", "--quant", "q8_0", "-o"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = fs::metadata(&path).unwrap().len();
    assert!(file > 200 << 20, "large enough that the rest of the process does not matter");

    let open_with = |set: fn(&mut ContextConfig)| {
        let model = Arc::new(Model::load(Arc::new(Gguf::open(&path).unwrap())).unwrap());
        let mut config = ContextConfig { n_ctx: 64, n_ubatch: 16, ..ContextConfig::default() };
        set(&mut config);
        Context::new(model, &config).unwrap()
    };
    let from_map = open_with(|config| config.planes = None);
    let mapped = status("VmHWM").unwrap() - before;
    assert!(mapped < file / 4, "without packing nothing is read: {mapped} of {file} bytes");
    drop(from_map);

    let packed = open_with(|config| config.planes = Some(Planes::Cheap));
    let peak = status("VmHWM").unwrap() - before;
    assert!(peak as f64 > 0.8 * file as f64, "the measure sees the weights: {peak} of {file} bytes");
    assert!(peak as f64 <= 1.15 * file as f64, "{peak} bytes for a file of {file}");
    drop(packed);

    let sooner = open_with(|config| config.pack_later = true);
    texts_begin_before_weights_are_packed(sooner);
    let peak = status("VmHWM").unwrap() - before;
    assert!(peak as f64 <= 1.15 * file as f64, "{peak} bytes for a file of {file}, packed between passes");

    // As the program does it.
    for (tokens, packs) in [("1", false), ("3", true)] {
        let ran = Command::new(env!("CARGO_BIN_EXE_spec-run"))
            .args(["-p", "Hello", "--temp", "0", "--ignore-eos", "--json", "--no-learn", "-n", tokens, "-m"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let made: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(made["repack_seconds"].as_f64().unwrap() > 0.0, packs, "{made}");
    }
}

/// The prompt goes through the weights as they are in the file; what comes behind it is the same text.
fn texts_begin_before_weights_are_packed(mut context: Context) {
    let tokenizer = Tokenizer::from_gguf(&context.model().gguf).unwrap();
    let mut text = |max_tokens: usize| {
        let prompt: Vec<u32> = (5..13).collect();
        let request = Request { max_tokens: Some(max_tokens), ignore_eos: true, ..Request::new(&prompt) };
        let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
        let go_on = |_| Ok(ControlFlow::Continue(()));
        let made = generate(&mut context, &tokenizer, &mut sampler, &request, go_on).unwrap();
        (made, context.is_packed())
    };
    let (first, packed) = text(1);
    assert!(!packed && first.packing_seconds == 0.0, "one token needs nothing packed");
    // Long enough for a build without optimization, which packs slowly, on a busy machine.
    let (early, packed) = text(48);
    assert!(packed && early.packing_seconds > 0.0);
    let (late, _) = text(48);
    assert!(late.packing_seconds == 0.0);
    assert_eq!(early.tokens, late.tokens);
}
