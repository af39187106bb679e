//! Vector instruction sets.
