//! Packed weights times few or many columns: the same arithmetic as for rows of the file, without the unpacking
//! from row to lane.
#![allow(clippy::needless_range_loop)] // Indices keep several arrays in step.

use std::{marker::PhantomData, ops::Range};

use super::{
    TILE,
    dot::{self, at_group, columns},
    kinds::{Kind, Shape},
    lanes::{Lanes, Words},
    packed_formats::PackedFormat,
    panel::{Panel, Scales},
    reading::*,
};
use crate::{
    matmul::{
        OutStripe, QuantRows,
        acts::{ActGroup, GROUP},
        packed::{Packed, split::Split},
    },
    simd::{Isa, Tier, Work, on_vectors},
};

pub fn rows<B: PackedFormat, S: Split>(
    isa: Isa,
    w: &Packed,
    coarse: bool,
    x: &QuantRows,
    out: &mut OutStripe,
) {
    product::<B, S>(isa, Job { w, x, out }, coarse, *OF_INTEL);
}

fn product<B: PackedFormat, S: Split>(isa: Isa, job: Job, coarse: bool, of_intel: bool) {
    let product = Product::<B, S> { job, coarse, of_intel, format: PhantomData };
    on_vectors!(isa, tier => tier.call(product), else unreachable!("{isa} has a kernel of its own"))
}

/// A whole product: the choice among the others. Each of these is a function of its own, and goes over many groups
/// of rows where it can.
struct Product<'a, 'o, B, S> {
    job: Job<'a, 'o>,
    coarse: bool,
    of_intel: bool,
    format: PhantomData<(B, S)>,
}

impl<L: Lanes, B: PackedFormat, S: Split> Work<L> for Product<'_, '_, B, S> {
    type Out = ();

    #[inline(always)]
    fn run(mut self, l: L) {
        let job = &mut self.job;
        assert_eq!(job.w.lanes(), L::ROWS, "packed for another instruction set");
        let all = job.x.rows();
        let groups = job.groups(L::ROWS);
        let by_high_bits = const { S::LOW > 0 } && self.coarse;
        if !by_high_bits && all > if const { B::FEW } { l.few_columns() } else { 1 } {
            return l.call(Many::<B, S> { job, groups, format: PhantomData });
        }
        let mut rest = groups;
        let mut of_each_place = |places| {
            let each = rest.start..rest.start + rest.len() / places;
            rest.start += places * each.len();
            each
        };
        if self.of_intel {
            if const { B::FEW } && all <= MOST_IN_TURN {
                let each = of_each_place(PLACES_ON_INTEL);
                job.multiply::<L, B, S, PLACES_ON_INTEL>(l, each, by_high_bits);
            }
        } else if const { are_short_vectors::<L>() && gains_by_two_places::<B, S>() } && all == 1 {
            let each = of_each_place(PLACES_ON_AMD);
            job.few_of::<L, B, S, PLACES_ON_AMD, 1, 1>(l, each.clone(), each.len());
        }
        job.multiply::<L, B, S, 1>(l, rest, by_high_bits);
    }
}

/// All columns, `H` times `C` of them, times the groups at `P` places, `apart` from one to the next. The last `C` are the
/// second half: with an odd number of columns the halves share one.
struct Few<'j, 'a, 'o, B, S, const P: usize, const H: usize, const C: usize> {
    job: &'j mut Job<'a, 'o>,
    groups: Range<usize>,
    apart: usize,
    format: PhantomData<(B, S)>,
}

impl<L: Lanes, B: PackedFormat, S: Split, const P: usize, const H: usize, const C: usize> Work<L>
    for Few<'_, '_, '_, B, S, P, H, C>
{
    type Out = ();

    #[inline(always)]
    fn run(self, l: L) {
        let Few { job, groups, apart, .. } = self;
        let mut scales = [const { Scales::new() }; P];
        let mut x = [[std::ptr::null(); C]; H];
        for half in 0..H {
            x[half] = columns::<C>(job.x, half * (job.x.rows() - C), 0);
        }
        for g in groups {
            let (planes, n) = (job.planes::<P>(g, apart), job.x.k() / GROUP);
            // SAFETY: the planes hold as many blocks as the columns.
            let sums = unsafe { full::<L, B, S, P, H, C>(l, planes, n, x, &mut scales) };
            for half in 0..H {
                // The first half has stored the column that both have.
                let shared = half * (2 * C - job.x.rows());
                for place in 0..P {
                    let first = half * (job.x.rows() - C);
                    job.put_sums::<L>(l, g + place * apart, first + shared, &sums[place][half][shared..]);
                }
            }
        }
    }
}

