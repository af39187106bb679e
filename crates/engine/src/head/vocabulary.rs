//! The tokens that a head's drafts choose from: few at first, and more as they occur in a text, so that the output matrix is
//! never read as a whole.

use super::{Head, Tables};
use crate::quant::{GgmlType, quantize};
use spec_run_kernels::matmul::Weight;

/// A growing list of tokens with their rows of the output matrix.
#[derive(Clone)]
pub struct Vocabulary {
    tokens: Vec<u32>,
    /// A bit for each token of the model.
    has: Vec<u64>,
    rows: Vec<u8>,
    ty: GgmlType,
    factor: f32,
    dim: usize,
}

impl Vocabulary {
    /// The head's own list.
    pub fn of(head: &Head, tables: &Tables) -> Self {
        // Rows in a format that is slow to read are kept in another one.
        let slow = Weight::is_slow_in_file(tables.output_type());
        let (ty, factor) =
            if slow { (GgmlType::Q8_0, 1.0) } else { (tables.output_type(), tables.output_factor()) };
        let mut vocabulary = Vocabulary {
            tokens: Vec::new(),
            has: vec![0; tables.model().n_vocab().div_ceil(64)],
            rows: Vec::new(),
            ty,
            factor,
            dim: tables.dim(),
        };
        vocabulary.add(&head.tokens, tables);
        vocabulary
    }

    /// Adds those of these tokens that are not in the list yet.
    pub fn add(&mut self, tokens: &[u32], tables: &Tables) {
        for &token in tokens {
            let (word, bit) = (token as usize / 64, 1 << (token % 64));
            if self.has[word] & bit != 0 {
                continue;
            }
            self.has[word] |= bit;
            self.tokens.push(token);
            if self.ty == tables.output_type() {
                self.rows.extend_from_slice(tables.output_bytes(token));
            } else {
                let mut row = vec![0.0; self.dim];
                tables.output_row(token, &mut row);
                quantize(self.ty, &row, &mut self.rows).expect("rows are whole blocks of 32");
            }
        }
    }

    /// In the order of the rows.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes of their rows of the output matrix.
    pub fn bytes(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Whether a draft may choose it.
    pub fn contains(&self, token: u32) -> bool {
        self.has[token as usize / 64] & 1 << (token % 64) != 0
    }

    pub(super) fn matrix(&self) -> Weight<'_> {
        Weight::new(self.ty, &self.rows, self.tokens.len(), self.dim).times(self.factor)
    }
}
