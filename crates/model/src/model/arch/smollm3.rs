//! SmolLM3: a llama of which every fourth layer is not told positions.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    let mut decoder = Decoder::new(b, RopePairs::Neighbours)?;
    decoder.ropes.iter_mut().skip(3).step_by(4).for_each(|rope| *rope = None);
    decoder.build(b)
}
