//! What changes from pass to pass, in device buffers: tokens, cells, who sees what, the rotations, and the lists
//! of cells that attention walks.

use super::device::Gpu;
use crate::{
    Result,
    backend::{Rows, Seen, View},
    plan::{Rope, RopePairs},
};

/// For each row: its list of cells, and how far into it.
type Visible<'a> = &'a [Seen];

/// Where things stand in the buffer of row data, in words.
#[derive(Clone, Copy, Debug)]
pub struct Sections {
    pub max_rows: usize,
    pub n_slots: usize,
}

impl Sections {
    pub fn cells(&self) -> usize {
        self.max_rows
    }

    pub fn outputs(&self) -> usize {
        2 * self.max_rows
    }

    /// One word a slot: its view.
    pub fn views(&self) -> usize {
        3 * self.max_rows
    }

    /// Two words a row and view: where its list begins, and how much of it the row sees.
    pub fn spans(&self) -> usize {
        self.views() + self.n_slots
    }

    pub fn words(&self, views: usize) -> usize {
        self.spans() + 2 * views * self.max_rows
    }
}

pub struct RowData {
    pub sections: Sections,
    /// See [`Sections`].
    pub rows: wgpu::Buffer,
    /// Cosine and sine: `[rows, turned]`
    pub turns: wgpu::Buffer,
    pub lists: Lists,
    words: Vec<u32>,
}

impl RowData {
    pub fn new(gpu: &Gpu, max_rows: usize, n_slots: usize, n_cells: usize, turned: usize) -> Result<Self> {
        let sections = Sections { max_rows, n_slots };
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        // One view for all, and one for each slot that a mask left out.
        let words = sections.words(n_slots + 1);
        Ok(RowData {
            sections,
            rows: gpu.buffer("row data", 4 * words as u64, usage)?,
            turns: gpu.buffer("rotations", 8 * (max_rows * turned) as u64, usage)?,
            lists: Lists::new(gpu, n_cells)?,
            words: Vec::new(),
        })
    }

    /// Sends what the pass needs and the device does not have yet.
    pub fn send(&mut self, gpu: &Gpu, rope: &Rope, rows: &Rows) -> Result<()> {
        let mut lists = Distinct::default();
        self.words.clear();
        self.write(rows, &mut lists);
        self.lists.send(gpu, &lists.0)?;
        gpu.queue.write_buffer(&self.rows, 0, bytemuck::cast_slice(&self.words));
        let turns: Vec<[f32; 2]> = row_turns(rope, rows).collect();
        gpu.queue.write_buffer(&self.turns, 0, bytemuck::cast_slice(&turns));
        Ok(())
    }

    /// Sends the same for several passes to `ahead`, from where each takes its own when its turn comes. `None`, and
    /// nothing is sent, if there is no room.
    pub fn send_ahead<'a>(
        &mut self,
        gpu: &Gpu,
        rope: &Rope,
        passes: impl Iterator<Item = &'a Rows<'a>>,
        ahead: &wgpu::Buffer,
    ) -> Result<Option<Vec<Ahead>>> {
        let mut lists = Distinct::default();
        let mut places = Vec::new();
        self.words.clear();
        for rows in passes {
            let rows_at = 4 * self.words.len() as u64;
            self.write(rows, &mut lists);
            let turns_at = 4 * self.words.len() as u64;
            self.words.extend(row_turns(rope, rows).flatten().map(f32::to_bits));
            let end = 4 * self.words.len() as u64;
            places.push(Ahead {
                rows_at,
                rows_bytes: turns_at - rows_at,
                turns_at,
                turns_bytes: end - turns_at,
            });
        }
        if 4 * self.words.len() as u64 > ahead.size() {
            return Ok(None);
        }
        self.lists.send(gpu, &lists.0)?;
        gpu.queue.write_buffer(ahead, 0, bytemuck::cast_slice(&self.words));
        Ok(Some(places))
    }

    /// Appends a pass's row data, whose lists are then among `lists`.
    fn write<'a>(&mut self, rows: &'a Rows, lists: &mut Distinct<'a>) {
        let s = self.sections;
        // Slots often have a view each that is the same.
        let mut views: Vec<(Vec<usize>, Visible<'a>)> = Vec::new();
        let mut place = |view: &'a View| {
            let regions: Vec<usize> = view.lists.iter().map(|list| lists.region(list)).collect();
            let same = views.iter().position(|(r, visible)| *r == regions && *visible == view.visible);
            same.unwrap_or_else(|| {
                views.push((regions, &view.visible));
                views.len() - 1
            })
        };
        let places: Vec<usize> = rows.views.iter().map(&mut place).collect();
        let start = self.words.len();
        self.words.resize(start + s.words(views.len()), 0);
        let words = &mut self.words[start..];
        words[..rows.tokens.len()].copy_from_slice(rows.tokens);
        words[s.cells()..][..rows.tokens.len()].copy_from_slice(&rows.cells[0]);
        for (word, &output) in words[s.outputs()..].iter_mut().zip(rows.outputs) {
            *word = output as u32;
        }
        for of in rows.view_of_slot {
            words[s.views() + of.slot] = places[of.view] as u32;
        }
        for (v, (regions, visible)) in views.iter().enumerate() {
            for (row, &Seen { list, to: len, .. }) in visible.iter().enumerate() {
                let at = s.spans() + 2 * (v * s.max_rows + row);
                words[at] = (regions[list] * self.lists.n_cells) as u32;
                words[at + 1] = len as u32;
            }
        }
    }
}

