//! Which kernels there are, what they bind, and the constants that specialise their texts.

use super::{
    super::{formats::Format, stored::Stored, variants::Arith},
    Tuning,
};
use crate::{kv_type::KvType, plan::Activation};

/// Heads of more numbers are not prepared for products where they are made: there is no room for them.
pub const MOST_PREPARED_HEAD: usize = 512;

/// Up to so many rows the weights are read once for all of them, by a kernel for each number of rows.
pub const FEW_ROWS: usize = 8;

/// Threads that make a row's choice of experts; with few of them Mesa's llvmpipe ends the loops over many experts early.
const CHOOSERS: u32 = 64;

/// An enumeration, and a list of all that it has.
macro_rules! with_all {
    ($(#[$of_all:meta])* pub enum $name:ident { $($(#[$of_one:meta])* $one:ident,)* }) => {
        $(#[$of_all])*
        pub enum $name { $($(#[$of_one])* $one,)* }

        impl $name {
            pub(super) const ALL: &[$name] = &[$($name::$one,)*];
        }
    };
}

/// What becomes of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Store,
    Add,
    /// Even rows are a gate, odd ones what it lets through.
    Gate(Curve),
    Activate(Curve),
}

impl Mode {
    /// What finish.wgsl calls it.
    fn number(self) -> f64 {
        match self {
            Mode::Store => 0.0,
            Mode::Add => 1.0,
            Mode::Gate(_) => 2.0,
            Mode::Activate(_) => 3.0,
        }
    }

    fn constants(self) -> impl Iterator<Item = (&'static str, f64)> {
        let curve = match self {
            Mode::Store | Mode::Add => None,
            Mode::Gate(curve) | Mode::Activate(curve) => Some(("ACTIVATION", curve.number())),
        };
        [("MODE", self.number())].into_iter().chain(curve)
    }
}

with_all! {
    /// An activation without its numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Curve {
        Silu,
        Gelu,
        ReluSquared,
        Sigmoid,
        ClampedSwiglu,
        Xielu,
        /// Its argument.
        Line,
    }
}

impl Curve {
    /// What activation.wgsl calls it.
    fn number(self) -> f64 {
        Curve::ALL.iter().position(|&curve| curve == self).expect("all are there") as f64
    }

    pub fn of(activation: Option<Activation>) -> Self {
        activation.map_or(Curve::Line, Curve::from)
    }
}

impl From<Activation> for Curve {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Silu => Curve::Silu,
            Activation::Gelu => Curve::Gelu,
            Activation::ReluSquared => Curve::ReluSquared,
            Activation::Sigmoid => Curve::Sigmoid,
            Activation::ClampedSwiglu { .. } => Curve::ClampedSwiglu,
            Activation::Xielu { .. } => Curve::Xielu,
        }
    }
}

/// The numbers of an activation, as activation.wgsl takes them.
pub fn numbers_of(activation: Option<Activation>) -> [f32; 4] {
    match activation {
        Some(Activation::ClampedSwiglu { alpha, limit }) => [alpha, limit, 0.0, 0.0],
        Some(Activation::Xielu { positive, negative, beta, eps }) => [positive, negative, beta, eps],
        Some(Activation::Silu | Activation::Gelu | Activation::ReluSquared | Activation::Sigmoid) | None => {
            [0.0; 4]
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    Embed(Format),
    /// Rows as products of this kind want them.
    Norm(Arith),
    /// The same without the scale of the mean square, which products multiply their sums by. `lanes`: of these products;
    /// `whole`: leaves the scale, not the parts of it that products of a few rows add up.
    NormUnscaled {
        arith: Arith,
        lanes: u32,
        whole: bool,
    },
    /// `coarse`: from the high planes alone; `scales`: of rows that a norm left unscaled.
    MatmulRows {
        format: Format,
        mode: Mode,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
        scales: bool,
    },
    /// Queries, keys and values, rotated and stored as rope_store.wgsl does it, without a dispatch for that.
    StoreRows {
        format: Format,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
        stored: Stored,
        scales: bool,
    },
    /// A gate and what it lets through, made ready for another product as well.
    GateRows {
        format: Format,
        curve: Curve,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
        scales: bool,
    },
    /// Added to its output, and that made ready for the products behind the next norm, unscaled.
    AddRows {
        format: Format,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
    },
    /// `width`, `share`: see [`Tiling`](super::Tiling).
    MatmulTile {
        format: Format,
        mode: Mode,
        lanes: u32,
        coarse: bool,
        arith: Arith,
        width: u32,
        share: u32,
        scales: bool,
    },
    /// Wide tiles, by dots.
    MatmulWide {
        format: Format,
        mode: Mode,
        lanes: u32,
        coarse: bool,
        scales: bool,
    },
    /// Adds the sums of lanes that workgroups of a tile have shared.
    MatmulJoin {
        mode: Mode,
        lanes: u32,
        width: u32,
        scales: bool,
    },
    /// The matrix of one of the experts that a row chose, for a row and a place in its choice.
    ExpertRows {
        format: Format,
        mode: Mode,
        lanes: u32,
        coarse: bool,
        arith: Arith,
    },
    /// The same for many rows, sorted by expert.
    ExpertTile {
        format: Format,
        mode: Mode,
        lanes: u32,
        coarse: bool,
        arith: Arith,
    },
    /// The matrices of heads, each with its head's part of the rows.
    HeadRows {
        format: Format,
        lanes: u32,
        columns: u32,
        coarse: bool,
        arith: Arith,
    },
    HeadTile {
        format: Format,
        lanes: u32,
        coarse: bool,
        arith: Arith,
    },
    Choose,
    ExpertsSort,
    ExpertsSum,
    /// Activations as products of this kind want them.
    Prepare(Arith),
    /// A gate and an up matrix that were multiplied apart.
    Activate(Curve),
    /// Any norm of rows, or of groups of them; `inside`: of rows that lie in the same buffer.
    NormGroups {
        inside: bool,
    },
    Multiply {
        f: Curve,
        g: Curve,
    },
    Add,
    Take,
    Scale,
    /// Logits scaled and capped.
    Cap,
    RopeStore(Stored),
    /// `split`: each workgroup makes one chunk. `shared`: for up to four heads that share keys and values. `arith`:
    /// rows as products of this kind want them; chunks are always in floats.
    Attend {
        split: bool,
        shared: bool,
        stored: Stored,
        arith: Arith,
    },
    AttendJoin(Arith),
    /// `again`: states are made again from rows that were kept.
    Convolve {
        again: bool,
    },
    /// `lanes`: threads that share a column of a state.
    Scan {
        gated_delta: bool,
        lanes: u32,
        again: bool,
    },
    Best,
    BestJoin,
    Shift {
        keys: KvType,
    },
    /// Reads a buffer, to be timed.
    Read,
}

with_all! {
    /// Sets of bindings; kernels of one family can share bind groups.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Family {
        Embed,
        Norm,
        NormPrepared,
        NormUnscaled,
        Matmul,
        MatmulPrepared,
        AddRows,
        StoreRows,
        ExpertMatmul,
        Choose,
        ExpertsSort,
        ExpertsSum,
        Prepare,
        Activate,
        NormGroups,
        NormInside,
        Multiply,
        Add,
        Take,
        /// Of one buffer that is changed.
        Change,
        RopeStore,
        Attend,
        AttendPrepared,
        AttendJoin,
        AttendJoinPrepared,
        Convolve,
        Scan,
        Best,
        BestJoin,
        Shift,
        Read,
    }
}

impl Family {
    /// After the parameters at binding 0, a letter for each storage buffer: read or written. Prepared rows come last.
    pub fn storage(self) -> &'static str {
        match self {
            Family::Embed => "rrrrw",
            Family::Norm => "rrrw",
            Family::NormPrepared => "rrrww",
            Family::NormUnscaled => "rrw",
            Family::Matmul => "rrrrrw",
            Family::MatmulPrepared => "rrrrrww",
            Family::AddRows => "rrrrrwrw",
            Family::StoreRows => "rrrrrwrrww",
            Family::Prepare
            | Family::Activate
            | Family::Multiply
            | Family::Take
            | Family::Best
            | Family::Read => "rw",
            Family::ExpertMatmul => "rrrrrwr",
            Family::NormGroups | Family::Choose => "rrrw",
            Family::NormInside | Family::Add | Family::BestJoin => "rrw",
            Family::ExpertsSort | Family::ExpertsSum => "rrw",
            Family::Change => "w",
            Family::RopeStore => "rrrrrwww",
            Family::Attend => "rrrrrrw",
            Family::AttendPrepared => "rrrrrrww",
            Family::AttendJoin => "rrrw",
            Family::AttendJoinPrepared => "rrrww",
            Family::Convolve => "rrrww",
            Family::Scan => "rrrrrww",
            Family::Shift => "rrww",
        }
    }

    /// Whether the device binds so many buffers; what all kernels but a few need was asked of it when it was found.
    pub fn fits(self, limits: &wgpu::Limits) -> bool {
        self.storage().len() as u32 <= limits.max_storage_buffers_per_shader_stage
    }
}

impl Arith {
    /// The family of a kernel that may prepare what it makes for products.
    fn family(self, as_it_is: Family, prepared: Family) -> Family {
        if self == Arith::Float { as_it_is } else { prepared }
    }
}

/// What the kernels for a few rows have in common.
#[derive(Clone, Copy, Debug)]
pub struct FewRows {
    pub format: Format,
    pub arith: Arith,
    pub lanes: u32,
    pub columns: u32,
    /// What it adds to is prepared, too.
    pub shows: bool,
}

impl Kernel {
    /// What a kernel for a few rows multiplies, and how.
    pub fn few_rows(self) -> Option<FewRows> {
        match self {
            Kernel::MatmulRows { format, arith, lanes, columns, .. }
            | Kernel::StoreRows { format, arith, lanes, columns, .. }
            | Kernel::GateRows { format, arith, lanes, columns, .. }
            | Kernel::AddRows { format, arith, lanes, columns, .. }
            | Kernel::HeadRows { format, arith, lanes, columns, .. } => {
                let shows = matches!(self, Kernel::AddRows { .. });
                Some(FewRows { format, arith, lanes, columns, shows })
            }
            Kernel::ExpertRows { format, arith, lanes, .. } => {
                Some(FewRows { format, arith, lanes, columns: 1, shows: false })
            }
            _ => None,
        }
    }

    /// The same for other numbers of columns, where there is one for each.
    pub fn with_other_columns(self) -> impl Iterator<Item = Kernel> {
        let with = move |number| {
            let mut kernel = self;
            match &mut kernel {
                Kernel::MatmulRows { columns, .. }
                | Kernel::StoreRows { columns, .. }
                | Kernel::GateRows { columns, .. }
                | Kernel::AddRows { columns, .. }
                | Kernel::HeadRows { columns, .. } => *columns = number,
                _ => {}
            }
            kernel
        };
        (1..=FEW_ROWS as u32).map(with).filter(move |&kernel| kernel != self)
    }

    pub fn family(self) -> Family {
        match self {
            Kernel::Embed(_) => Family::Embed,
            Kernel::Norm(arith) => arith.family(Family::Norm, Family::NormPrepared),
            Kernel::NormUnscaled { .. } => Family::NormUnscaled,
            Kernel::GateRows { .. } => Family::MatmulPrepared,
            Kernel::AddRows { .. } => Family::AddRows,
            Kernel::StoreRows { .. } => Family::StoreRows,
            Kernel::MatmulRows { .. }
            | Kernel::MatmulTile { .. }
            | Kernel::MatmulWide { .. }
            | Kernel::MatmulJoin { .. }
            | Kernel::HeadRows { .. }
            | Kernel::HeadTile { .. } => Family::Matmul,
            Kernel::ExpertRows { .. } | Kernel::ExpertTile { .. } => Family::ExpertMatmul,
            Kernel::Choose => Family::Choose,
            Kernel::ExpertsSort => Family::ExpertsSort,
            Kernel::ExpertsSum => Family::ExpertsSum,
            Kernel::Prepare(_) => Family::Prepare,
            Kernel::Activate(_) => Family::Activate,
            Kernel::NormGroups { inside: false } => Family::NormGroups,
            Kernel::NormGroups { inside: true } => Family::NormInside,
            Kernel::Multiply { .. } => Family::Multiply,
            Kernel::Add => Family::Add,
            Kernel::Take => Family::Take,
            Kernel::Scale | Kernel::Cap => Family::Change,
            Kernel::RopeStore(_) => Family::RopeStore,
            Kernel::Attend { arith, .. } => arith.family(Family::Attend, Family::AttendPrepared),
            Kernel::AttendJoin(arith) => arith.family(Family::AttendJoin, Family::AttendJoinPrepared),
            Kernel::Convolve { .. } => Family::Convolve,
            Kernel::Scan { .. } => Family::Scan,
            Kernel::Best => Family::Best,
            Kernel::BestJoin => Family::BestJoin,
            Kernel::Shift { .. } => Family::Shift,
            Kernel::Read => Family::Read,
        }
    }

    /// Values of the text's overrides. `flushes_halves`: the device takes subnormal halves for zero.
    pub fn constants(self, tuning: &Tuning, flushes_halves: bool) -> Vec<(&'static str, f64)> {
        let width = |threads: u32| [("THREADS", f64::from(threads))].into_iter();
        let coarse_of = |format: Format, coarse| {
            format.has_planes().then_some(("COARSE", f64::from(u8::from(coarse)))).into_iter()
        };
        let scales_of = |scales: bool| scales.then_some(("SCALES", 1.0)).into_iter();
        let teams_of = |teams: u32, coarse, scales: bool| {
            let few = self.few_rows().expect("a row kernel");
            let FewRows { format, lanes, columns, .. } = few;
            let each = tuning.rows_each(few);
            let has_parts = scales && columns <= tuning.norms_in_products;
            let parts = if has_parts { columns.div_ceil(2) * lanes } else { 0 };
            [
                ("LANES", f64::from(lanes)),
                ("TEAMS", f64::from(teams)),
                ("EACH", f64::from(each)),
                ("COLUMNS", f64::from(columns)),
                ("SUMS", f64::from(each / 2 * columns * teams * lanes + parts)),
            ]
            .into_iter()
            .chain(coarse_of(format, coarse))
            .chain(scales_of(scales))
            .chain(has_parts.then_some(("PARTS", 1.0)))
        };
        let rows_of = |mode: Mode, lanes: u32, coarse, scales| {
            teams_of(tuning.matmul / lanes, coarse, scales).chain(mode.constants()).collect()
        };
        match self {
            Kernel::MatmulRows { mode, lanes, coarse, scales, .. } => rows_of(mode, lanes, coarse, scales),
            Kernel::ExpertRows { mode, lanes, coarse, .. } => rows_of(mode, lanes, coarse, false),
            Kernel::StoreRows { lanes, coarse, stored, scales, .. } => {
                let stored = stored.constants(flushes_halves);
                teams_of(tuning.matmul / lanes, coarse, scales).chain(stored).collect()
            }
            Kernel::HeadRows { lanes, coarse, .. } => rows_of(Mode::Store, lanes, coarse, false),
            Kernel::HeadTile { format, lanes, coarse, .. } => [("LANES", f64::from(lanes))]
                .into_iter()
                .chain(Mode::Store.constants())
                .chain(coarse_of(format, coarse))
                .collect(),
            Kernel::ExpertTile { format, mode, lanes, coarse, .. } => [("LANES", f64::from(lanes))]
                .into_iter()
                .chain(mode.constants())
                .chain(coarse_of(format, coarse))
                .collect(),
            Kernel::MatmulWide { format, mode, lanes, coarse, scales } => [("LANES", f64::from(lanes))]
                .into_iter()
                .chain(mode.constants())
                .chain(coarse_of(format, coarse))
                .chain(scales_of(scales))
                .collect(),
            Kernel::GateRows { curve, coarse, scales, .. } => {
                let teams = tuning.gate_teams(self.few_rows().expect("a row kernel"));
                teams_of(teams, coarse, scales).chain([("ACTIVATION", curve.number())]).collect()
            }
            Kernel::AddRows { coarse, .. } => {
                let teams = tuning.add_teams(self.few_rows().expect("a row kernel"));
                teams_of(teams, coarse, false).chain(Mode::Add.constants()).collect()
            }
            Kernel::MatmulTile { format, mode, lanes, coarse, width, share, scales, .. } => {
                [("LANES", f64::from(lanes))]
                    .into_iter()
                    .chain(mode.constants())
                    .chain(coarse_of(format, coarse))
                    .chain([("WIDTH", f64::from(width)), ("SHARE", f64::from(share))])
                    .chain(scales_of(scales))
                    .collect()
            }
            Kernel::MatmulJoin { mode, lanes, width, scales } => [("LANES", f64::from(lanes))]
                .into_iter()
                .chain(mode.constants())
                .chain([("WIDTH", f64::from(width))])
                .chain(scales_of(scales))
                .collect(),
            Kernel::Norm(_) | Kernel::NormGroups { .. } => width(tuning.norm).collect(),
            Kernel::NormUnscaled { lanes, whole, .. } => width(tuning.norm)
                .chain([("LANES", f64::from(lanes)), ("WHOLE", f64::from(u8::from(whole)))])
                .collect(),
            Kernel::Best | Kernel::BestJoin => vec![("THREADS", f64::from(tuning.norm))],
            Kernel::Choose => width(CHOOSERS).collect(),
            Kernel::RopeStore(stored) => width(tuning.rope).chain(stored.constants(flushes_halves)).collect(),
            Kernel::Attend { split, stored, .. } => width(tuning.attend)
                .chain([("SPLIT", f64::from(u8::from(split))), ("SHARES", f64::from(tuning.attend_shares))])
                .chain(stored.constants(flushes_halves))
                .collect(),
            Kernel::AttendJoin(_) => vec![("THREADS", f64::from(tuning.attend.min(64)))],
            Kernel::Convolve { again } => {
                let row_lanes = (tuning.norm / 32).max(1);
                vec![("AGAIN", f64::from(u8::from(again))), ("ROW_LANES", f64::from(row_lanes))]
            }
            Kernel::Scan { gated_delta, lanes, again } => vec![
                ("AGAIN", f64::from(u8::from(again))),
                ("GATED_DELTA", f64::from(u8::from(gated_delta))),
                ("LANES", f64::from(lanes)),
            ],
            Kernel::Shift { keys } => Stored { keys, values: keys }.constants(flushes_halves).to_vec(),
            Kernel::Activate(curve) => vec![("ACTIVATION", curve.number())],
            Kernel::Multiply { f, g } => vec![("F", f.number()), ("G", g.number())],
            Kernel::Embed(_)
            | Kernel::Prepare(_)
            | Kernel::Add
            | Kernel::Take
            | Kernel::Scale
            | Kernel::Cap
            | Kernel::ExpertsSort
            | Kernel::ExpertsSum
            | Kernel::Read => Vec::new(),
        }
    }
}
