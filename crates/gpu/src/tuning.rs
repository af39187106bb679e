//! How many threads the kernels' workgroups have, and how products are cut into workgroups.

use super::{
    formats::{BLOCK, Format},
    variants::Arith,
};
use crate::backend::gpu::GpuWidths;

/// Rows of a tile of `matmul_tile`; buffers of rows have whole tiles.
pub const TILE_ROWS: usize = 32;

/// Up to so many rows the weights are read once for all of them, by a kernel for each number of rows.
pub const FEW_ROWS: usize = 8;

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

/// Capacity for the sums of lanes that workgroups of a tile share, with a scale for each column. Where they do not fit, tiles
/// do not share.
pub const LANE_SUMS_BYTES: usize = (16 << 20) + (4 << 10);

/// Bytes that a workgroup of the widest kernels shares; others get along with half of them, which every device has.
pub const MOST_SHARED: u32 = 32 << 10;

/// How wide the kernels are on a device. It fixes the order of sums, so the bits too, and never changes while a
/// device is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a workgroup of `matmul_rows`.
    pub matmul: u32,
    /// From so many columns to so many a thread of `matmul_rows` and `gate_rows` has four rows instead of two. No bit
    /// depends on it.
    pub four: u32,
    pub four_most: u32,
    /// The same for Q6_K's and Q2_K's numbers in floats, for which a thread needs the most registers, and for Q8_0's in
    /// `add_rows`.
    pub four_most_q6_k: u32,
    /// A thread has registers for the kernel of wide tiles. No bit depends on it.
    pub wide: bool,
    /// Threads of a workgroup of `gate_rows` for up to four columns of two rows; half as many for more, and again for
    /// four rows.
    pub gate: u32,
    /// Threads of a workgroup of norms.
    pub norm: u32,
    /// Up to so many rows the product before a deferred norm does the norm too. No bit depends on it.
    pub norms_in_products: u32,
    /// Up to so many rows are multiplied by the kernels of a few rows, in turns of at most eight. No bit depends on it.
    pub rows_in_turns: u32,
    /// Threads of a workgroup of rotations.
    pub rope: u32,
    /// Threads of a workgroup of attention, and by how many of them a pair of numbers is made: one or four.
    pub attend: u32,
    pub attend_shares: u32,
    /// How many workgroups keep the device busy. With so many, heads share what they read.
    pub crowd: u32,
}

/// Rows of a matrix that a tile has.
pub const TILE_HEIGHT: u32 = 64;

/// Columns of a wide tile, and rows of a matrix that it has.
pub const WIDE: u32 = 2 * TILE_ROWS as u32;
const WIDE_HEIGHT: u32 = 96;

/// The kernels of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// 64 rows of a matrix by 16 or 32 columns.
    Narrow,
    /// 96 by 64, by dots.
    Wide,
    /// 64 by 16, 32 or 64, by cooperative matrices.
    Squares,
}

impl Tiles {
    /// Those that a product may have, where there is work enough for them.
    pub fn of(format: Format, arith: Arith, coop: bool) -> Self {
        match arith {
            Arith::Int8 if coop => Tiles::Squares,
            Arith::Int8 if format.description().fits_wide_tiles => Tiles::Wide,
            Arith::Int8 | Arith::Summed | Arith::Float => Tiles::Narrow,
        }
    }
}

/// How a product with many rows is cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    pub tiles: Tiles,
    /// Columns of a tile.
    pub width: u32,
    /// Lanes that a workgroup makes, whose sums are then added by another kernel; 0: all, and it adds them.
    pub share: u32,
    pub groups: [u32; 3],
}

const HALF_TILE: usize = TILE_ROWS / 2;

/// Input and output have rows for whole tiles of half the width.
fn fills_wide(columns: usize) -> bool {
    columns.div_ceil(TILE_ROWS).is_multiple_of(2)
}

impl Tiling {
    /// Of a product with very many columns, by dots.
    pub fn wide(matrix_rows: u32, columns: usize) -> Self {
        let groups = [matrix_rows.div_ceil(WIDE_HEIGHT), (columns as u32).div_ceil(WIDE), 1];
        Tiling { tiles: Tiles::Wide, width: WIDE, share: 0, groups }
    }

