//! Lists the files: a new one needs no line elsewhere.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rerun-if-changed=.");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut texts = Vec::new();
    find(&root, &root, &mut texts);
    texts.sort();
    let entries = texts.iter().map(|(name, path)| format!("    ({name:?}, include_str!({path:?})),\n"));
    let list = format!("static TEXTS: &[(&str, &str)] = &[\n{}];\n", entries.collect::<String>());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("texts.rs"), list).expect("the folder for what is built can be written to");
}

/// Names as `common/halves`, with `/` on every system, and where the files are.
fn find(root: &Path, folder: &Path, texts: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).expect("the package's folder can be read") {
        let path = entry.expect("the package's folder can be read").path();
        if path.is_dir() {
            find(root, &path, texts);
        } else if path.extension().is_some_and(|ext| ext == "wgsl") {
            let below = path.strip_prefix(root).expect("found below it").with_extension("");
            let name: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
            texts.push((name.join("/"), path));
        }
    }
}
