//! The table of kernels: the name, the bindings, the texts and the constants of each.

use super::{
    Kernel, Mode,
    text::{Bindings, Description},
};
use crate::{formats::Format, stored::Stored, tuning::Tuning, variants::Arith};

/// Threads that make a row's choice of experts; with few of them Mesa's llvmpipe ends the loops over many experts early.
const CHOOSERS: u32 = 64;

/// What sums over a workgroup need.
const REDUCE: [&str; 2] = ["common/one", "common/reduce_shared"];

impl Kernel {
    pub fn description(self) -> Description {
        match self {
            Kernel::Embed(format) => {
                Description::new(format!("embed {}", format.name()), "rrrrw").format(format).files(&["embed"])
            }
            Kernel::Norm(Arith::Float) => Description::new("norm", "rrrw")
                .files(&REDUCE)
                .files(&["common/norm_plain", "norm"])
                .threads(|tuning| tuning.norm),
            Kernel::Norm(arith) => Description::new("norm", "rrrww")
                .files(&REDUCE)
                .prepares(arith)
                .files(&["common/kept", "common/norm_prepare", "norm"])
                .threads(|tuning| tuning.norm),
            Kernel::NormUnscaled { arith, lanes, whole } => Description::new("norm", "rrw")
                .prepares(arith)
                .files(&["common/kept", "common/mean_part", "norm_unscaled"])
                .threads(|tuning| tuning.norm)
                .constant("LANES", lanes)
                .flag("WHOLE", whole),
            Kernel::MatmulRows { format, mode, columns, coarse, arith, scales, .. } => {
                product("matmul", format, coarse, &format!("x{columns}"), arith, Bindings::MATMUL)
                    .rows(format, arith)
                    .files(&["common/one_matrix_in_turns", "matmul_rows"])
                    .few_rows(self, |tuning, few| tuning.matmul / few.lanes, scales)
                    .mode(mode)
            }
            Kernel::StoreRows { format, columns, coarse, arith, stored, scales, .. } => {
                product("matmul", format, coarse, &format!("x{columns}"), arith, Bindings::STORE_ROWS)
                    .rows_with(format, arith, &["common/kept", "common/product"])
                    .files(&["common/halves", "common/stored", "common/finish_heads", "common/one_matrix"])
                    .files(&["matmul_rows"])
                    .few_rows(self, |tuning, few| tuning.matmul / few.lanes, scales)
                    .stored(stored)
            }
            Kernel::GateRows { format, curve, columns, coarse, arith, scales, .. } => {
                product("matmul", format, coarse, &format!("x{columns}"), arith, Bindings::MATMUL_PREPARED)
                    .rows(format, arith)
                    .files(&["common/one_matrix"])
                    .prepares(arith)
                    .files(&["gate_rows"])
                    .few_rows(self, Tuning::gate_teams, scales)
                    .constant("ACTIVATION", curve.number())
            }
            Kernel::AddRows { format, columns, coarse, arith, .. } => {
                product("matmul", format, coarse, &format!("x{columns}"), arith, Bindings::ADD_ROWS)
                    .rows(format, arith)
                    .files(&["common/one_matrix"])
                    .prepares(arith)
                    .files(&["common/mean_part", "add_rows"])
                    .few_rows(self, Tuning::add_teams, false)
                    .mode(Mode::Add)
            }
            Kernel::ExpertRows { format, mode, coarse, arith, .. } => {
                product("experts", format, coarse, "pairs", arith, Bindings::EXPERT_MATMUL)
                    .rows(format, arith)
                    .files(&["common/expert_of_pair", "matmul_rows"])
                    .few_rows(self, |tuning, few| tuning.matmul / few.lanes, false)
                    .mode(mode)
            }
            Kernel::HeadRows { format, columns, coarse, arith, .. } => {
                product("heads", format, coarse, &format!("x{columns}"), arith, Bindings::MATMUL)
                    .rows(format, arith)
                    .files(&["common/matrix_of_head", "matmul_rows"])
                    .few_rows(self, |tuning, few| tuning.matmul / few.lanes, false)
                    .mode(Mode::Store)
            }
            Kernel::MatmulTile { format, mode, lanes, coarse, arith, width, share, scales } => {
                product("matmul", format, coarse, "tile", arith, Bindings::MATMUL)
                    .matrix_tile(format, arith)
                    .constant("LANES", lanes)
                    .mode(mode)
                    .constant("WIDTH", width)
                    .constant("SHARE", share)
                    .scales(scales)
            }
            Kernel::MatmulWide { format, mode, lanes, coarse, scales } => {
                product("matmul", format, coarse, "wide tile", Arith::Int8, Bindings::MATMUL)
                    .wide_tile(format)
                    .constant("LANES", lanes)
                    .mode(mode)
                    .scales(scales)
            }
            Kernel::MatmulJoin { mode, lanes, width, scales } => {
                Description::new("matmul join", Bindings::MATMUL)
                    .finish()
                    .files(&["common/one_matrix", "matmul_join"])
                    .constant("LANES", lanes)
                    .mode(mode)
                    .constant("WIDTH", width)
                    .scales(scales)
            }
            Kernel::HeadTile { format, lanes, coarse, arith } => {
                product("heads", format, coarse, "tile", arith, Bindings::MATMUL)
                    .tile(format, arith)
                    .files(&["common/matrix_of_head"])
                    .constant("LANES", lanes)
                    .mode(Mode::Store)
            }
            Kernel::ExpertTile { format, mode, lanes, coarse, arith } => {
                product("experts", format, coarse, "tile", arith, Bindings::EXPERT_MATMUL)
                    .tile(format, arith)
                    .files(&["common/expert_of_tile"])
                    .constant("LANES", lanes)
                    .mode(mode)
            }
            Kernel::Choose => {
                Description::new("choose", "rrrw").files(&REDUCE).files(&["choose"]).threads(|_| CHOOSERS)
            }
            Kernel::ExpertsSort => Description::new("experts sort", "rrw").files(&["experts_sort"]),
            Kernel::ExpertsSum => Description::new("experts sum", "rrw").files(&["experts_sum"]),
            Kernel::Prepare(arith) => Description::new("prepare", "rw").prepares(arith).files(&["prepare"]),
            Kernel::Activate(curve) => Description::new("activate", "rw")
                .files(&["common/activation", "activate"])
                .constant("ACTIVATION", curve.number()),
            Kernel::NormGroups { inside } => {
                let (bindings, rows) =
                    if inside { ("rrw", "common/rows_inside") } else { ("rrrw", "common/rows_apart") };
                Description::new("norm groups", bindings)
                    .files(&REDUCE)
                    .files(&[rows, "norm_groups"])
                    .threads(|tuning| tuning.norm)
            }
            Kernel::Multiply { f, g } => Description::new("multiply", "rw")
                .files(&["common/activation", "multiply"])
                .constant("F", f.number())
                .constant("G", g.number()),
            Kernel::Add => Description::new("add", "rrw").files(&["add"]),
            Kernel::Take => Description::new("take", "rw").files(&["take"]),
            Kernel::Scale => Description::new("scale", "w").files(&["scale"]),
            Kernel::Cap => Description::new("cap", "w").files(&["common/capped", "cap"]),
            Kernel::RopeStore(stored) => Description::new("rope store", "rrrrrwww")
                .files(&REDUCE)
                .files(&[
                    "common/halves",
                    "common/level_iq4",
                    "common/stored",
                    "common/stored_head",
                    "rope_store",
                ])
                .threads(|tuning| tuning.rope)
                .stored(stored),
            Kernel::Attend { split, shared, stored, arith } => {
                let name = match (split, shared) {
                    (false, false) => "attend",
                    (false, true) => "attend shared",
                    (true, false) => "attend split",
                    (true, true) => "attend split shared",
                };
                Description::new(name, if arith == Arith::Float { "rrrrrrw" } else { "rrrrrrww" })
                    .head(arith)
                    .files(&[if shared { "common/head_four" } else { "common/head_one" }])
                    .files(&["common/reduce_shared", "common/attention", "common/joint", "common/capped"])
                    .files(&["common/halves", "common/level_iq4", "common/levels", "common/stored"])
                    .files(&["common/stored_read", "common/scores", "common/weighted", "attend"])
                    .threads(|tuning| tuning.attend)
                    .flag("SPLIT", split)
                    .tuned("SHARES", |tuning| tuning.attend_shares)
                    .stored(stored)
            }
            Kernel::AttendJoin(arith) => {
                Description::new("attend join", if arith == Arith::Float { "rrrw" } else { "rrrww" })
                    .head(arith)
                    .files(&["common/one", "common/attention", "common/joint", "attend_join"])
                    .threads(|tuning| tuning.attend.min(64))
            }
            Kernel::Convolve { again } => {
                Description::new(if again { "convolve again" } else { "convolve" }, "rrrww")
                    .files(&["common/states", "convolve"])
                    .flag("AGAIN", again)
                    .tuned("ROW_LANES", |tuning| (tuning.norm / 32).max(1))
            }
            Kernel::Scan { gated_delta, lanes, again } => {
                Description::new(if again { "scan again" } else { "scan" }, "rrrrrww")
                    .files(&["common/states", "scan"])
                    .flag("AGAIN", again)
                    .flag("GATED_DELTA", gated_delta)
                    .constant("LANES", lanes)
            }
            Kernel::Best => Description::new("best", "rw")
                .files(&["common/rank"])
                .files(&REDUCE)
                .files(&["best"])
                .threads(|tuning| tuning.norm),
            Kernel::BestJoin => Description::new("best join", "rrw")
                .files(&["common/rank", "best_join"])
                .threads(|tuning| tuning.norm),
            Kernel::Shift { keys } => Description::new("shift", "rrww")
                .files(&["common/halves", "common/level_iq4", "common/levels", "common/stored"])
                .files(&["common/stored_read", "common/stored_head", "shift"])
                .stored(Stored { keys, values: keys }),
            Kernel::Read => Description::new("read", "rw").files(&["read"]),
        }
    }
}

/// Of a product of some kind, such as `matmul q4_0 high x3 dot4`.
fn product(
    kind: &str,
    format: Format,
    coarse: bool,
    regime: &str,
    arith: Arith,
    bindings: Bindings,
) -> Description {
    let high = if coarse { " high" } else { "" };
    let dots = if arith == Arith::Int8 { " dot4" } else { "" };
    Description::new(format!("{kind} {}{high} {regime}{dots}", format.name()), bindings)
        .coarse(format, coarse)
}
