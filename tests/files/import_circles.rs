//! Data flows one way: the modules that a `lib.rs` declares import each other without circles. Read from the sources as text,
//! code for tests left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Which module imports which.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_modules_of_the_library_and_of_the_kernels_import_each_other_without_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [library, kernels] = ["src", "kernels/src"].map(|src| imports_in(&root.join(src)));
    assert!(library.len() > 20, "{library:?}");
    assert!(library["context"].contains("backend") && library["backend"].contains("plan"), "{library:?}");
    assert!(kernels["matmul"].contains("simd") && kernels["simd"].contains("quant"), "{kernels:?}");
    for imports in [library, kernels] {
        if let Some(circle) = circle(imports) {
            panic!("a circle of imports: {}", circle.join(" → "));
        }
    }
}

fn imports_in(src: &Path) -> Imports {
    let lib = code(&src.join("lib.rs"));
    let modules: BTreeSet<String> = names_after(&lib, "mod ").into_iter().collect();
    // `pub use batch::Batch` makes `crate::Batch` a name for something in `batch`.
    let reexports: BTreeMap<String, String> = (lib.split("pub use ").skip(1))
        .map(|rest| rest.split(';').next().unwrap())
        .flat_map(|path| {
            let (module, names) = path.split_once("::").expect("a re-export has a module");
            words(names).into_iter().map(move |name| (name, module.to_string()))
        })
        .collect();
    let mut imports = Imports::new();
    for module in &modules {
        let of_module = imports.entry(module.clone()).or_default();
        for file in files_of(src, module) {
            for name in imported(&code(&file)) {
                let target = if modules.contains(&name) { Some(&name) } else { reexports.get(&name) };
                of_module.extend(target.filter(|target| *target != module).cloned());
            }
        }
    }
    imports
}

#[test]
fn imports_are_found_in_braces_and_in_paths() {
    let text =
        "use crate::{\n    Error, kv::{self, Cell},\n    plan::Op,\n};\nfn f(x: crate::model::Model) {}";
    assert_eq!(imported(text), ["Error", "kv", "plan", "model"]);
}

#[test]
fn a_circle_is_found_and_told_in_order() {
    let graph = |edges: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry((*to).into()).or_default();
            imports.entry((*from).into()).or_default().insert((*to).into());
        }
        imports
    };
    assert_eq!(circle(graph(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(graph(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e")])).unwrap();
    assert_eq!(found, ["b", "c", "d", "b"]);
}

/// A circle, its first module at the end again.
fn circle(mut imports: Imports) -> Option<Vec<String>> {
    // What imports nothing that is left is in no circle.
    loop {
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        imports.retain(|_, of_module| of_module.iter().any(|module| left.contains(module)));
        if imports.len() == left.len() {
            break;
        }
    }
    let mut path = vec![imports.keys().next()?.clone()];
    loop {
        let next = imports[&path[path.len() - 1]].iter().find(|module| imports.contains_key(*module))?;
        let before = path.iter().position(|module| module == next);
        path.push(next.clone());
        if let Some(before) = before {
            return Some(path.split_off(before));
        }
    }
}

/// A module's sources without those that only tests have.
fn files_of(src: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![src.join(format!("{module}.rs"))];
    let mut folders = vec![src.join(module)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let root = fs::read_to_string(folder.join("mod.rs")).unwrap_or_default();
        let of_tests: Vec<String> = (root.split("#[cfg(").skip(1))
            .filter(|rest| rest.starts_with("test)]") || rest.starts_with("all(test, "))
            .filter_map(|rest| rest.split_once("]\n")?.1.strip_prefix("mod ")?.split_once(';'))
            .map(|(name, _)| name.to_string())
            .collect();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                _ if of_tests.contains(&stem) => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|file| file.extension().is_some_and(|ext| ext == "rs") && file.exists());
    assert!(!files.is_empty(), "{module} has no sources");
    files
}

/// A file without comments, and without its module of tests, which comes last.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap().to_string() + "\n").collect()
}

/// The first names behind `crate::`, in paths and in lists of imports.
fn imported(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            out.extend(words(rest).into_iter().next());
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => out.extend(words(&std::mem::take(&mut item)).into_iter().next()),
                _ => {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    item.push(c);
                }
            }
        }
        out.extend(words(&item).into_iter().next());
    }
    out
}

fn names_after(text: &str, keyword: &str) -> Vec<String> {
    let declared =
        |line: &str| words(line.trim_start_matches("pub ").strip_prefix(keyword)?).into_iter().next();
    text.lines().filter_map(declared).collect()
}

fn words(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_string).collect()
}