/// All columns, by the high bits, times the groups at `P` places.
struct Coarse<'j, 'a, 'o, B, S, const P: usize> {
    job: &'j mut Job<'a, 'o>,
    groups: Range<usize>,
    format: PhantomData<(B, S)>,
}

impl<L: Lanes, B: PackedFormat, S: Split, const P: usize> Work<L> for Coarse<'_, '_, '_, B, S, P> {
    type Out = ();

    #[inline(always)]
    fn run(self, l: L) {
        let Coarse { job, groups, .. } = self;
        let (all, apart) = (job.x.rows(), groups.len());
        let mut scales = [const { Scales::new() }; P];
        for g in groups {
            let fours = all / 4 * 4;
            for first in (0..fours).step_by(4) {
                job.by_high_bits::<L, B, S, P, 4>(l, g, apart, first, &mut scales);
            }
            for first in fours..all {
                job.by_high_bits::<L, B, S, P, 1>(l, g, apart, first, &mut scales);
            }
        }
    }
}

/// All columns, by way of panels.
struct Many<'j, 'a, 'o, B, S> {
    job: &'j mut Job<'a, 'o>,
    groups: Range<usize>,
    format: PhantomData<(B, S)>,
}

impl<L: Lanes, B: PackedFormat, S: Split> Work<L> for Many<'_, '_, '_, B, S> {
    type Out = ();

    #[inline(always)]
    fn run(self, l: L) {
        let all = self.job.x.rows();
        let mut panel = Panel::new();
        let mut acc = [0.0; TILE * 16];
        for first in (0..all).step_by(TILE) {
            let columns = first..all.min(first + TILE);
            for g in self.groups.clone() {
                self.job.many::<L, B, S>(l, g, columns.clone(), &mut panel, &mut acc);
            }
        }
    }
}

struct Job<'a, 'o> {
    w: &'a Packed,
    x: &'a QuantRows,
    out: &'a mut OutStripe<'o>,
}

impl Job<'_, '_> {
    /// Groups that have rows of the stripe.
    #[inline(always)]
    fn groups(&self, lanes: usize) -> Range<usize> {
        let rows = self.out.rows();
        rows.start / lanes..rows.end.div_ceil(lanes)
    }

    /// Where the planes of the groups `g`, `g + apart` and so on begin.
    #[inline(always)]
    fn planes<const P: usize>(&self, g: usize, apart: usize) -> [[*const u8; 2]; P] {
        let mut planes = [[std::ptr::null(); 2]; P];
        for place in 0..P {
            planes[place] = self.w.group(g + place * apart).map(<[u8]>::as_ptr);
        }
        planes
    }

    /// All columns times the groups at `P` places: the given ones, as many right behind them, and so on.
    #[inline(always)]
    fn multiply<L: Lanes, B: PackedFormat, S: Split, const P: usize>(
        &mut self,
        l: L,
        groups: Range<usize>,
        by_high_bits: bool,
    ) {
        if groups.is_empty() {
            return;
        }
        if const { S::LOW > 0 } && by_high_bits {
            return l.call(Coarse::<B, S, P> { job: self, groups, format: PhantomData });
        }
        let (all, apart) = (self.x.rows(), groups.len());
        match all.div_ceil(L::COLUMNS) {
            0 => {}
            1 => self.few::<L, B, S, P, 1>(l, groups, apart, all),
            // Unpacked once for both halves, and memory is read all the time.
            _ => self.few::<L, B, S, P, 2>(l, groups, apart, all.div_ceil(2)),
        }
    }

    #[inline(always)]
    fn few<L: Lanes, B: PackedFormat, S: Split, const P: usize, const H: usize>(
        &mut self,
        l: L,
        groups: Range<usize>,
        apart: usize,
        columns: usize,
    ) {
        macro_rules! few {
            ($C:literal) => {
                self.few_of::<L, B, S, P, H, $C>(l, groups, apart)
            };
        }
        match columns {
            1 if const { H == 1 } => few!(1),
            n if const { !B::FEW } => unreachable!("{n} columns at a time"),
            2 if const { H == 1 } => few!(2),
            3 if const { H == 1 || L::COLUMNS == 4 } => few!(3),
            4 if const { H == 1 || L::COLUMNS == 4 } => few!(4),
            n if const { L::COLUMNS == 8 } => match n {
                5 => few!(5),
                6 => few!(6),
                7 => few!(7),
                _ => few!(8),
            },
            n => unreachable!("{n} columns at a time"),
        }
    }

