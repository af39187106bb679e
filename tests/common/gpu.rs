//! The adapter that the GPU tests run on: a hardware one, else the first there is.

use spec_run::backend::gpu::{Choice, Found, adapters, choose};

/// The name to give as a device. Without any adapter the test says so and ends, unless
/// `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn device(test: &str) -> Option<String> {
    let name = choose(&Choice::Any).or_else(|_| choose(&Choice::Named("0".into())));
    match name {
        Ok(found) => Some(found.info.name),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

pub fn found(test: &str) -> Option<Found> {
    let name = device(test)?;
    adapters().into_iter().find(|f| f.info.name == name)
}
