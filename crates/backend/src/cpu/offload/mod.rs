//! Products of many rows that another device makes with matrices that lie here, packed. It keeps to the contract of
//! [`matmul`](super::matmul) to the bit, so nothing but time depends on whether it does.

mod worth;

use std::{
    fmt,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

pub use worth::{LEAST_OFFLOADED, TIMED_EXPERTS, rows_worth_offloading};

use super::{
    matmul::{self, Acts, Mode, OutMatrix, Packed, QuantRows, Weight},
    pass::{Pass, ROW_GRAIN, add},
    rows::SharedRows,
    schedule::Phase,
    simd::Isa,
    team::{Member, Team},
};
use crate::{
    Error, Result,
    plan::{Buf, Linear, WeightId},
};

/// A device that multiplies as [`matmul`](super::matmul) does.
pub trait Multiplier: Send {
    /// Whether it can read a matrix so packed.
    fn knows(&self, packed: &Packed) -> bool;

    /// Makes all these products. False where some numbers are beyond those that it keeps to the bit; then nothing is said
    /// of what is written.
    fn multiply(&mut self, bundles: &mut [Bundle]) -> Result<bool>;
}

/// Products of packed matrices with the same parts of rows.
pub struct Bundle<'a> {
    pub x: &'a QuantRows,
    /// Of which row each part is, and from which column on: it is as long as a row of the matrices.
    pub parts: Vec<(usize, usize)>,
    /// The matrices, and where the products of each part go.
    pub with: Vec<(Weight<'a>, Vec<&'a mut [f32]>)>,
}

impl<'a> Bundle<'a> {
    /// Of whole rows; products with a matrix are `[x.rows(), weight.rows()]`.
    pub fn of_rows(x: &'a QuantRows, with: impl IntoIterator<Item = (Weight<'a>, &'a mut [f32])>) -> Self {
        let rows_of = |(weight, out): (Weight<'a>, &'a mut [f32])| {
            let rows = weight.rows();
            (weight, out.chunks_exact_mut(rows).collect())
        };
        Bundle {
            x,
            parts: (0..x.rows()).map(|row| (row, 0)).collect(),
            with: with.into_iter().map(rows_of).collect(),
        }
    }
}

/// From how many rows on products are made elsewhere, if they ever are.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Least {
    /// Of a pass.
    pub rows: Option<usize>,
    /// Those that chose an expert.
    pub of_expert: Option<usize>,
}

impl fmt::Display for Least {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rows, self.of_expert) {
            (Some(rows), None) => write!(f, "passes of {rows} rows or more on the GPU"),
            (None, Some(rows)) => write!(f, "experts of {rows} rows or more on the GPU"),
            (Some(rows), Some(of_expert)) => {
                write!(f, "passes of {rows} rows or more on the GPU, experts of {of_expert} or more")
            }
            (None, None) => Ok(()),
        }
    }
}

pub struct OffloadDevice {
    least: Least,
    /// By weight id: from so many rows on it multiplies with a matrix, if it ever does.
    from: Vec<Option<usize>>,
    device: Mutex<Device>,
    /// What has no place in the pass's buffers until threads put it there: as many numbers as there ever are at once.
    apart: SharedRows,
    /// By phase: some of its numbers were beyond what the device takes.
    declined: Vec<AtomicBool>,
}

struct Device {
    multiplier: Box<dyn Multiplier>,
    failed: Option<Error>,
}

impl OffloadDevice {
    /// `from`, by weight id: from how many rows on it multiplies with a matrix. `most_apart`: numbers that are ever put apart
    /// at once.
    pub fn new(
        multiplier: Box<dyn Multiplier>,
        (least, from): (Least, Vec<Option<usize>>),
        most_apart: usize,
    ) -> Self {
        OffloadDevice {
            least,
            from,
            device: Mutex::new(Device { multiplier, failed: None }),
            apart: SharedRows::new(1, most_apart),
            declined: Vec::new(),
        }
    }

    pub fn least(&self) -> Least {
        self.least
    }

    /// Before a pass of so many phases.
    pub fn begin(&mut self, phases: usize) {
        self.declined.iter_mut().for_each(|declined| *declined.get_mut() = false);
        if self.declined.len() < phases {
            self.declined.resize_with(phases, AtomicBool::default);
        }
    }

    /// What went wrong in a pass.
    pub fn end(&mut self) -> Result<()> {
        let device = self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        device.failed.take().map_or(Ok(()), Err)
    }

    /// A product with a low plane at once, outside of any pass; whether it has been made.
    pub fn multiply_now(&mut self, packed: &Packed, x: &QuantRows, out: &mut [f32]) -> Result<bool> {
        let device = self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let takes = self.least.rows.is_some_and(|least| x.rows() >= least) && device.multiplier.knows(packed);
        if !takes {
            return Ok(false);
        }
        device.multiplier.multiply(&mut [Bundle::of_rows(x, [(Weight::packed(packed), out)])])
    }

    pub fn takes(&self, weight: WeightId, rows: usize) -> bool {
        self.from[weight.0 as usize].is_some_and(|least| rows >= least)
    }

