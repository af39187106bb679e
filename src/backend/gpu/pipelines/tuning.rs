//! How many threads the kernels' workgroups have, and how products are cut into workgroups.

use crate::backend::gpu::work::TILE_ROWS;

/// Room for sums of lanes that workgroups of a tile share. Where they do not fit, tiles do not share.
pub const LANE_SUMS_BYTES: usize = 16 << 20;

/// How wide the kernels are on a device. It fixes the order of sums, so the bits too, and never changes while a
/// device is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a workgroup of `matmul_rows`.
    pub matmul: u32,
    /// From so many columns on a thread of `matmul_rows` and `gate_rows` has four rows instead of two. No bit depends
    /// on it.
    pub four: u32,
    /// Threads of a workgroup of `gate_rows` for up to four columns of two rows; half as many for more, and again for
    /// four rows.
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

/// Rows of a matrix that a tile has.
pub const TILE_HEIGHT: u32 = 64;

/// How a product with many rows is cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Columns of a tile.
    pub width: u32,
    /// Lanes that a workgroup makes, whose sums are then added by another kernel; 0: all, and it adds them.
    pub share: u32,
    pub groups: [u32; 3],
}

impl Tiling {
    /// Of a product with so many columns, all lanes in a workgroup.
    pub fn whole(matrix_rows: u32, columns: usize) -> Self {
        let width = if columns <= TILE_ROWS / 2 { TILE_ROWS / 2 } else { TILE_ROWS };
        let groups = [matrix_rows.div_ceil(TILE_HEIGHT), columns.div_ceil(width) as u32, 1];
        Tiling { width: width as u32, share: 0, groups }
    }

    /// The same with so many lanes in each.
    pub fn shared(self, lanes: u32, share: u32) -> Self {
        let [down, across, _] = self.groups;
        Tiling { share, groups: [down, across, lanes / share], ..self }
    }

    /// Bytes of the sums that workgroups leave, of so many lanes.
    pub fn sums_bytes(self, matrix_rows: u32, lanes: u32) -> usize {
        4 * (lanes * matrix_rows) as usize * (self.width * self.groups[1]) as usize
    }
}

impl Tuning {
    /// A card.
    pub const HARDWARE: Tuning = Tuning {
        matmul: 64,
        four: 3,
        gate: 256,
        norm: 256,
        rope: 64,
        attend: 256,
        attend_shares: 4,
        crowd: 512,
    };
    /// A processor that plays a GPU: barriers are dear and threads run eight at a time.
    pub const SOFTWARE: Tuning =
        Tuning { matmul: 8, four: 9, gate: 8, norm: 8, rope: 8, attend: 8, attend_shares: 1, crowd: 1 };

    /// Lanes that share a row of so many blocks: enough to keep many loads under way, not more than have work.
    pub fn lanes(&self, blocks: usize) -> u32 {
        let wanted = match blocks {
            0..=32 => 8,
            33..=128 => 16,
            _ => 32,
        };
        wanted.min(self.matmul)
    }

    /// Tiles whose workgroups share lanes where there would be too few of them, and their sums fit so many bytes.
    pub fn tiling(&self, matrix_rows: u32, columns: usize, lanes: u32, room: usize) -> Tiling {
        let whole = Tiling::whole(matrix_rows, columns);
        let [down, across, _] = whole.groups;
        let parts = (self.crowd / (down * across).max(1)).next_power_of_two().min(lanes);
        let shares = parts > 1 && whole.sums_bytes(matrix_rows, lanes) <= room;
        if shares { whole.shared(lanes, lanes / parts) } else { whole }
    }

    /// Rows that a thread of the row kernels has.
    pub fn rows_each(&self, columns: u32) -> u32 {
        if columns < self.four { 2 } else { 4 }
    }

    /// Rows that a workgroup of `matmul_rows` makes.
    pub fn rows_at_once(&self, lanes: u32, columns: u32) -> u32 {
        self.rows_each(columns) * (self.matmul / lanes)
    }

    /// Teams of threads that share rows in a workgroup of `gate_rows`.
    pub(super) fn gate_teams(&self, lanes: u32, columns: u32) -> u32 {
        let less = u32::from(columns > 4) + u32::from(self.rows_each(columns) > 2);
        (self.gate >> less).div_ceil(lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of 4096 by 4096 has 16 lanes.
    #[test]
    fn nine_rows_keep_no_fewer_workgroups_busy_than_eight() {
        let groups = |columns| {
            let tiling = Tuning::HARDWARE.tiling(4096, columns, 16, LANE_SUMS_BYTES);
            tiling.groups.iter().product::<u32>()
        };
        let rows = 4096 / Tuning::HARDWARE.rows_at_once(16, 8);
        assert_eq!(rows, 256);
        assert_eq!([9, 16, 17, 32, 64].map(groups), [512; 5]);
        // Enough by themselves; sums without room.
        assert_eq!(groups(512), 1024);
        assert_eq!(Tuning::HARDWARE.tiling(4096, 9, 16, 1 << 20).groups, [64, 1, 1]);
        assert_eq!(Tuning::SOFTWARE.tiling(4096, 9, 8, LANE_SUMS_BYTES).groups, [64, 1, 1]);
    }
}
