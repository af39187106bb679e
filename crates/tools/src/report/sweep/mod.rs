//! What sweeps look like: several masks of a model, each beside the full model. One sweep with all that is known of it,
//! or several laid over each other.

mod draw;
mod forest;
mod page;
mod pairs;
mod read;
mod run;

pub use draw::Across;
pub use page::{html, svg, unlike};
pub use read::{labels, read};
pub use run::Run;
