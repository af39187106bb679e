//! Speculation and the search for masks.

#[path = "../common/mod.rs"]
mod common;

mod accept_statistics;
mod controller;
mod costs_measure;
mod round_length;
mod search;
mod speculation;