    #[inline(always)]
    fn few_of<L: Lanes, B: PackedFormat, S: Split, const P: usize, const H: usize, const C: usize>(
        &mut self,
        l: L,
        groups: Range<usize>,
        apart: usize,
    ) {
        l.call(Few::<B, S, P, H, C> { job: self, groups, apart, format: PhantomData })
    }

    #[inline(always)]
    fn by_high_bits<L: Lanes, B: PackedFormat, S: Split, const P: usize, const C: usize>(
        &mut self,
        l: L,
        g: usize,
        apart: usize,
        first: usize,
        scales: &mut [Scales; P],
    ) {
        let x = columns::<C>(self.x, first, 0);
        let (planes, n) = (self.planes::<P>(g, apart), self.x.k() / GROUP);
        // SAFETY: the planes hold as many blocks as the columns.
        let sums = unsafe { coarse::<L, B, S, P, C>(l, planes, n, x, scales) };
        for place in 0..P {
            self.put_sums::<L>(l, g + place * apart, first, &sums[place]);
        }
    }

    #[inline(always)]
    fn put_sums<L: Lanes>(&mut self, l: L, g: usize, first: usize, sums: &[L::F]) {
        for (c, &sums) in sums.iter().enumerate() {
            let mut results = [0.0; 16];
            // SAFETY: a vector has at most 16 lanes.
            unsafe { l.store_f32(results.as_mut_ptr(), sums) };
            self.put(g, L::ROWS, first + c, &results);
        }
    }

    /// The results of those rows of a group that are in the stripe.
    #[inline(always)]
    fn put(&mut self, g: usize, lanes: usize, column: usize, results: &[f32]) {
        let rows = self.out.rows();
        let (start, end) = (rows.start.max(g * lanes), rows.end.min((g + 1) * lanes));
        self.out.put(column, start, &results[start - g * lanes..end - g * lanes]);
    }

    /// A group of rows times up to [`TILE`] columns: 256 weights of each row are unpacked once for all.
    #[inline(always)]
    fn many<L: Lanes, B: PackedFormat, S: Split>(
        &mut self,
        l: L,
        g: usize,
        columns: Range<usize>,
        panel: &mut Panel,
        acc: &mut [f32; TILE * 16],
    ) {
        let [high, low] = self.w.group(g);
        let (mut high, mut low) = (high.as_ptr(), low.as_ptr());
        let groups = self.x.k() / GROUP;
        let acc = &mut acc[..columns.len() * L::ROWS];
        acc.fill(0.0);
        let ahead = ahead::<L, S>(columns.len());
        for first in (0..groups).step_by(Panel::GROUPS) {
            let n = Panel::GROUPS.min(groups - first);
            // SAFETY: the planes hold the blocks of all groups; the columns have them; `acc` has room for the columns.
            unsafe {
                for b in 0..n {
                    let w = unpack::<L, B, S>(l, &mut high, &mut low, &mut panel.scales, b, ahead);
                    for (j, w) in w.into_iter().enumerate() {
                        panel.put_ints(l, b, j, w);
                    }
                }
                dot::dot::<L, B::Kind>(l, panel, n, self.x, columns.clone(), first, acc.as_mut_ptr());
            }
        }
        for (c, acc) in columns.zip(acc.chunks_exact(L::ROWS)) {
            self.put(g, L::ROWS, c, acc);
        }
    }
}

/// The next 32 columns of a group of rows, `b` of up to 8 whose scales are kept; goes on to the following ones.
///
/// # Safety
/// The planes go on so far, and `b` counts from a block's beginning.
#[inline(always)]
unsafe fn unpack<L: Lanes, B: PackedFormat, S: Split>(
    l: L,
    high: &mut *const u8,
    low: &mut *const u8,
    scales: &mut Scales,
    b: usize,
    ahead: usize,
) -> [L::V; 8] {
    // SAFETY: the caller's.
    unsafe {
        let highs = next_high::<L, B, S>(l, high, scales, b, ahead);
        let words_since_head = (b % (B::TYPE.block_len() / GROUP) + 1) * S::HIGH;
        let head = high.sub(L::ROWS * (4 * words_since_head + B::HEAD_BYTES));
        fetch_ahead(l, *low, S::LOW * 4 * L::ROWS, ahead);
        let mut lows = highs;
        for i in 0..S::LOW {
            lows[i].1 = l.load(low.add(4 * L::ROWS * i));
        }
        *low = low.add(S::LOW * 4 * L::ROWS);
        let joined = S::join(highs, lows);
        let mut bits = [l.splat(0); 8];
        for j in 0..8 {
            bits[j] = joined[j].1;
        }
        B::unpacked(l, bits, head, scales, b)
    }
}

