//! Pictures and pages of what was measured: axes, marks, maps and the page around them, and on top of these what a sweep
//! looks like. Everything is one file, which fetches nothing.

pub mod escape;
pub mod figure;
pub mod frame;
pub mod heat;
pub mod labels;
pub mod map;
pub mod page;
pub mod scale;
pub mod svg;
pub mod sweep;