    /// Of a product with so many columns, all lanes in a workgroup; not by wide tiles.
    pub fn whole(matrix_rows: u32, columns: usize, tiles: Tiles) -> Self {
        let tiles = if tiles == Tiles::Squares { Tiles::Squares } else { Tiles::Narrow };
        let width = match columns {
            0..=HALF_TILE => HALF_TILE,
            _ if columns > TILE_ROWS && tiles == Tiles::Squares && fills_wide(columns) => WIDE as usize,
            _ => TILE_ROWS,
        };
        let groups = [matrix_rows.div_ceil(TILE_HEIGHT), columns.div_ceil(width) as u32, 1];
        Tiling { tiles, width: width as u32, share: 0, groups }
    }

    /// The same with so many lanes in each.
    pub fn shared(self, lanes: u32, share: u32) -> Self {
        let [down, across, _] = self.groups;
        Tiling { share, groups: [down, across, lanes / share], ..self }
    }

    /// Bytes of the sums that workgroups leave, of so many lanes, and of a scale for each column.
    pub fn sums_bytes(self, matrix_rows: u32, lanes: u32) -> usize {
        4 * (lanes * matrix_rows + 1) as usize * (self.width * self.groups[1]) as usize
    }
}

/// How the kernels of a few rows multiply more of them: in several turns of equally many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    pub columns: u32,
    count: u32,
}

impl Turns {
    pub fn of(rows: usize) -> Self {
        let count = rows.div_ceil(FEW_ROWS);
        Turns { columns: rows.div_ceil(count) as u32, count: count as u32 }
    }

    /// Workgroups, from those that make the matrix once.
    pub fn groups(self, [across, down, _]: [u32; 3]) -> [u32; 3] {
        [self.count, across, down]
    }
}

impl Tuning {
    /// A card.
    pub const HARDWARE: Tuning = Tuning {
        matmul: 64,
        four: 3,
        four_most: 8,
        four_most_q6_k: 8,
        wide: true,
        gate: 512,
        norm: 256,
        norms_in_products: 4,
        rows_in_turns: 128,
        rope: 64,
        attend: 256,
        attend_shares: 4,
        crowd: 1024,
    };
    /// A card of AMD's before RDNA, whose compiler spills registers in wide tiles.
    pub const GCN: Tuning = Tuning { wide: false, ..Tuning::HARDWARE };
    /// Intel's graphics: half as many registers for a thread, where spilling costs far more than reading again.
    pub const INTEL: Tuning = Tuning {
        four_most: 4,
        four_most_q6_k: 3,
        wide: false,
        gate: 256,
        rows_in_turns: 16,
        ..Tuning::HARDWARE
    };
    /// A processor that plays a GPU: barriers are dear and threads run eight at a time.
    pub const SOFTWARE: Tuning = Tuning {
        matmul: 8,
        four: 9,
        four_most: 0,
        four_most_q6_k: 0,
        wide: false,
        gate: 8,
        norm: 8,
        norms_in_products: 0,
        rows_in_turns: 8,
        rope: 8,
        attend: 8,
        attend_shares: 1,
        crowd: 1,
    };

    /// As it was asked for.
    pub fn of(widths: GpuWidths) -> Tuning {
        let tuning = if widths.of_card { Tuning::HARDWARE } else { Tuning::SOFTWARE };
        Tuning { norms_in_products: widths.norms_in_products.unwrap_or(tuning.norms_in_products), ..tuning }
    }

    /// The same for a device with less of what workgroups may have.
    pub fn within(self, limits: &wgpu::Limits) -> Tuning {
        let threads = limits.max_compute_invocations_per_workgroup;
        let has_room = limits.max_compute_workgroup_storage_size >= MOST_SHARED && threads >= self.gate;
        Tuning { gate: if has_room { self.gate } else { self.gate.min(256) }, ..self }
    }

