//! What loading takes of the memory. A test program of its own, since it looks at the whole process.

use std::{fs, process::Command, sync::Arc};

use spec_run::{Context, ContextConfig, Gguf, Model, context::Planes};

/// Bytes of `key` (VmHWM: the most that was resident) of this process.
fn status(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[test]
fn packing_never_holds_more_than_a_little_over_the_file() {
    let Some(before) = status("VmHWM") else {
        eprintln!("SKIPPED packing_never_holds_more_than_a_little_over_the_file: no /proc/self/status here");
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

    let open = |planes| {
        let model = Arc::new(Model::load(Arc::new(Gguf::open(&path).unwrap())).unwrap());
        let config = ContextConfig { n_ctx: 16, n_ubatch: 16, planes, ..ContextConfig::default() };
        Context::new(model, &config).unwrap()
    };
    let from_map = open(None);
    let mapped = status("VmHWM").unwrap() - before;
    assert!(mapped < file / 4, "without packing nothing is read: {mapped} of {file} bytes");
    drop(from_map);

    let packed = open(Some(Planes::Cheap));
    let peak = status("VmHWM").unwrap() - before;
    assert!(peak as f64 > 0.8 * file as f64, "the measure sees the weights: {peak} of {file} bytes");
    assert!(peak as f64 <= 1.15 * file as f64, "{peak} bytes for a file of {file}");
    drop(packed);
}
