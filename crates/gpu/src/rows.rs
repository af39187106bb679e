//! What changes from pass to pass, in device buffers: tokens, cells, which cells each row sees, the rotations, and the lists of
//! cells that attention walks.

use super::device::Gpu;
use crate::{
    Result,
    backend::{Rows, Seen, View},
    kv::KvLayout,
    plan::{EmbedBy, Op, Plan, Rope, RopeId, RopePairs, Temperature},
};

/// For each row: its list of cells, and which part of it the row sees.
type Visible<'a> = &'a [Seen];

/// Offsets in the buffer of row data, in words.
#[derive(Clone, Debug)]
pub struct Sections {
    pub max_rows: usize,
    n_slots: usize,
    n_classes: usize,
    /// Whether there is a zero for each row: for plans that look up the first row of a table.
    zeros: bool,
    /// The windows of the plan's attentions; `None` sees everything.
    windows: Vec<Option<u32>>,
    n_adapters: usize,
    /// The most numbers that are multiplied by a row's scale of an adapter.
    thin_width: usize,
}

impl Sections {
    pub fn new(plan: &Plan, max_rows: usize, layout: &KvLayout) -> Self {
        let mut windows: Vec<_> = plan.attentions.iter().map(|spec| spec.window).collect();
        windows.sort_unstable();
        windows.dedup();
        let (n_slots, n_classes) = (layout.slots.len(), layout.classes.len());
        let zeros = plan.ops().any(|op| matches!(op, Op::Embed { by: EmbedBy::First, .. }));
        let weighed = || {
            plan.ops().filter_map(|op| match *op {
                Op::Weigh { buf, adapter } => Some((adapter + 1, plan.width(buf))),
                _ => None,
            })
        };
        let n_adapters = weighed().map(|(count, _)| count).max().unwrap_or(0);
        let thin_width = weighed().map(|(_, width)| width).max().unwrap_or(0);
        Sections { max_rows, n_slots, n_classes, zeros, windows, n_adapters, thin_width }
    }

    /// Where the indexes begin with which the pass's rows are looked up in a table of tokens, of positions, or of a single row.
    pub fn picks(&self, by: EmbedBy) -> usize {
        match by {
            EmbedBy::Token => 0,
            EmbedBy::Position => self.max_rows,
            EmbedBy::First => 3 * self.max_rows,
        }
    }

    pub fn outputs(&self) -> usize {
        2 * self.max_rows
    }

    /// Of a class of slots.
    pub fn cells(&self, class: usize) -> usize {
        (3 + usize::from(self.zeros) + class) * self.max_rows
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.cells(self.n_classes)
    }

    /// A word that says which view attention with such a window has of a slot.
    pub fn view(&self, slot: usize, window: Option<u32>) -> usize {
        let of_slot = self.windows.iter().position(|&known| known == window).expect("a window of the plan");
        self.count() + 1 + slot * self.windows.len() + of_slot
    }

    /// Each row's scale of an adapter, as floats, repeated for each number that is multiplied by it.
    pub fn scales(&self, adapter: usize) -> usize {
        self.count() + 1 + self.n_slots * self.windows.len() + adapter * self.max_rows * self.thin_width
    }

    pub fn thin_width(&self) -> usize {
        self.thin_width
    }

    /// Two words a row and view: where its list begins, and how much of it the row sees.
    pub fn spans(&self) -> usize {
        self.scales(self.n_adapters)
    }

    pub fn words(&self, views: usize) -> usize {
        self.spans() + 2 * views * self.max_rows
    }

    /// The most views: for each window one of all slots, and one of each slot that a mask left out. At least one, also where
    /// nothing attends.
    pub fn most_views(&self) -> usize {
        (self.windows.len() * (self.n_slots + 1)).max(1)
    }

    /// The same where masks leave nothing out; one that repeats layers has another view of their slots.
    pub fn usual_views(&self) -> usize {
        2 * self.windows.len()
    }
}

