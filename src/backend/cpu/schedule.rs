//! Turns a pass's steps into phases for the team: where inputs must be quantized first, and before which
//! phases everybody has to wait.

use crate::{
    model::Model,
    plan::{Buf, Op, Step, WeightId},
};

/// What one thread can do of a pass without waiting for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work<'a> {
    /// An operation as it stands in the plan, save `Head`.
    Op(&'a Op),
    /// int8 blocks of a buffer, for the quantized matrices that read it.
    Quantize(Buf),
    /// `H = norm(X)` for the rows whose logits are wanted, packed to the front.
    HeadNorm { norm: WeightId, eps: f32 },
    /// int8 blocks of those packed rows.
    QuantizeHead,
    /// `logits = H · weightᵀ`
    Logits { weight: WeightId },
}

#[derive(Clone, Copy, Debug)]
pub struct Phase<'a> {
    pub work: Work<'a>,
    pub slot: usize,
    /// Weights by their high bits, where these lie apart.
    pub coarse: bool,
    /// All threads must have finished what came before.
    pub sync: bool,
}

/// A set of things that phases read and write, one bit each.
type Things = u32;

const fn f32s(buf: Buf) -> Things {
    1 << buf as u32
}

const fn int8s(buf: Buf) -> Things {
    1 << (buf as u32 + 8)
}

const CACHE: Things = 1 << 16;
const LOGITS: Things = 1 << 17;
const HEAD_INT8: Things = 1 << 18;

pub fn schedule<'a>(model: &Model, steps: &[Step<'a>]) -> Vec<Phase<'a>> {
    let quantized = |id: WeightId| model.weight(id).ty().block_len() > 1;
    let mut list = List::default();
    for &Step { op, slot, coarse, .. } in steps {
        list.coarse = coarse;
        match *op {
            Op::MatMul { weight, src, .. } if quantized(weight) => list.quantize(src),
            Op::GateUp { gate, up } if quantized(gate) || quantized(up) => list.quantize(Buf::H),
            _ => {}
        }
        match *op {
            Op::Head { norm, eps, weight } => {
                list.push(Work::HeadNorm { norm, eps }, 0, f32s(Buf::X), f32s(Buf::H));
                if quantized(weight) {
                    list.push(Work::QuantizeHead, 0, f32s(Buf::H), HEAD_INT8);
                }
                list.push(Work::Logits { weight }, 0, f32s(Buf::H) | HEAD_INT8, LOGITS);
            }
            _ => {
                let (reads, writes) = touched(op, quantized);
                list.push(Work::Op(op), slot, reads, writes);
            }
        }
    }
    list.phases
}

fn touched(op: &Op, quantized: impl Fn(WeightId) -> bool) -> (Things, Things) {
    let input = |weight, src| if quantized(weight) { int8s(src) } else { f32s(src) };
    match *op {
        Op::Embed { .. } => (0, f32s(Buf::X)),
        Op::Norm { .. } => (f32s(Buf::X), f32s(Buf::H)),
        // The residual is added in place by the thread that owns those columns.
        Op::MatMul { weight, src, dst, .. } => (input(weight, src), f32s(dst)),
        Op::RopeStore { .. } => (f32s(Buf::K) | f32s(Buf::V), f32s(Buf::Q) | f32s(Buf::K) | CACHE),
        Op::Attend { .. } => (f32s(Buf::Q) | CACHE, f32s(Buf::A)),
        Op::GateUp { gate, up } => (input(gate, Buf::H) | input(up, Buf::H), f32s(Buf::G)),
        Op::Head { .. } => unreachable!("split into two phases"),
    }
}

#[derive(Default)]
struct List<'a> {
    phases: Vec<Phase<'a>>,
    /// Since the last barrier.
    read: Things,
    written: Things,
    /// Which int8 copies are those of the f32 rows as they are now.
    fresh: Things,
    /// Of the step that the phases come from.
    coarse: bool,
}

impl<'a> List<'a> {
    fn quantize(&mut self, src: Buf) {
        if self.fresh & int8s(src) == 0 {
            self.push(Work::Quantize(src), 0, f32s(src), int8s(src));
            self.fresh |= int8s(src);
        }
    }

    fn push(&mut self, work: Work<'a>, slot: usize, reads: Things, writes: Things) {
        let sync = reads & self.written != 0 || writes & (self.read | self.written) != 0;
        if sync {
            (self.read, self.written) = (0, 0);
        }
        self.read |= reads;
        self.written |= writes;
        // A buffer's int8 bit lies 8 above its f32 bit.
        self.fresh &= !((writes & 0xff) << 8);
        self.phases.push(Phase { work, slot, coarse: self.coarse, sync });
    }
}
