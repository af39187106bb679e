//! Which kernels there are. What there is to say of each is in `table.rs`.

use super::super::{
    formats::Format,
    stored::Stored,
    tuning::{FEW_ROWS, FewRows, Tuning},
    variants::Arith,
};
use crate::{kv_type::KvType, plan::Activation};

/// Longer heads are not prepared for products by the kernel that makes them: its workgroup memory is too small.
pub const MOST_PREPARED_HEAD: usize = 512;

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
    pub(super) fn number(self) -> f64 {
        match self {
            Mode::Store => 0.0,
            Mode::Add => 1.0,
            Mode::Gate(_) => 2.0,
            Mode::Activate(_) => 3.0,
        }
    }
}

/// An activation without its numbers, in the order of their numbers in activation.wgsl.
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

impl Curve {
    #[cfg(test)]
    pub(super) const ALL: [Curve; 7] = {
        use Curve::*;
        [Silu, Gelu, ReluSquared, Sigmoid, ClampedSwiglu, Xielu, Line]
    };

    /// What activation.wgsl calls it.
    pub(super) fn number(self) -> f64 {
        f64::from(self as u8)
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
    /// `width`, `share`: see `tuning::Tiling`.
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

    /// Rows that a workgroup of a row kernel makes; not of `gate_rows` and `add_rows`, which always make as many.
    pub fn rows_at_once(self, tuning: &Tuning) -> u32 {
        tuning.rows_at_once(self.few_rows().expect("a row kernel"))
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
}
