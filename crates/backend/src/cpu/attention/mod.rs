//! How attention is dealt among threads. What it computes is the kernels'.

pub mod deal;
#[cfg(test)]
mod tests;

pub use spec_run_kernels::attention::{Attend, CHUNK, Join, Parts, Scratch, Span, To, part_floats};