    /// Whether so many rows are multiplied by the kernels of a few rows, not by tiles.
    pub fn takes_turns(&self, rows: usize) -> bool {
        rows <= FEW_ROWS.max(self.rows_in_turns as usize)
    }

    /// Lanes that share a row of so many blocks: enough to keep many loads under way, not more than have work.
    pub fn lanes(&self, blocks: usize) -> u32 {
        let wanted = match blocks {
            0..=32 => 8,
            33..=128 => 16,
            _ => 32,
        };
        wanted.min(self.matmul)
    }

    /// Wide tiles, if they may be and there are enough of them; else tiles whose workgroups share lanes where there
    /// would be too few of them, and their sums fit so many bytes.
    pub fn tiling(
        &self,
        matrix_rows: u32,
        columns: usize,
        lanes: u32,
        capacity: usize,
        tiles: Tiles,
    ) -> Tiling {
        let wide = Tiling::wide(matrix_rows, columns);
        let is_enough = fills_wide(columns) && wide.groups[0] * wide.groups[1] >= self.crowd / 2;
        if tiles == Tiles::Wide && self.wide && is_enough {
            return wide;
        }
        let whole = Tiling::whole(matrix_rows, columns, tiles);
        let [down, across, _] = whole.groups;
        let parts = (self.crowd / (down * across).max(1)).next_power_of_two().min(lanes);
        let shares = parts > 1 && whole.sums_bytes(matrix_rows, lanes) <= capacity;
        if shares { whole.shared(lanes, lanes / parts) } else { whole }
    }

    /// Rows that a thread of a row kernel has.
    pub fn rows_each(&self, FewRows { format, arith, columns, shows, .. }: FewRows) -> u32 {
        let is_large = format.description().needs_registers || shows && format == Format::Q8_0;
        let is_largest = is_large && arith == Arith::Summed;
        let most = if is_largest { self.four_most_q6_k } else { self.four_most };
        if (self.four..=most).contains(&columns) { 4 } else { 2 }
    }

    /// Rows that a workgroup of a row kernel makes; not of `gate_rows` and `add_rows`, which always make as many.
    pub fn rows_at_once(&self, few: FewRows) -> u32 {
        self.rows_each(few) * (self.matmul / few.lanes)
    }

    /// The same of `add_rows`, which has a row of the matrix for a number.
    pub fn add_teams(&self, few: FewRows) -> u32 {
        self.gate_teams(few).min(BLOCK as u32 / self.rows_each(few))
    }