/// What follows from the positions of rows: for each row the rotations of all tables, and factors of queries.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Where a table's pairs begin in a row.
    begins: Vec<usize>,
    factors: Vec<(Temperature, usize)>,
    /// Entries of a row.
    pub len: usize,
}

impl Turns {
    pub fn of(plan: &Plan) -> Self {
        let mut turns = Turns { begins: Vec::new(), factors: Vec::new(), len: 0 };
        for rope in &plan.ropes {
            turns.begins.push(turns.len);
            turns.len += rope.freqs.len();
        }
        for temperature in plan.attentions.iter().filter_map(|spec| spec.temperature) {
            if turns.factor(temperature).is_none() {
                turns.factors.push((temperature, turns.len));
                turns.len += 1;
            }
        }
        turns
    }

    pub fn begin(&self, RopeId(id): RopeId) -> usize {
        self.begins[id as usize]
    }

    /// Where the factor is in a row.
    pub fn factor(&self, temperature: Temperature) -> Option<usize> {
        self.factors.iter().find(|(known, _)| *known == temperature).map(|(_, at)| *at)
    }

    fn rows<'a>(&'a self, plan: &'a Plan, positions: &'a [u32]) -> impl Iterator<Item = [f32; 2]> + 'a {
        positions.iter().flat_map(move |&pos| {
            let ropes = plan.ropes.iter().flat_map(move |rope| turns(rope, f64::from(pos), rope.magnitude));
            ropes.chain(self.factors.iter().map(move |(temperature, _)| [temperature.at(pos), 0.0]))
        })
    }
}

pub struct RowData {
    pub sections: Sections,
    pub turns: Turns,
    /// See [`Sections`].
    pub rows: wgpu::Buffer,
    /// See [`Turns`]: a cosine and a sine, or a factor.
    pub turned: wgpu::Buffer,
    pub lists: Lists,
    words: Vec<u32>,
}

impl RowData {
    /// Bytes of all of it, without what lists may grow to.
    pub fn bytes(plan: &Plan, max_rows: usize, layout: &KvLayout) -> u64 {
        let sections = Sections::new(plan, max_rows, layout);
        let words = sections.words(sections.most_views()) + 2 * layout.n_cells();
        (4 * words + 8 * max_rows * Turns::of(plan).len) as u64
    }

    pub fn new(gpu: &Gpu, plan: &Plan, max_rows: usize, layout: &KvLayout) -> Result<Self> {
        let sections = Sections::new(plan, max_rows, layout);
        let turns = Turns::of(plan);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let words = sections.words(sections.most_views());
        Ok(RowData {
            rows: gpu.buffer("row data", 4 * words as u64, usage)?,
            turned: gpu.buffer("rotations", 8 * (max_rows * turns.len).max(1) as u64, usage)?,
            lists: Lists::new(gpu, layout.n_cells())?,
            words: Vec::new(),
            sections,
            turns,
        })
    }

    /// Sends what the pass needs and the device does not have yet.
    pub fn send(&mut self, gpu: &Gpu, plan: &Plan, rows: &Rows) -> Result<()> {
        let mut lists = Distinct::default();
        self.words.clear();
        self.write(rows, &mut lists);
        self.lists.send(gpu, &lists.0)?;
        gpu.queue.write_buffer(&self.rows, 0, bytemuck::cast_slice(&self.words));
        let turned: Vec<[f32; 2]> = self.turns.rows(plan, rows.positions).collect();
        gpu.queue.write_buffer(&self.turned, 0, bytemuck::cast_slice(&turned));
        Ok(())
    }

