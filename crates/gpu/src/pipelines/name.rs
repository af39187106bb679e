//! What kernels are called in the table of `--profile`.

use super::Kernel;
use crate::variants::Arith;

impl Kernel {
    pub fn name(self) -> String {
        match self {
            Kernel::Embed(format) => format!("embed {}", format.name()),
            Kernel::Norm(_) | Kernel::NormUnscaled { .. } => "norm".into(),
            Kernel::MatmulRows { format, columns, coarse, arith, .. }
            | Kernel::StoreRows { format, columns, coarse, arith, .. }
            | Kernel::GateRows { format, columns, coarse, arith, .. }
            | Kernel::AddRows { format, columns, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("matmul {}{high} x{columns}{}", format.name(), arith.suffix())
            }
            Kernel::MatmulTile { format, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("matmul {}{high} tile{}", format.name(), arith.suffix())
            }
            Kernel::MatmulWide { format, coarse, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("matmul {}{high} wide tile{}", format.name(), Arith::Int8.suffix())
            }
            Kernel::MatmulJoin { .. } => "matmul join".into(),
            Kernel::ExpertRows { format, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("experts {}{high} pairs{}", format.name(), arith.suffix())
            }
            Kernel::ExpertTile { format, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("experts {}{high} tile{}", format.name(), arith.suffix())
            }
            Kernel::HeadRows { format, columns, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("heads {}{high} x{columns}{}", format.name(), arith.suffix())
            }
            Kernel::HeadTile { format, coarse, arith, .. } => {
                let high = if coarse { " high" } else { "" };
                format!("heads {}{high} tile{}", format.name(), arith.suffix())
            }
            Kernel::Choose => "choose".into(),
            Kernel::ExpertsSort => "experts sort".into(),
            Kernel::ExpertsSum => "experts sum".into(),
            Kernel::Prepare(_) => "prepare".into(),
            Kernel::Activate(_) => "activate".into(),
            Kernel::NormGroups { .. } => "norm groups".into(),
            Kernel::Multiply { .. } => "multiply".into(),
            Kernel::Add => "add".into(),
            Kernel::Take => "take".into(),
            Kernel::Scale => "scale".into(),
            Kernel::Cap => "cap".into(),
            Kernel::RopeStore(_) => "rope store".into(),
            Kernel::Attend { split, shared, .. } => {
                let split = if split { " split" } else { "" };
                format!("attend{split}{}", if shared { " shared" } else { "" })
            }
            Kernel::AttendJoin(_) => "attend join".into(),
            Kernel::Convolve { again } => format!("convolve{}", if again { " again" } else { "" }),
            Kernel::Scan { again, .. } => format!("scan{}", if again { " again" } else { "" }),
            Kernel::Best => "best".into(),
            Kernel::BestJoin => "best join".into(),
            Kernel::Shift { .. } => "shift".into(),
            Kernel::Read => "read".into(),
        }
    }
}

impl Arith {
    fn suffix(self) -> &'static str {
        match self {
            Arith::Float | Arith::Summed => "",
            Arith::Int8 => " dot4",
        }
    }
}
