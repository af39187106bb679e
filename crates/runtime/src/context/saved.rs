//! The cells of a sequence as bytes, for a file and for another context of the same kind.
//!
//! The format: for each class of slots the first token that it still has, four bytes each. Then, slot by slot, the keys of all
//! tokens from there on, and their values. With recurrent layers then the number of tokens in four bytes, and the state of each
//! such layer after these tokens.

use crate::{Batch, Context, Error, Result, batch::SeqId, kv::KvCache};

impl Context {
    /// How keys, values and states are stored, where [`Context::save`] can take them out.
    pub fn kv_form(&self) -> Option<String> {
        let form = self.backend.saved()?.form();
        Some(match self.model.rope_change.described() {
            None => form,
            Some(change) => format!("{form} {change}"),
        })
    }

    /// The keys, values and states of a sequence whose tokens stand at 0, 1, 2 .. and were evaluated by the whole model. `None`
    /// where the device does not give them.
    pub fn save(&self, seq: SeqId) -> Result<Option<Vec<u8>>> {
        let Some(saved) = self.backend.saved() else { return Ok(None) };
        let cells = self.kv.cells(seq);
        let in_order = cells.iter().enumerate().all(|(at, &cell)| self.kv.pos(cell) as usize == at);
        if !in_order || self.kv.plain_prefix(seq) < cells.len() {
            return Err(Error::Input(
                "only a text from its beginning, evaluated by the whole model, can be saved".into(),
            ));
        }
        let states = self.kv.states_of(seq).ok_or_else(|| {
            Error::Input("a text without the states of all recurrent layers cannot be saved".into())
        })?;
        let mut bytes = Vec::new();
        let firsts: Vec<usize> = (0..self.kv.classes()).map(|class| first(&self.kv, class, cells)).collect();
        for &first in &firsts {
            bytes.extend_from_slice(&(first as u32).to_le_bytes());
        }
        for slot in 0..self.kv.n_layer() {
            let class = self.kv.class_of(slot);
            let places: Vec<u32> =
                cells[firsts[class]..].iter().map(|&cell| self.kv.place(class, cell)).collect();
            saved.take_kv(slot, &places, &mut bytes);
        }
        if !states.is_empty() {
            bytes.extend_from_slice(&(cells.len() as u32).to_le_bytes());
        }
        for (layer, slab) in states.into_iter().enumerate() {
            saved.take_state(layer, slab, &mut bytes);
        }
        Ok(Some(bytes))
    }

    /// Makes an empty sequence of `count` tokens, whose keys, values and states were saved in a context of the same model and the same
    /// form. On an error it stays empty.
    pub fn load(&mut self, seq: SeqId, count: usize, bytes: &[u8]) -> Result<()> {
        let loaded = self.load_rows(seq, count, bytes);
        if loaded.is_err() {
            self.remove(seq);
        }
        loaded
    }

    fn load_rows(&mut self, seq: SeqId, count: usize, bytes: &[u8]) -> Result<()> {
        let wrong = || Error::Input("the saved keys and values are not of so many tokens".into());
        if !self.kv.is_empty(seq) {
            return Err(Error::Batch(format!("sequence {seq} is in use")));
        }
        let classes = self.kv.classes();
        let (heads, mut rest) = bytes.split_at_checked(4 * classes).ok_or_else(wrong)?;
        let (heads, _) = heads.as_chunks::<4>();
        let firsts: Vec<usize> = heads.iter().map(|head| u32::from_le_bytes(*head) as usize).collect();
        if firsts.iter().any(|&first| first > count) {
            return Err(wrong());
        }
        // Cells are given as passes would do it, so that windows forget what they do not reach at the end.
        let tokens = vec![0; count];
        for (n, part) in tokens.chunks(self.backend.max_rows()).enumerate() {
            let rows = Batch::prompt(part, (n * self.backend.max_rows()) as u32, seq).rows;
            self.kv.append(&rows, None)?;
        }
        let cells = self.kv.cells(seq).to_vec();
        for (class, &first) in firsts.iter().enumerate() {
            cells[..first].iter().for_each(|&cell| self.kv.forget_place(class, cell));
            if cells[first..].iter().any(|&cell| !self.kv.has_place(class, cell)) {
                return Err(Error::Input(
                    "the saved text has more of what layers with a window see than there is room for here"
                        .into(),
                ));
            }
        }
        let saved = self.backend.saved_mut().ok_or_else(wrong)?;
        for slot in 0..self.kv.n_layer() {
            let class = self.kv.class_of(slot);
            let places: Vec<u32> =
                cells[firsts[class]..].iter().map(|&cell| self.kv.place(class, cell)).collect();
            rest = saved.put_kv(slot, &places, rest).ok_or_else(wrong)?;
        }
        let states = self.kv.put_states(seq)?;
        if !states.is_empty() {
            let (saved, behind) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            if u32::from_le_bytes(*saved) as usize != count {
                return Err(wrong());
            }
            rest = behind;
        }
        for (layer, slab) in states.into_iter().enumerate() {
            rest = saved.put_state(layer, slab, rest).ok_or_else(wrong)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

/// The first token from which on a class of slots has all.
fn first(kv: &KvCache, class: usize, cells: &[u32]) -> usize {
    cells.iter().rposition(|&cell| !kv.has_place(class, cell)).map_or(0, |last| last + 1)
}
