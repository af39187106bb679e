//! A head's weights as floats: one list of numbers, of which each part is a range.

use super::{HeadShape, Part};

/// The numbers of a head, or one value for each of them, as a gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    shape: HeadShape,
    numbers: Vec<f32>,
}

impl Weights {
    /// All zero.
    pub fn zero(shape: HeadShape) -> Self {
        let numbers = vec![0.0; shape.numbers()];
        Weights { shape, numbers }
    }

    /// How large it is.
    pub fn shape(&self) -> &HeadShape {
        &self.shape
    }

    /// All numbers.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// All numbers.
    pub fn numbers_mut(&mut self) -> &mut [f32] {
        &mut self.numbers
    }

    /// Those of a part.
    pub fn part(&self, part: Part) -> &[f32] {
        &self.numbers[self.shape.range(part)]
    }

    /// Those of a part.
    pub fn part_mut(&mut self, part: Part) -> &mut [f32] {
        let range = self.shape.range(part);
        &mut self.numbers[range]
    }

    /// The factor of outputs.
    pub fn scale(&self) -> f32 {
        self.part(Part::Scale)[0]
    }
}
