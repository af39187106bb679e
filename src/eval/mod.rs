//! Measuring a model.
