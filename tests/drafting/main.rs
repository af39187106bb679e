//! Speculation and the search for masks.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "constraints")]
mod constraints;
mod controller;
mod costs_measure;
mod draft_model;
mod mtp;

mod far_weights;
#[cfg(feature = "fit")]
mod fit;
mod guided;
mod heads;
mod recurrent;
mod round_length;
mod running;
mod sampled;
mod search;
mod speculation;
mod trained;
