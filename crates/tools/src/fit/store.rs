//! Texts of the model with the states that it computed on the way: states in a file, because they are many times as large as
//! memory may be, the rest in memory. The file is read again to go on with it later.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use half::{f16, slice::HalfFloatSliceExt};

use crate::{Error, Model, Result, head::HeadShape};

const MAGIC: &[u8; 8] = b"srstate1";
/// Numbers before a text's lists.
const COUNTS: usize = 5;

/// A text that the model has written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    pub prompt: Vec<u32>,
    /// What the model said.
    pub tokens: Vec<u32>,
    pub temp: f32,
    /// It judges, and nothing is fitted to it.
    pub held_out: bool,
    /// Of such a text: the full model's best tokens in the place of each of `tokens`, [`BEST`] of them.
    pub best: Vec<u32>,
}

/// The tokens of a place that join what drafts choose from.
pub const BEST: usize = 16;

impl Text {
    /// Tokens of which the head can predict the one after the next.
    pub fn rows(&self) -> usize {
        self.tokens.len().saturating_sub(1)
    }
}

/// The texts so far.
pub struct Store {
    path: PathBuf,
    file: Mutex<File>,
    texts: Vec<Text>,
    /// Where each text's states begin.
    begins: Vec<u64>,
    end: u64,
    most: u64,
    /// Numbers of one token's states.
    width: usize,
}

impl Store {
    /// An empty one in a new file, of at most `most` bytes.
    pub fn new(path: &Path, model: &Model, shape: &HeadShape, most: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        let mut file = file.map_err(|e| Error::io(path, e))?;
        let head = header(model, shape);
        file.write_all(&head).map_err(|e| Error::io(path, e))?;
        Ok(Store {
            path: path.to_owned(),
            file: Mutex::new(file),
            texts: Vec::new(),
            begins: Vec::new(),
            end: head.len() as u64,
            most,
            width: shape.inputs(),
        })
    }

    /// What was kept there, for the same model. A text that was cut short is left out.
    pub fn open(path: &Path, model: &Model, shape: &HeadShape, most: u64) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let wanted = header(model, shape);
        let mut head = vec![0; wanted.len()];
        let is_read = file.read_exact(&mut head).is_ok();
        if !is_read || head != wanted {
            let begins = is_read && head.starts_with(MAGIC);
            let what = if begins { "states of another model" } else { "no file of kept states" };
            let (path, name) = (path.display(), &model.name);
            return Err(Error::Input(format!("{path}: {what}; {name} cannot go on from it: begin anew")));
        }
        let mut store = Store {
            path: path.to_owned(),
            file: Mutex::new(file),
            texts: Vec::new(),
            begins: Vec::new(),
            end: wanted.len() as u64,
            most,
            width: shape.inputs(),
        };
        while let Some(text) = store.next_text(len)? {
            let lists = 4 * (COUNTS + text.prompt.len() + text.tokens.len() + text.best.len()) as u64;
            store.begins.push(store.end + lists);
            store.end += lists + store.state_bytes(text.tokens.len());
            store.texts.push(text);
        }
        Ok(store)
    }

    /// The text that begins at the end of those that are known, if it is all there.
    fn next_text(&self, len: u64) -> Result<Option<Text>> {
        let mut left = len - self.end;
        let mut file = self.file();
        let io = |e| Error::io(&self.path, e);
        file.seek(SeekFrom::Start(self.end)).map_err(io)?;
        let mut numbers = |count: usize| -> Result<Option<Vec<u32>>> {
            let Some(rest) = left.checked_sub(4 * count as u64) else { return Ok(None) };
            left = rest;
            let mut bytes = vec![0; 4 * count];
            file.read_exact(&mut bytes).map_err(io)?;
            Ok(Some(bytes.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect()))
        };
        let Some(counts) = numbers(COUNTS)? else { return Ok(None) };
        let Some(prompt) = numbers(counts[0] as usize)? else { return Ok(None) };
        let Some(tokens) = numbers(counts[1] as usize)? else { return Ok(None) };
        let Some(best) = numbers(counts[2] as usize)? else { return Ok(None) };
        if left < self.state_bytes(tokens.len()) {
            return Ok(None);
        }
        let (temp, held_out) = (f32::from_bits(counts[3]), counts[4] != 0);
        Ok(Some(Text { prompt, tokens, temp, held_out, best }))
    }

    fn state_bytes(&self, tokens: usize) -> u64 {
        (2 * tokens * self.width) as u64
    }

    fn file(&self) -> std::sync::MutexGuard<'_, File> {
        self.file.lock().expect("nobody panics with it")
    }

    /// Adds a text with the states before each of its tokens; says whether there was room for it.
    pub fn add(&mut self, text: Text, states: &[f32]) -> Result<bool> {
        assert_eq!(states.len(), text.tokens.len() * self.width, "states of each token");
        let lens = [&text.prompt, &text.tokens, &text.best].map(|list| list.len() as u32);
        let counts = lens.into_iter().chain([text.temp.to_bits(), u32::from(text.held_out)]);
        let lists = text.prompt.iter().chain(&text.tokens).chain(&text.best).copied();
        let mut bytes: Vec<u8> = counts.chain(lists).flat_map(u32::to_le_bytes).collect();
        let begin = self.end + bytes.len() as u64;
        let mut halves = vec![f16::ZERO; states.len()];
        halves.convert_from_f32_slice(states);
        bytes.extend(halves.iter().flat_map(|x| x.to_le_bytes()));
        if self.end + bytes.len() as u64 > self.most {
            return Ok(false);
        }
        let written = {
            let mut file = self.file();
            file.seek(SeekFrom::Start(self.end)).and_then(|_| file.write_all(&bytes))
        };
        written.map_err(|e| Error::io(&self.path, e))?;
        self.begins.push(begin);
        self.end += bytes.len() as u64;
        self.texts.push(text);
        Ok(true)
    }

    /// The first of these texts, until they have so many rows.
    pub fn first_of<'t>(&self, texts: &'t [usize], rows: usize) -> &'t [usize] {
        let mut before = 0;
        let wanted = texts.iter().take_while(|&&text| {
            let is_wanted = before < rows;
            before += self.texts()[text].rows();
            is_wanted
        });
        &texts[..wanted.count()]
    }

    pub fn texts(&self) -> &[Text] {
        &self.texts
    }

    /// Tokens in texts that are held out, or in the others.
    pub fn tokens(&self, held_out: bool) -> usize {
        self.texts.iter().filter(|text| text.held_out == held_out).map(|text| text.tokens.len()).sum()
    }

    /// Tokens in all texts.
    pub fn all_tokens(&self) -> usize {
        self.tokens(false) + self.tokens(true)
    }

    /// The states before each token of a text: `[tokens, width]`.
    pub fn states(&self, text: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; self.state_bytes(self.texts[text].tokens.len()) as usize];
        let read = {
            let mut file = self.file();
            file.seek(SeekFrom::Start(self.begins[text])).and_then(|_| file.read_exact(&mut bytes))
        };
        read.map_err(|e| Error::io(&self.path, e))?;
        let halves: Vec<f16> = bytes.as_chunks::<2>().0.iter().map(|&b| f16::from_le_bytes(b)).collect();
        let mut states = vec![0.0; halves.len()];
        halves.convert_to_f32_slice(&mut states);
        Ok(states)
    }
}

