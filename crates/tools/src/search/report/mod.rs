//! What a search found, for people: a table and a plot on the terminal, pictures in a page.

mod page;
mod panels;
mod plot;
mod shown;
#[cfg(test)]
mod tests;
mod text;

pub use page::{html, svg};
pub use text::text;
