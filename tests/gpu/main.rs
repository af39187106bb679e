//! The GPU backend on whatever adapter there is; Mesa's llvmpipe will do.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod cli;
mod families;
mod hybrid;
mod model;
mod nvfp4;
mod recording;
mod rounds;
mod several;
mod taps;
