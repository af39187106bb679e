//! Products of many rows that another device makes with matrices that lie here, packed. It keeps to the contract of
//! [`matmul`](super::matmul) to the bit, so nothing but time depends on whether it does.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

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

    /// The products of every row of `x` with every row of the matrix: `[x.rows(), packed.rows()]`. False where some
    /// numbers are beyond those that it keeps to the bit; then nothing is said of `out`.
    fn multiply(&mut self, packed: &Packed, x: &QuantRows, out: &mut [f32]) -> Result<bool>;
}

pub struct LentDevice {
    /// From so many rows on.
    least_rows: usize,
    /// By weight id.
    knows: Vec<bool>,
    device: Mutex<Device>,
    /// What is added to what stands in a buffer, before it is: as many numbers as the largest of them.
    sums: SharedRows,
    /// By phase: some of its numbers were beyond what the device takes.
    declined: Vec<AtomicBool>,
}

struct Device {
    multiplier: Box<dyn Multiplier>,
    failed: Option<Error>,
}

impl LentDevice {
    /// `knows`: the matrices that it multiplies with. `most_sums`: numbers that are ever added to others at once.
    pub fn new(
        multiplier: Box<dyn Multiplier>,
        least_rows: usize,
        knows: Vec<bool>,
        most_sums: usize,
    ) -> Self {
        LentDevice {
            least_rows,
            knows,
            device: Mutex::new(Device { multiplier, failed: None }),
            sums: SharedRows::new(1, most_sums),
            declined: Vec::new(),
        }
    }

    pub fn least_rows(&self) -> usize {
        self.least_rows
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

    /// A product at once, outside of any pass; whether it has been made.
    pub fn multiply_now(&mut self, packed: &Packed, x: &QuantRows, out: &mut [f32]) -> Result<bool> {
        let device = self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let takes = x.rows() >= self.least_rows && device.multiplier.knows(packed);
        if takes { device.multiplier.multiply(packed, x, out) } else { Ok(false) }
    }

    fn takes(&self, weight: WeightId, rows: usize) -> bool {
        rows >= self.least_rows && self.knows[weight.0 as usize]
    }

    /// By one thread of all.
    fn multiply(&self, index: usize, weight: &Weight, x: &QuantRows, out: &mut [f32]) {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        // After an error the pass only comes to its end.
        if device.failed.is_some() || self.is_declined(index) {
            return;
        }
        let packed = weight.as_packed().expect("only packed matrices are known");
        match device.multiplier.multiply(packed, x, out) {
            Ok(true) => {}
            // The barrier behind it hands this over.
            Ok(false) => self.declined[index].store(true, Ordering::Relaxed),
            Err(e) => device.failed = Some(e),
        }
    }

    fn is_declined(&self, index: usize) -> bool {
        self.declined[index].load(Ordering::Relaxed)
    }
}

/// So few rows are never worth it: the weights would cross for each pass.
const LEAST_LENT: usize = 33;

/// Rows of which the times are taken.
const TIMED_ROWS: [usize; 2] = [64, 256];

/// From how many rows on the other device is faster; `None` if it is not for as many as there can be.
pub fn rows_worth_lending(
    multiplier: &mut dyn Multiplier,
    packed: &Packed,
    (isa, team): (Isa, &mut Team),
    max_rows: usize,
) -> Result<Option<usize>> {
    let [few, many] = TIMED_ROWS.map(|rows| rows.min(max_rows));
    if few == many {
        return Ok(None);
    }
    let acts = |rows| {
        let mut acts = QuantRows::new();
        acts.resize(rows, packed.cols());
        acts.quantize(isa, &vec![1.0; rows * packed.cols()]);
        acts
    };
    let mut out = vec![0.0; many * packed.rows()];
    let there = |rows: usize, multiplier: &mut dyn Multiplier, out: &mut [f32]| -> Result<Duration> {
        let (acts, out) = (acts(rows), &mut out[..rows * packed.rows()]);
        least_of_two(|| multiplier.multiply(packed, &acts, out).map(drop))
    };
    let of_many = there(many, multiplier, &mut out)?;
    let of_few = there(few, multiplier, &mut out)?;
    let acts = acts(few);
    let here = least_of_two(|| {
        multiply_here((isa, &mut *team), packed, &acts, &mut out[..few * packed.rows()]);
        Ok(())
    })?;
    Ok(worth_from([(few, of_few), (many, of_many)], (few, here)).filter(|&rows| rows <= max_rows))
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

fn least_of_two(mut once: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = [Duration::ZERO; 2];
    for time in &mut times {
        let started = Instant::now();
        once()?;
        *time = started.elapsed();
    }
    Ok(times[0].min(times[1]))
}

/// Where a line through two times meets one from zero through another; `None` if it never does.
fn worth_from(there: [(usize, Duration); 2], here: (usize, Duration)) -> Option<usize> {
    let [(few, of_few), (many, of_many)] = there.map(|(rows, time)| (rows as f64, time.as_secs_f64()));
    let row_there = ((of_many - of_few) / (many - few)).max(0.0);
    let row_here = here.1.as_secs_f64() / here.0 as f64;
    let beside = (of_few - few * row_there).max(0.0);
    (row_here > row_there)
        .then(|| (beside / (row_here - row_there)).ceil() as usize)
        .map(|n| n.max(LEAST_LENT))
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
    pub fn lent_product(
        &self,
        (weight, adds): (WeightId, bool),
        (src, dst): (Buf, &SharedRows),
        index: usize,
        phase: &Phase,
        member: &Member,
    ) -> Option<Sums<'_>> {
        let rows = self.n_rows(phase);
        let lent = self.lent.filter(|lent| !phase.coarse && lent.takes(weight, rows))?;
        if member.index == 0 {
            // SAFETY: nobody else touches the sums, or the buffer that this phase writes, until the barrier.
            let out = unsafe {
                if adds {
                    &mut lent.sums.first_rows_mut(1)[..rows * dst.width()]
                } else {
                    dst.first_rows_mut(rows)
                }
            };
            let x = self.int8s(src, phase, member);
            lent.multiply(index, &self.weights.get(self.model, weight), x, out);
        }
        member.sync();
        match lent.is_declined(index) {
            true => None,
            false if adds => Some(Sums::Apart(&lent.sums)),
            false => Some(Sums::Put),
        }
    }

    /// Whether another device has made both products of a gate, for all.
    pub fn lent_gate(
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
        let takes = |lent: &&LentDevice| !phase.coarse && products().all(|weight| lent.takes(weight, rows));
        let Some(lent) = self.lent.filter(takes) else { return false };
        if member.index == 0 {
            let x = self.int8s(src, phase, member);
            let bufs = [self.buffers.f32s(dst)].into_iter().chain(up.map(|_| self.buffers.up(dst)));
            for (weight, buf) in products().zip(bufs) {
                // SAFETY: nobody else touches what this phase writes until the barrier.
                let out = unsafe { buf.first_rows_mut(rows) };
                lent.multiply(index, &self.weights.get(self.model, weight), x, out);
            }
        }
        member.sync();
        !lent.is_declined(index)
    }
}
