//! What a search found, for people: a table and a plot on the terminal, pictures in a page.

mod frame;
mod map;
mod plot;
mod shown;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use svg::{html, svg};
pub use text::text;
