//! Speculative decoding: the model drafts for itself and checks the draft in one pass.

pub mod acceptance;
pub mod controller;
pub mod costs;
pub mod policy;