    /// By one thread of all, of the phase of this number.
    pub fn multiply(&self, index: usize, bundles: &mut [Bundle]) {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        // After an error the pass only comes to its end.
        if device.failed.is_some() {
            return;
        }
        match device.multiplier.multiply(bundles) {
            Ok(true) => {}
            // The barrier behind it hands this over.
            Ok(false) => self.declined[index].store(true, Ordering::Relaxed),
            Err(e) => device.failed = Some(e),
        }
    }

    /// Whether all that the phase of this number has for it has to be made here.
    pub fn is_declined(&self, index: usize) -> bool {
        self.declined[index].load(Ordering::Relaxed)
    }

    pub fn apart(&self) -> &SharedRows {
        &self.apart
    }
}

/// The products that a [`Multiplier`] makes, by all threads here.
pub fn multiply_here((isa, team): (Isa, &mut Team), packed: &Packed, x: &QuantRows, out: &mut [f32]) {
    let made = OutMatrix::new(out, packed.rows(), Mode::Store);
    team.run(x.rows(), |member| {
        // SAFETY: each thread has its share of the rows.
        let mut stripe = unsafe { made.stripe(member.share(packed.rows(), ROW_GRAIN)) };
        matmul::matmul(isa, &Weight::packed(packed), Acts::Quantized(x), &mut stripe);
    });
}

/// A product that was made elsewhere.
pub enum Sums<'a> {
    /// It is where it belongs.
    Put,
    /// It is still to be added to what stands there.
    Apart(&'a SharedRows),
}

impl Sums<'_> {
    pub fn are_apart(&self) -> bool {
        matches!(self, Sums::Apart(_))
    }

    /// Puts some columns of all rows where they belong.
    pub fn put(&self, buf: &SharedRows, columns: Range<usize>, rows: usize) {
        let Sums::Apart(sums) = self else { return };
        for row in 0..rows {
            let from = row * buf.width();
            // SAFETY: these columns were dealt to this thread; the sums are settled since the barrier.
            let (out, sums) = unsafe {
                (buf.row_mut(row, columns.clone()), sums.columns(0, from + columns.start..from + columns.end))
            };
            add(out, sums);
        }
    }
}

// SAFETY comments as in `pass`. Here a thread has the share of all: the others go on to the barrier.
impl Pass<'_> {
    /// A phase's product, if another device has made it for all.
    pub fn offloaded_product(
        &self,
        (weight, adds): (WeightId, bool),
        (src, dst): (Buf, &SharedRows),
        index: usize,
        phase: &Phase,
        member: &Member,
    ) -> Option<Sums<'_>> {
        let rows = self.n_rows(phase);
        let offload = self.offload.filter(|offload| !phase.coarse && offload.takes(weight, rows))?;
        if member.index == 0 {
            // SAFETY: nobody else touches the sums, or the buffer that this phase writes, until the barrier.
            let out = unsafe {
                if adds {
                    &mut offload.apart.first_rows_mut(1)[..rows * dst.width()]
                } else {
                    dst.first_rows_mut(rows)
                }
            };
            let x = self.int8s(src, phase, member);
            let weight = self.weights.get(self.model, weight);
            offload.multiply(index, &mut [Bundle::of_rows(x, [(weight, out)])]);
        }
        member.sync();
        match offload.is_declined(index) {
            true => None,
            false if adds => Some(Sums::Apart(&offload.apart)),
            false => Some(Sums::Put),
        }
    }

    /// Whether another device has made both products of a gate, for all.
    pub fn offloaded_gate(
        &self,
        gate: Linear,
        up: Option<Linear>,
        (src, dst): (Buf, Buf),
        index: usize,
        phase: &Phase,
        member: &Member,
    ) -> bool {
        let rows = self.n_rows(phase);
        let products = || std::iter::once(gate).chain(up).map(|linear| linear.weight);
        let takes =
            |offload: &&OffloadDevice| !phase.coarse && products().all(|weight| offload.takes(weight, rows));
        let Some(offload) = self.offload.filter(takes) else { return false };
        if member.index == 0 {
            let x = self.int8s(src, phase, member);
            let bufs = [self.buffers.f32s(dst)].into_iter().chain(up.map(|_| self.buffers.up(dst)));
            let with = products().zip(bufs).map(|(weight, buf)| {
                // SAFETY: nobody else touches what this phase writes until the barrier.
                (self.weights.get(self.model, weight), unsafe { buf.first_rows_mut(rows) })
            });
            offload.multiply(index, &mut [Bundle::of_rows(x, with)]);
        }
        member.sync();
        !offload.is_declined(index)
    }

    /// Whether another device has made the products of the head, for all.
    pub fn offloaded_logits(&self, weight: WeightId, index: usize, phase: &Phase, member: &Member) -> bool {
        let rows = self.n_rows(phase);
        let takes = |offload: &&OffloadDevice| !phase.coarse && offload.takes(weight, rows);
        let Some(offload) = self.offload.filter(takes) else { return false };
        if member.index == 0 {
            let weight = self.weights.get(self.model, weight);
            let x = self.int8s(Buf::H, phase, member);
            // SAFETY: there is room for the logits of all these rows; nobody else touches them until the barrier.
            let out = unsafe { std::slice::from_raw_parts_mut(self.logits.ptr, rows * weight.rows()) };
            offload.multiply(index, &mut [Bundle::of_rows(x, [(weight, out)])]);
        }
        member.sync();
        !offload.is_declined(index)
    }
}