/// What the file begins with: the model, and what is kept of it.
fn header(model: &Model, shape: &HeadShape) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(model.fingerprint().bytes());
    let numbers =
        std::iter::once(shape.dim).chain(std::iter::once(shape.taps.len())).chain(shape.taps.iter().copied());
    bytes.extend(numbers.flat_map(|n| (n as u32).to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Gguf;

    fn model() -> Model {
        let file =
            spec_run_fixtures::fixture("fit_store", "models/stories260K.gguf").expect("the archive has it");
        Model::load(Arc::new(Gguf::open(&file).unwrap())).unwrap()
    }

    fn text(tokens: u32, held_out: bool) -> Text {
        Text { prompt: vec![1, 2], tokens: (0..tokens).collect(), temp: 0.8, held_out, best: vec![9; 3] }
    }

    #[test]
    fn texts_are_there_again_and_one_that_was_cut_short_is_not() {
        let (model, folder) = (model(), tempfile::tempdir().unwrap());
        let shape = HeadShape::of(&model).unwrap();
        let path = folder.path().join("states");
        // Halves keep such numbers.
        let states =
            |count: usize| -> Vec<f32> { (0..count * shape.inputs()).map(|i| i as f32 % 64.0).collect() };
        let mut store = Store::new(&path, &model, &shape, 1 << 20).unwrap();
        assert!(store.add(text(4, false), &states(4)).unwrap());
        assert!(store.add(text(3, true), &states(3)).unwrap());
        drop(store);
        let store = Store::open(&path, &model, &shape, 1 << 20).unwrap();
        assert_eq!(store.texts(), [text(4, false), text(3, true)]);
        assert_eq!((store.states(0).unwrap(), store.states(1).unwrap()), (states(4), states(3)));
        assert_eq!((store.tokens(false), store.tokens(true)), (4, 3));
        drop(store);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        let mut store = Store::open(&path, &model, &shape, 1 << 20).unwrap();
        assert_eq!(store.texts(), [text(4, false)]);
        assert!(store.add(text(2, false), &states(2)).unwrap());
        let store = Store::open(&path, &model, &shape, 1 << 20).unwrap();
        assert_eq!(store.texts(), [text(4, false), text(2, false)]);
        assert_eq!(store.states(1).unwrap(), states(2));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let (model, folder) = (model(), tempfile::tempdir().unwrap());
        let shape = HeadShape::of(&model).unwrap();
        let path = folder.path().join("states");
        let one = 2 * shape.inputs() as u64 + 4 * 11 + 80;
        let mut store = Store::new(&path, &model, &shape, 2 * one).unwrap();
        let states = vec![0.0; shape.inputs()];
        assert!(store.add(text(1, false), &states).unwrap());
        assert!(!store.add(text(1, false), &states).unwrap() || !store.add(text(1, false), &states).unwrap());
        assert!(std::fs::metadata(&path).unwrap().len() <= 2 * one);
    }

    #[test]
    fn states_of_others_are_refused() {
        let (model, folder) = (model(), tempfile::tempdir().unwrap());
        let shape = HeadShape::of(&model).unwrap();
        let path = folder.path().join("states");
        let refused = || Store::open(&path, &model, &shape, 1 << 20).err().unwrap().to_string();
        std::fs::write(&path, "something else").unwrap();
        assert!(refused().contains("no file of kept states"), "{}", refused());
        let other = HeadShape { taps: vec![1], ..shape.clone() };
        let mut store = Store::new(&path, &model, &other, 1 << 20).unwrap();
        store.add(text(9, false), &vec![0.0; 9 * other.inputs()]).unwrap();
        assert!(refused().contains("states of another model"), "{}", refused());
    }
}
