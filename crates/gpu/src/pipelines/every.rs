//! Every kernel that there is, for tests that go over all of them.

use std::env;

use super::{Curve, Kernel, Mode};
use crate::{
    formats::Format,
    kv_type::KvType,
    stored::Stored,
    variants::{Arith, Variants},
};

impl Kernel {
    /// [`Kernel::all_under`], but for those that multiply two, five, six or seven rows, whose texts differ from those for one, three,
    /// four and eight by that number. All, where `SPEC_RUN_EVERY_SHADER` asks for it, as `.ci/full` does.
    pub fn asked_for(variants: Variants) -> Vec<Kernel> {
        let mut all = Kernel::all_under(variants);
        if env::var_os("SPEC_RUN_EVERY_SHADER").is_none() {
            all.retain(|kernel| kernel.few_rows().is_none_or(|rows| !matches!(rows.columns, 2 | 5..=7)));
        }
        all
    }

    /// One of each kernel under these variants: cooperative matrices have wider tiles of their own.
    pub fn all_under(variants: Variants) -> Vec<Kernel> {
        let mut all = Kernel::all();
        if variants.coop {
            let is_tile = |kernel: &&Kernel| matches!(kernel, Kernel::MatmulTile { arith: Arith::Int8, .. });
            let widened = |kernel: &Kernel| match *kernel {
                Kernel::MatmulTile { format, mode, lanes, coarse, arith, share, scales, .. } => {
                    Kernel::MatmulTile { format, mode, lanes, coarse, arith, width: 64, share, scales }
                }
                other => other,
            };
            let wide: Vec<_> = all.iter().filter(is_tile).map(widened).collect();
            all.extend(wide);
        }
        all
    }

    /// One of each kernel for every format and shape.
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::Add, Kernel::Take, Kernel::Scale, Kernel::Cap];
        all.extend([Kernel::Choose, Kernel::ExpertsSort, Kernel::ExpertsSum]);
        all.extend([Kernel::Best, Kernel::BestJoin, Kernel::Read]);
        all.extend([false, true].map(|inside| Kernel::NormGroups { inside }));
        for again in [false, true] {
            all.push(Kernel::Convolve { again });
            all.extend([false, true].map(|gated_delta| Kernel::Scan { gated_delta, lanes: 8, again }));
        }
        for curve in Curve::ALL {
            all.push(Kernel::Activate(curve));
            all.push(Kernel::Multiply { f: curve, g: Curve::Sigmoid });
        }
        all.extend(Arith::ALL.map(Kernel::Norm));
        for arith in [Arith::Summed, Arith::Int8] {
            all.extend([false, true].map(|whole| Kernel::NormUnscaled { arith, lanes: 16, whole }));
        }
        all.extend(Arith::ALL.map(Kernel::AttendJoin));
        all.extend(KvType::ALL.map(|keys| Kernel::Shift { keys }));
        for stored in Stored::all() {
            all.push(Kernel::RopeStore(stored));
            for shared in [false, true] {
                all.push(Kernel::Attend { split: true, shared, stored, arith: Arith::Float });
                all.extend(Arith::ALL.map(|arith| Kernel::Attend { split: false, shared, stored, arith }));
            }
        }
        for mode in [Mode::Store, Mode::Add, Mode::Gate(Curve::Silu), Mode::Activate(Curve::Gelu)] {
            let join = |scales| Kernel::MatmulJoin { mode, lanes: 16, width: 32, scales };
            all.extend([false, true].map(join));
        }
        all.extend([Arith::Summed, Arith::Int8].map(Kernel::Prepare));
        for format in Format::ALL {
            all.push(Kernel::Embed(format));
            for arith in Arith::ALL.into_iter().filter(|arith| arith.of(format) == *arith) {
                for coarse in [false, format.has_planes()] {
                    all.push(Kernel::HeadTile { format, lanes: 8, coarse, arith });
                    all.push(Kernel::HeadRows { format, lanes: 8, columns: 3, coarse, arith });
                }
                let gates = [Mode::Gate(Curve::Silu), Mode::Gate(Curve::Xielu), Mode::Activate(Curve::Gelu)];
                for mode in [Mode::Store, Mode::Add].into_iter().chain(gates) {
                    for coarse in [false, format.has_planes()] {
                        let lanes = 16;
                        let tile = |width, share, scales| Kernel::MatmulTile {
                            format,
                            mode,
                            lanes,
                            coarse,
                            arith,
                            width,
                            share,
                            scales,
                        };
                        all.extend([tile(16, 0, false), tile(32, 0, false), tile(32, 2, false)]);
                        all.push(Kernel::ExpertTile { format, mode, lanes, coarse, arith });
                        let lanes = 32;
                        all.push(Kernel::ExpertRows { format, mode, lanes, coarse, arith });
                        let rows = |columns, scales| Kernel::MatmulRows {
                            format,
                            mode,
                            lanes,
                            columns,
                            coarse,
                            arith,
                            scales,
                        };
                        all.extend((1..=8).map(|columns| rows(columns, false)));
                        if arith != Arith::Float && mode != Mode::Add {
                            all.extend([tile(16, 0, true), tile(32, 2, true)]);
                            all.extend([1, 4, 8].map(|columns| rows(columns, true)));
                        }
                    }
                }
                let (stored, lanes) = (Stored { keys: KvType::F16, values: KvType::F16 }, 32);
                for coarse in [false, format.has_planes()] {
                    let rows = |columns, scales| Kernel::StoreRows {
                        format,
                        lanes,
                        columns,
                        coarse,
                        arith,
                        stored,
                        scales,
                    };
                    all.extend((1..=8).map(|columns| rows(columns, false)));
                    if arith != Arith::Float {
                        all.extend([1, 4, 8].map(|columns| rows(columns, true)));
                    }
                }
                if arith == Arith::Int8 && format.description().fits_wide_tiles {
                    for (mode, coarse) in [(Mode::Add, false), (Mode::Gate(Curve::Silu), format.has_planes())]
                    {
                        let scales = mode != Mode::Add;
                        all.push(Kernel::MatmulWide { format, mode, lanes: 16, coarse, scales });
                    }
                }
                if arith.fits_gate_rows(format) {
                    let (curve, coarse) = (Curve::Silu, false);
                    let gate = |columns, scales| Kernel::GateRows {
                        format,
                        curve,
                        lanes,
                        columns,
                        coarse,
                        arith,
                        scales,
                    };
                    all.extend((1..=8).map(|columns| gate(columns, false)));
                    all.extend([1, 4, 8].map(|columns| gate(columns, true)));
                    let add = |columns| Kernel::AddRows { format, lanes, columns, coarse, arith };
                    all.extend([1, 4, 8].map(add));
                }
            }
        }
        all
    }
}