/// # Safety
/// As [`unpack`].
#[inline(always)]
unsafe fn next_high<L: Lanes, B: PackedFormat, S: Split>(
    l: L,
    high: &mut *const u8,
    scales: &mut Scales,
    b: usize,
    ahead: usize,
) -> [Words<L>; 8] {
    // SAFETY: the caller's.
    unsafe {
        let words = S::HIGH * 4 * L::ROWS;
        if b.is_multiple_of(B::TYPE.block_len() / GROUP) {
            let head = B::HEAD_BYTES * L::ROWS;
            B::head(l, *high, scales, b);
            fetch_ahead(l, *high, head + words, ahead);
            *high = high.add(head);
        } else {
            fetch_ahead(l, *high, words, ahead);
        }
        let mut highs = [Words(l, l.splat(0)); 8];
        for i in 0..S::HIGH {
            highs[i].1 = l.load(high.add(4 * L::ROWS * i));
        }
        *high = high.add(words);
        highs
    }
}

#[inline(always)]
fn fetch_ahead<L: Lanes>(l: L, from: *const u8, bytes: usize, ahead: usize) {
    for line in (0..bytes).step_by(64) {
        l.prefetch(from.wrapping_add(ahead + line));
    }
}

/// Some groups of rows, a block of each in turn.
///
/// # Safety
/// `planes` are the high and the low plane of each group, with `blocks` times 32 columns, and so long are the columns.
#[inline(always)]
unsafe fn full<L: Lanes, B: PackedFormat, S: Split, const P: usize, const H: usize, const C: usize>(
    l: L,
    mut planes: [[*const u8; 2]; P],
    blocks: usize,
    x: [[*const ActGroup; C]; H],
    scales: &mut [Scales; P],
) -> [[[L::F; C]; H]; P] {
    let mut sums = [[[l.splat_f32(0.0); C]; H]; P];
    let in_block = B::TYPE.block_len() / GROUP;
    let ahead = ahead::<L, S>(H * C);
    for first in (0..blocks).step_by(in_block) {
        for b in 0..in_block {
            for place in 0..P {
                let ([high, low], scales) = (&mut planes[place], &mut scales[place]);
                // SAFETY: the caller's.
                unsafe {
                    let w = unpack::<L, B, S>(l, high, low, scales, b, ahead);
                    for half in 0..H {
                        let x = at_group(&x[half], first + b);
                        dot::step::<L, B::Kind, C>(l, &w, scales, b, x, &mut sums[place][half]);
                    }
                }
            }
        }
    }
    sums
}

/// The same from the high planes: weights are `2·(h·2^LOW_BITS - offset) + 2^LOW_BITS - 1` under half of the scale.
///
/// # Safety
/// As [`full`].
#[inline(always)]
unsafe fn coarse<L: Lanes, B: PackedFormat, S: Split, const P: usize, const C: usize>(
    l: L,
    mut planes: [[*const u8; 2]; P],
    blocks: usize,
    x: [*const ActGroup; C],
    scales: &mut [Scales; P],
) -> [[L::F; C]; P] {
    let mut sums = [[l.splat_f32(0.0); C]; P];
    let in_block = B::TYPE.block_len() / GROUP;
    let ahead = ahead::<L, S>(C);
    for first in (0..blocks).step_by(in_block) {
        for b in 0..in_block {
            let x = at_group(&x, first + b);
            for place in 0..P {
                let ([high, _], scales) = (&mut planes[place], &mut scales[place]);
                // SAFETY: the caller's.
                unsafe {
                    let words = S::high(next_high::<L, B, S>(l, high, scales, b, ahead));
                    coarse_step::<L, B, S, C>(l, words, scales, b, x, &mut sums[place]);
                }
            }
        }
    }
    sums
}