/// Where a pass's row data wait.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    pub rows_at: u64,
    pub rows_bytes: u64,
    pub turns_at: u64,
    pub turns_bytes: u64,
}

/// Lists, each of them once.
#[derive(Default)]
struct Distinct<'a>(Vec<&'a [u32]>);

impl<'a> Distinct<'a> {
    fn region(&mut self, list: &'a [u32]) -> usize {
        self.0.iter().position(|&known| known == list).unwrap_or_else(|| {
            self.0.push(list);
            self.0.len() - 1
        })
    }
}

fn row_turns<'a>(rope: &'a Rope, rows: &'a Rows) -> impl Iterator<Item = [f32; 2]> + 'a {
    rows.positions.iter().flat_map(|&pos| turns(rope, f64::from(pos), rope.magnitude))
}

/// Cosine and sine of every pair at a position.
pub fn turns(rope: &Rope, pos: f64, magnitude: f32) -> impl Iterator<Item = [f32; 2]> + '_ {
    let scaled = move |x: f64| (x * f64::from(magnitude)) as f32;
    rope.freqs.iter().map(move |f| {
        let (sin, cos) = (pos * f).sin_cos();
        [scaled(cos), scaled(sin)]
    })
}

pub fn halves(rope: &Rope) -> u32 {
    u32::from(rope.pairs == RopePairs::Halves)
}

/// Lists of cells on the device. A list mostly grows at its end from pass to pass, so only what differs is sent.
pub struct Lists {
    pub buffer: wgpu::Buffer,
    /// Goes up when the buffer is another one.
    pub generation: u64,
    n_cells: usize,
    /// What each region of `n_cells` words holds.
    held: Vec<Vec<u32>>,
}

impl Lists {
    fn new(gpu: &Gpu, n_cells: usize) -> Result<Self> {
        Ok(Lists { buffer: Self::room(gpu, n_cells, 2)?, generation: 0, n_cells, held: vec![Vec::new(); 2] })
    }

    fn room(gpu: &Gpu, n_cells: usize, regions: usize) -> Result<wgpu::Buffer> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        gpu.buffer("lists of cells", 4 * (n_cells * regions) as u64, usage)
    }

    fn send(&mut self, gpu: &Gpu, lists: &[&[u32]]) -> Result<()> {
        if lists.len() > self.held.len() {
            let regions = lists.len().next_power_of_two();
            let grown = Self::room(gpu, self.n_cells, regions)?;
            gpu.release(std::mem::replace(&mut self.buffer, grown));
            self.generation += 1;
            self.held = vec![Vec::new(); regions];
        }
        for (region, (held, list)) in self.held.iter_mut().zip(lists).enumerate() {
            let same = std::iter::zip(&*held, *list).take_while(|(a, b)| a == b).count();
            if same < list.len() {
                let at = 4 * (region * self.n_cells + same) as u64;
                gpu.queue.write_buffer(&self.buffer, at, bytemuck::cast_slice(&list[same..]));
                held.truncate(same);
                held.extend_from_slice(&list[same..]);
            }
        }
        Ok(())
    }
}
