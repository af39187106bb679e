//! How many threads the kernels' workgroups have.

/// How wide the kernels are on a device. It fixes the order of sums, so the bits too, and never changes while a
/// device is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a workgroup of `matmul_rows`.
    pub matmul: u32,
    /// Threads of a workgroup of `gate_rows` for up to four columns; half as many for more.
    pub gate: u32,
    /// Threads of a workgroup of norms.
    pub norm: u32,
    /// Threads of a workgroup of rotations.
    pub rope: u32,
    /// Threads of a workgroup of attention, and by how many of them a pair of numbers is made: one or four.
    pub attend: u32,
    pub attend_shares: u32,
    /// Workgroups that keep the device busy: where there are as many, heads share what they read.
    pub crowd: u32,
}

impl Tuning {
    /// A card.
    pub const HARDWARE: Tuning =
        Tuning { matmul: 64, gate: 256, norm: 256, rope: 64, attend: 256, attend_shares: 4, crowd: 512 };
    /// A processor that plays a GPU: barriers are dear and threads run eight at a time.
    pub const SOFTWARE: Tuning =
        Tuning { matmul: 8, gate: 8, norm: 8, rope: 8, attend: 8, attend_shares: 1, crowd: 1 };

    /// Lanes that share a row of so many blocks: enough to keep many loads under way, not more than have work.
    pub fn lanes(&self, blocks: usize) -> u32 {
        let wanted = match blocks {
            0..=32 => 8,
            33..=128 => 16,
            _ => 32,
        };
        wanted.min(self.matmul)
    }

    /// Pairs of rows that a workgroup of `gate_rows` makes at once.
    pub(super) fn gate_pairs(&self, lanes: u32, columns: u32) -> u32 {
        let threads = if columns > 4 { self.gate / 2 } else { self.gate };
        (threads / lanes).max(1)
    }
}