    /// Sends the same for several passes to `staged`, which is copied from before each pass. `None`, and nothing is sent, if
    /// that buffer is too small.
    pub fn send_staged<'a>(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        passes: impl Iterator<Item = &'a Rows<'a>>,
        staged: &wgpu::Buffer,
    ) -> Result<Option<Vec<StagedRows>>> {
        let mut lists = Distinct::default();
        let mut offsets = Vec::new();
        self.words.clear();
        for rows in passes {
            let rows_at = 4 * self.words.len() as u64;
            self.write(rows, &mut lists);
            let turns_at = 4 * self.words.len() as u64;
            self.words.extend(self.turns.rows(plan, rows.positions).flatten().map(f32::to_bits));
            let end = 4 * self.words.len() as u64;
            offsets.push(StagedRows {
                rows_at,
                rows_bytes: turns_at - rows_at,
                turns_at,
                turns_bytes: end - turns_at,
            });
        }
        if 4 * self.words.len() as u64 > staged.size() {
            return Ok(None);
        }
        self.lists.send(gpu, &lists.0)?;
        gpu.queue.write_buffer(staged, 0, bytemuck::cast_slice(&self.words));
        Ok(Some(offsets))
    }

    /// Appends a pass's row data, and adds its lists to `lists`.
    fn write<'a>(&mut self, rows: &'a Rows, lists: &mut Distinct<'a>) {
        let s = &self.sections;
        // Slots often have a view each that is the same.
        let mut views: Vec<(Vec<usize>, Visible<'a>)> = Vec::new();
        let mut index_of = |view: &'a View| {
            let regions: Vec<usize> = view.lists.iter().map(|list| lists.region(list)).collect();
            let same = views.iter().position(|(r, visible)| *r == regions && *visible == view.visible);
            same.unwrap_or_else(|| {
                views.push((regions, &view.visible));
                views.len() - 1
            })
        };
        let indexes: Vec<usize> = rows.views.iter().map(&mut index_of).collect();
        let start = self.words.len();
        self.words.resize(start + s.words(views.len()), 0);
        let words = &mut self.words[start..];
        words[..rows.tokens.len()].copy_from_slice(rows.tokens);
        words[s.picks(EmbedBy::Position)..][..rows.positions.len()].copy_from_slice(rows.positions);
        for (class, cells) in rows.cells.iter().enumerate() {
            words[s.cells(class)..][..cells.len()].copy_from_slice(cells);
        }
        for (word, &output) in words[s.outputs()..].iter_mut().zip(rows.outputs) {
            *word = output as u32;
        }
        words[s.count()] = rows.tokens.len() as u32;
        for of in rows.view_of_slot {
            words[s.view(of.slot, of.window)] = indexes[of.view] as u32;
        }
        for (row, scales) in rows.scales.iter().enumerate() {
            for adapter in 0..s.n_adapters {
                let scale = scales.as_ref().map_or(0.0, |scales| scales.of(adapter));
                words[s.scales(adapter) + row * s.thin_width..][..s.thin_width].fill(scale.to_bits());
            }
        }
        for (v, (regions, visible)) in views.iter().enumerate() {
            for (row, &Seen { list, from, to, .. }) in visible.iter().enumerate() {
                let at = s.spans() + 2 * (v * s.max_rows + row);
                words[at] = (regions[list] * self.lists.n_cells + from) as u32;
                words[at + 1] = (to - from) as u32;
            }
        }
    }
}

/// Where a pass's row data lie in the staging buffer.
#[derive(Clone, Copy, Debug)]
pub struct StagedRows {
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
    /// Increases when the lists get another buffer.
    pub generation: u64,
    n_cells: usize,
    /// What each region of `n_cells` words holds.
    held: Vec<Vec<u32>>,
}

impl Lists {
    fn new(gpu: &Gpu, n_cells: usize) -> Result<Self> {
        Ok(Lists {
            buffer: Self::list_buffer(gpu, n_cells, 2)?,
            generation: 0,
            n_cells,
            held: vec![Vec::new(); 2],
        })
    }

    fn list_buffer(gpu: &Gpu, n_cells: usize, regions: usize) -> Result<wgpu::Buffer> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        gpu.buffer("lists of cells", 4 * (n_cells * regions) as u64, usage)
    }

    fn send(&mut self, gpu: &Gpu, lists: &[&[u32]]) -> Result<()> {
        if lists.len() > self.held.len() {
            let regions = lists.len().next_power_of_two();
            let grown = Self::list_buffer(gpu, self.n_cells, regions)?;
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