/// [`dot::step`], from the high bits of 32 weights.
///
/// # Safety
/// As [`dot::step`].
#[inline(always)]
unsafe fn coarse_step<L: Lanes, B: PackedFormat, S: Split, const C: usize>(
    l: L,
    words: [Words<L>; 8],
    scales: &Scales,
    b: usize,
    x: [*const ActGroup; C],
    sums: &mut [L::F; C],
) {
    let constant = (1 << S::LOW_BITS) - 1 + 2 * i32::from(B::int(0));
    let mut w = [l.splat(0); 8];
    for j in 0..8 {
        w[j] = words[j].1;
    }
    // SAFETY: the caller's.
    unsafe {
        let [mut isums, second] = dot::half_sums::<L, C>(l, &w, &x, S::HIGH_MAX, false);
        for c in 0..C {
            let pair = if B::Kind::SHAPE == Shape::SubScales {
                let [s0, s1] = [scales.sub_scale(l, b, 0), scales.sub_scale(l, b, 1)];
                isums[c] = l.add(l.mul(s0, isums[c]), l.mul(s1, second[c]));
                l.or(l.and(s0, l.splat(0xffff)), l.shl(s1, 16))
            } else {
                isums[c] = l.add(isums[c], second[c]);
                l.splat(0x0001_0001)
            };
            let middle = l.mul(l.mul_pairs(pair, dot::half_sums_of(l, x[c])), l.splat(constant as u32));
            isums[c] = l.add(l.shl(isums[c], S::LOW_BITS + 1), middle);
        }
        let scale = l.mul_f32(scales.scale(l, b), l.splat_f32(0.5));
        for c in 0..C {
            let scale = l.mul_f32(scale, l.splat_f32((*x[c]).d));
            sums[c] = l.fma_f32(scale, l.to_f32(isums[c]), sums[c]);
        }
        dot::add_minimums::<L, B::Kind, C>(l, scales, b, &x, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        matmul::{
            Mode, OutMatrix, PackedMemory, Weight,
            packed::{HighBits, Layout, for_packed, scalar_rows},
        },
        quant::GgmlType,
    };

    /// More groups of rows than places, some left over, the last one not whole.
    const ROWS: usize = 5 * 16 + 5;
    const K: usize = 512;
    /// The most columns of an odd number that are multiplied in two halves.
    const MOST: usize = 15;

    fn random_bytes(n: usize) -> Vec<u8> {
        let mut state = 88172645463325252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // No half is infinite or no number, wherever one may stand.
            (state >> 24) as u8 & 0xbb
        };
        (0..n).map(|_| next()).collect()
    }

    /// Which places a machine multiplies from depends on who made it; all have the bits of the scalar rows.
    #[test]
    fn groups_in_turn_and_one_after_the_other_have_the_same_bits() {
        let layouts = |ty| {
            let low = HighBits::ALL.map(Layout::Low).into_iter().filter(move |_| Packed::has_low_plane(ty));
            [Layout::Whole, Layout::Planes].into_iter().chain(low).map(move |layout| (ty, layout))
        };
        let types = GgmlType::ALL.iter().copied().filter(|&ty| Packed::knows(ty));
        for (ty, layout) in types.flat_map(layouts) {
            let bytes = random_bytes(ty.row_bytes(K).unwrap() * ROWS);
            let weight = Weight::new(ty, &bytes, ROWS, K);
            let x: Vec<f32> = random_bytes(MOST * K).iter().map(|&b| f32::from(b as i8) / 64.0).collect();
            for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar) {
                let memory = &mut PackedMemory::default();
                let w = Packed::laid_out(memory, isa, &weight, layout, |_| ()).unwrap();
                for columns in [1, 2, 3, 5, 7, 8, 9, MOST_IN_TURN, MOST] {
                    let rows = QuantRows::of(isa, &x[..columns * K], K);
                    // All results are stored, and each is added once.
                    let run = |run: &dyn Fn(&mut OutStripe)| {
                        [(f32::NAN, Mode::Store), (0.5, Mode::Add)].map(|(before, mode)| {
                            let mut out = vec![before; columns * ROWS];
                            run(&mut OutMatrix::new(&mut out, ROWS, mode).whole());
                            out.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
                        })
                    };
                    for coarse in [false, w.has_coarse()] {
                        for_packed!(ty, w.layout(), (B, S) => {
                            let expected = run(&|out| scalar_rows::<B, S>(&w, coarse, &rows, out));
                            for of_intel in [false, true] {
                                let got =
                                    run(&|out| product::<B, S>(isa, Job { w: &w, x: &rows, out }, coarse, of_intel));
                                let what = format!("{ty} {layout:?} {isa} x{columns} coarse {coarse}");
                                assert!(got == expected, "{what} as on Intel {of_intel}");
                            }
                        });
                    }
                }
            }
        }
    }
}