    /// Teams of threads that share rows in a workgroup of `gate_rows`: no more than a block's numbers have rows, two each.
    pub fn gate_teams(&self, few: FewRows) -> u32 {
        let each = self.rows_each(few);
        let less = u32::from(few.columns > 4) + u32::from(each > 2);
        (self.gate >> less).div_ceil(few.lanes).min(2 * BLOCK as u32 / each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipelines::{Kernel, Mode};

    fn rows_kernel(format: Format, lanes: u32, columns: u32, arith: Arith) -> Kernel {
        let (mode, coarse, scales) = (Mode::Store, false, false);
        Kernel::MatmulRows { format, mode, lanes, columns, coarse, arith, scales }
    }

    #[test]
    fn threads_have_four_rows_where_there_are_registers_for_them() {
        let each = |tuning: Tuning, format, arith| {
            let of = |columns| rows_kernel(format, tuning.matmul, columns, arith).rows_at_once(&tuning);
            (1..=8).map(of).collect::<Vec<_>>()
        };
        assert_eq!(each(Tuning::HARDWARE, Format::Q6_K, Arith::Summed), [2, 2, 4, 4, 4, 4, 4, 4]);
        assert_eq!(each(Tuning::INTEL, Format::Q4_0, Arith::Summed), [2, 2, 4, 4, 2, 2, 2, 2]);
        assert_eq!(each(Tuning::INTEL, Format::Q6_K, Arith::Int8), [2, 2, 4, 4, 2, 2, 2, 2]);
        // Four columns of it would be spilled.
        assert_eq!(each(Tuning::INTEL, Format::Q6_K, Arith::Summed), [2, 2, 4, 2, 2, 2, 2, 2]);
        assert_eq!(each(Tuning::SOFTWARE, Format::Q4_0, Arith::Int8), [2; 8]);
        let (format, coarse, arith) = (Format::Q8_0, false, Arith::Summed);
        let add = Kernel::AddRows { format, lanes: 32, columns: 4, coarse, arith };
        let each = [Tuning::INTEL, Tuning::HARDWARE].map(|tuning| tuning.rows_each(add.few_rows().unwrap()));
        assert_eq!(each, [2, 4]);
    }

    /// A block of a gate's numbers has 64 rows of the matrix.
    #[test]
    fn no_workgroup_of_a_gate_makes_more_than_a_block() {
        for tuning in [Tuning::SOFTWARE, Tuning::HARDWARE, Tuning::INTEL, Tuning::GCN] {
            for (lanes, columns) in [8, 16, 32].into_iter().flat_map(|lanes| (1..=8).map(move |n| (lanes, n)))
            {
                let (format, arith) = (Format::Q4_0, Arith::Int8);
                let few = FewRows { format, arith, lanes, columns, shows: false };
                let made = tuning.gate_teams(few) * tuning.rows_each(few);
                assert!(made <= 64, "{lanes} lanes, {columns} columns: {made} rows");
            }
        }
    }

    /// A matrix of 4096 by 4096 has 16 lanes.
    #[test]
    fn nine_rows_keep_no_fewer_workgroups_busy_than_eight() {
        let groups = |columns| {
            let tiling = Tuning::HARDWARE.tiling(4096, columns, 16, LANE_SUMS_BYTES, Tiles::Narrow);
            tiling.groups.iter().product::<u32>()
        };
        let kernel = rows_kernel(Format::Q4_0, 16, 8, Arith::Int8);
        assert_eq!(4096 / kernel.rows_at_once(&Tuning::HARDWARE), 256);
        assert_eq!([9, 16, 17, 32, 64].map(groups), [1024; 5]);
        // Enough by themselves; sums that do not fit.
        assert_eq!(groups(512), 1024);
        assert_eq!(Tuning::HARDWARE.tiling(4096, 9, 16, 1 << 20, Tiles::Wide).groups, [64, 1, 1]);
        assert_eq!(Tuning::SOFTWARE.tiling(4096, 9, 8, LANE_SUMS_BYTES, Tiles::Wide).groups, [64, 1, 1]);
    }

    #[test]
    fn turns_are_as_few_and_as_even_as_they_can_be() {
        let of = |rows| {
            let turns = Turns::of(rows);
            (turns.columns, turns.groups([7, 3, 1]))
        };
        assert_eq!([1, 8, 9, 16, 17].map(of).map(|(columns, _)| columns), [1, 8, 5, 8, 6]);
        assert_eq!(of(8).1, [1, 7, 3]);
        assert_eq!(of(17).1, [3, 7, 3]);
    }

    #[test]
    fn tiles_are_wide_where_that_leaves_enough_of_them() {
        let groups =
            |columns| Tuning::HARDWARE.tiling(4096, columns, 16, LANE_SUMS_BYTES, Tiles::Wide).groups;
        assert_eq!(groups(1024), [43, 16, 1]);
        assert_eq!(groups(512), [64, 16, 1]);
        // Rows for whole tiles of 32, not of 64; too few.
        assert_eq!(groups(480), [64, 15, 1]);
        assert_eq!(groups(256), [64, 8, 1]);
        // Cooperative matrices have tiles of all three widths, and share lanes where these are few.
        let squares = |columns| {
            let tiling = Tuning::HARDWARE.tiling(4096, columns, 16, LANE_SUMS_BYTES, Tiles::Squares);
            (tiling.width, tiling.groups)
        };
        assert_eq!(squares(512), (64, [64, 8, 1]));
        assert_eq!(squares(480), (32, [64, 15, 1]));
        assert_eq!(squares(16), (16, [64, 1, 16]));
        assert_eq!(Tuning::SOFTWARE.tiling(4096, 512, 8, LANE_SUMS_BYTES, Tiles::Wide).groups, [64, 16, 1]);
    }
}
