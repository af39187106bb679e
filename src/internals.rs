//! What the tests and benches of this crate look at from inside. It is no part of the interface and may change at any time.

pub use crate::{
    backend::{Backend, Output, Rows, Seen, SlotView, View},
    kv::{CellClass, KvLayout, KvRoom, SlotShape},
    measure::{
        speeds::{of_file as speed_of_file, of_ram as speed_of_ram},
        stats::Spread,
    },
    placement::forecast::{Basis, COLUMNS, Known},
    runtime::{Plans, plan_elsewhere},
};

/// Matrix products and passes on the CPU.
pub mod cpu {
    pub use crate::backend::cpu::{
        CpuBackend, CpuConfig,
        matmul::{Acts, Mode, OutMatrix, Packed, PackedMemory, QuantRows, Weight, matmul},
    };
}

/// GPUs, and how one is chosen.
#[cfg(feature = "gpu")]
pub mod gpu {
    pub use crate::gpu::{AdapterChoice, Found, adapters, choose};
}

/// What a model's passes are made of.
pub mod plan {
    use crate::{Model, plan::Op};

    /// The operations of a pass, in their order: the name of each, and all its settings as text.
    pub fn operations(model: &Model) -> Vec<(String, String)> {
        let plan = &model.plan;
        let layers = plan.layers.iter().flat_map(|layer| [&layer.shared, &layer.attn, &layer.mlp]).flatten();
        let all = plan.embed.iter().chain(layers).chain(&plan.head);
        all.map(|op| {
            let whole = format!("{op:?}");
            let name = whole.split(['(', ' ']).next().unwrap_or_default().to_owned();
            let settings = match op {
                Op::Store(id) | Op::Attend(id) => format!("{:?}", plan.attention(*id)),
                Op::Convolve(id) | Op::Scan(id) => format!("{:?}", plan.mixer(*id)),
                Op::Choose(id) | Op::ExpertsGate(id) | Op::ExpertsDown(id) | Op::ExpertsSum(id) => {
                    format!("{:?}", plan.moe(*id))
                }
                _ => whole,
            };
            (name, settings)
        })
        .collect()
    }
}

/// Parts of the search for masks.
#[cfg(feature = "search")]
pub mod search {
    pub use crate::search::{
        candidate::Movable,
        judge::Judge,
        speed::{best, tokens_if_independent},
    };
}

/// Parts of what decides on drafts.
pub mod speculation {
    pub use crate::speculation::{
        costs::{DEFAULT_BUDGET, MOST_ROWS, measure},
        frequent::{Frequent, ONE_OF},
    };
}

/// Models in other formats.
pub mod quantize {
    pub use crate::quantize::{
        FileType, Planned, Quantized, Settings, WRITTEN,
        collect::{Chunks, Collector},
        importance::Importance,
        prune::{Numbers, Pruned, blocks, skipped, without},
        sums::{Format, Recorded, Sums},
    };
}

/// Models of random weights.
pub mod synth {
    pub use crate::synth::{
        Arch, Experts, Latent, Mix, Recipe, Recurrent, Shape, Skippable, Uniform, Widened,
    };
}
