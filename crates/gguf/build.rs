//! Says whether the embedded model can be embedded: a checkout has its file, the package on crates.io is too small for it.

use std::{env, path::Path};

fn main() {
    // The directory, because a file that is missing would have this run, and all be compiled, every time.
    println!("cargo::rerun-if-changed=../../models");
    println!("cargo::rustc-check-cfg=cfg(embedded_model)");
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let model = Path::new(&root).join("../../models/stories13m-q8_0.gguf");
    if env::var_os("CARGO_FEATURE_EMBEDDED_MODEL").is_some() && model.exists() {
        println!("cargo::rustc-cfg=embedded_model");
    }
}
