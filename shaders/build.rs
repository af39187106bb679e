//! Lists the files, and makes structs of the parameters that shaders declare: a new one needs no line elsewhere.

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
    let structs: String = texts.iter().filter_map(|(name, path)| params(name, path)).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for (file, text) in [("texts.rs", list), ("params.rs", structs)] {
        fs::write(out.join(file), text).expect("the folder for what is built can be written to");
    }
}

/// What a shader calls `Params`, as a struct that is named after its file and has the same bytes.
fn params(name: &str, path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).expect("the package's files can be read");
    let (fields, _) = text.split_once("struct Params {")?.1.split_once('}')?;
    let (mut rust, mut bytes) = (String::new(), 0);
    for line in fields.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("//") {
            rust += &format!("    ///{comment}\n");
            continue;
        }
        let (field, kind) = line.trim_end_matches(',').split_once(": ").expect("a field with its type");
        let (kind, size) = match kind {
            "u32" | "f32" => (kind, 4),
            "vec4<f32>" => ("[f32; 4]", 16),
            _ => panic!("{name}: {field} is a {kind}, whose bytes are not known here"),
        };
        assert_eq!(bytes % size, 0, "{name}: WGSL leaves a gap before {field}, and Rust does not");
        bytes += size;
        rust += &format!("    pub {field}: {kind},\n");
    }
    let words = name.rsplit('/').next().expect("a name").split('_');
    let camel: String = words.map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    Some(format!(
        "/// The parameters of `{name}.wgsl`.\n#[derive(Clone, Copy, Default, bytemuck::NoUninit)]\n#[repr(C)]\npub struct {camel}Params {{\n{rust}}}\n\n"
    ))
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
