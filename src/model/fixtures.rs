//! For tests: the small models of all architectures that lie beside the repository.

use std::{path::Path, sync::Arc};

use super::Model;
use crate::Gguf;

/// Those that run here; none where there are no fixtures, unless these are asked for.
#[allow(clippy::print_stderr)]
pub fn fixtures(test: &str) -> Vec<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures/archs");
    let Ok(files) = std::fs::read_dir(&folder) else {
        assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{} is missing", folder.display());
        eprintln!("SKIPPED {test} of all architectures: {} is not there", folder.display());
        return Vec::new();
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    files.sort();
    files.iter().filter_map(|file| Model::load(Arc::new(Gguf::open(file).unwrap())).ok()).collect()
}
