//! The texts of compute shaders, in WGSL, one kernel or a part of one to a file. `spec-run-gpu` puts them together.
//!
//! It is a part of spec-run, and no interface of it is promised.

/// A text by its path below this folder, without `.wgsl`.
///
/// # Panics
/// If there is no such file.
pub fn shader(path: &str) -> &'static str {
    let found = TEXTS.binary_search_by_key(&path, |(name, _)| name);
    found.map(|i| TEXTS[i].1).unwrap_or_else(|_| panic!("no shader {path}"))
}

// `TEXTS: &[(&str, &str)]`, in the order of their paths.
include!(concat!(env!("OUT_DIR"), "/texts.rs"));

/// The parameters of kernels, as their shaders declare them.
pub mod params {
    include!(concat!(env!("OUT_DIR"), "/params.rs"));
}
