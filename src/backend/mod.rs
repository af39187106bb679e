//! Devices that run a plan.
pub mod cpu;
