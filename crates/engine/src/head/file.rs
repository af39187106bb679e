//! The file of a head: one small GGUF with its matrices in 8 bits, the model that it is for, and how it was made.

use std::path::{Path, PathBuf};

use super::{HeadShape, Part, Weights};
use crate::{
    Error, Gguf, Model, Result,
    files::{with_suffix, write_whole},
    gguf::Writer,
    quant::{GgmlType, dequantize, quantize},
    quoted::Quoted,
};

const ARCHITECTURE: &str = "spec-run-head";
/// The version of the format and of the head's formula. A head of another version is refused.
const VERSION: u32 = 1;

const KEY_VERSION: &str = "head.version";
const KEY_MODEL: &str = "head.model.fingerprint";
const KEY_TAPS: &str = "head.taps";
const KEY_HIDDEN: &str = "head.hidden";
const KEY_EMBEDDING_RMS: &str = "head.embedding_rms";
const KEY_TOKENS: &str = "head.tokens";
const KEY_PROGRAM: &str = "head.made.program";
const KEY_TEXT_TOKENS: &str = "head.made.text_tokens";
const KEY_STEPS: &str = "head.made.steps";
const KEY_RIDGE: &str = "head.made.ridge";
const KEY_AGREEMENT: &str = "head.made.agreement";

/// The file where the head of a model is, if it has one.
pub fn default_path(model: &Path) -> PathBuf {
    with_suffix(&model.with_extension(""), ".head.gguf")
}

/// The head at that path, if it is there.
pub fn find_default(model: &Model) -> Option<PathBuf> {
    Some(default_path(Path::new(model.gguf.name()))).filter(|file| file.is_file())
}

/// How a head was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    /// Tokens of the model's own text that it was fitted to.
    pub text_tokens: u32,
    /// Steps of training.
    pub steps: u32,
    /// The ridge's strength.
    pub ridge: f32,
    /// On texts that it was not fitted to: how often the first drafted token is right, the first two, and so on.
    pub agreement: Vec<f32>,
}

/// A head of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Its numbers.
    pub weights: Weights,
    /// The model's most frequent tokens, most frequent first. Drafts choose from them at the beginning of a text.
    pub tokens: Vec<u32>,
    /// The root mean square of the model's table of tokens.
    pub embedding_rms: f32,
    /// How it was made.
    pub made: Made,
}

impl Head {
    /// Writes the file; it is there whole or not at all.
    pub fn write(&self, path: &Path, model: &Model) -> Result<()> {
        write_whole(path, self.bytes(&path.display().to_string(), model)?)
    }

    /// The bytes of the file. Messages call it `name`.
    pub fn bytes(&self, name: &str, model: &Model) -> Result<Vec<u8>> {
        let shape = self.weights.shape();
        let numbers = |list: &[usize]| list.iter().map(|&n| n as u32).collect::<Vec<_>>();
        let mut writer = Writer::new();
        writer
            .named(name)
            .set("general.architecture", ARCHITECTURE)
            .set("general.name", format!("head of {}", model.name))
            .set(KEY_VERSION, VERSION)
            .set(KEY_MODEL, model.fingerprint())
            .set(KEY_TAPS, numbers(&shape.taps))
            .set(KEY_HIDDEN, shape.hidden as u32)
            .set(KEY_TOKENS, self.tokens.clone())
            .set(KEY_EMBEDDING_RMS, self.embedding_rms)
            .set(KEY_PROGRAM, env!("CARGO_PKG_VERSION"))
            .set(KEY_TEXT_TOKENS, self.made.text_tokens)
            .set(KEY_STEPS, self.made.steps)
            .set(KEY_RIDGE, self.made.ridge)
            .set(KEY_AGREEMENT, self.made.agreement.clone());
        for part in Part::ALL {
            let [rows, cols] = shape.size(part);
            writer.tensor(part.name(), type_of(part), &[cols as u64, rows as u64]);
        }
        let mut file = Vec::new();
        writer.write(&mut file, |i, sink| {
            let part = Part::ALL[i];
            let mut blocks = Vec::new();
            quantize(type_of(part), self.weights.part(part), &mut blocks).expect("whole blocks");
            sink.write(&blocks)
        })?;
        Ok(file)
    }

    /// Reads the head of a model.
    pub fn open(path: &Path, model: &Model) -> Result<Self> {
        Self::of(&Gguf::read(path)?, model)
    }

    /// The head in a file, if it is one of that model.
    pub fn of(gguf: &Gguf, model: &Model) -> Result<Self> {
        let metadata = gguf.metadata();
        let error = |what: String| Error::gguf(gguf.name(), what);
        let architecture = metadata.str("general.architecture")?;
        if architecture != Some(ARCHITECTURE) {
            return Err(error(format!(
                "its architecture is {}, a head's is `{ARCHITECTURE}`: give a file that `fit` has written",
                Quoted(architecture.unwrap_or("")),
            )));
        }
        let number = |key: &str| metadata.u32(key)?.ok_or_else(|| metadata.missing(key));
        let list = |key: &str| metadata.u32s(key)?.ok_or_else(|| metadata.missing(key));
        let version = number(KEY_VERSION)?;
        if version != VERSION {
            return Err(error(format!(
                "a head of version {version}, this program reads version {VERSION}: fit it again"
            )));
        }
        let of = metadata.str(KEY_MODEL)?.ok_or_else(|| metadata.missing(KEY_MODEL))?;
        let fingerprint = model.fingerprint();
        if of != fingerprint {
            return Err(error(format!(
                "a head of another model ({}; {} is {fingerprint}): fit one for this model",
                Quoted(of),
                model.name
            )));
        }
        let taps: Vec<usize> = list(KEY_TAPS)?.into_iter().map(|tap| tap as usize).collect();
        let n_layer = model.n_layer();
        if !taps.is_sorted_by(|a, b| a < b) || taps.iter().any(|tap| !(1..n_layer).contains(tap)) {
            return Err(error(format!(
                "`{KEY_TAPS}` is {taps:?}, of {n_layer} layers: the file is damaged, fit it again"
            )));
        }
        let shape = HeadShape { dim: model.plan.dims.dim, taps, hidden: number(KEY_HIDDEN)? as usize };
        let tokens = list(KEY_TOKENS)?;
        let n_vocab = model.n_vocab();
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= n_vocab) {
            return Err(error(format!(
                "token {token} of `{KEY_TOKENS}` is not in the vocabulary of {n_vocab}: the file is damaged, fit it again"
            )));
        }
        if tokens.is_empty() {
            return Err(error(format!("`{KEY_TOKENS}` is empty: nothing to draft from; fit it again")));
        }
        let float = |key: &str| metadata.f32(key)?.ok_or_else(|| metadata.missing(key));
        let embedding_rms = float(KEY_EMBEDDING_RMS)?;
        if !(embedding_rms.is_finite() && embedding_rms > 0.0) {
            return Err(error(format!(
                "`{KEY_EMBEDDING_RMS}` is {embedding_rms}, a positive number is wanted: the file is damaged, fit it again"
            )));
        }
        let made = Made {
            text_tokens: number(KEY_TEXT_TOKENS)?,
            steps: number(KEY_STEPS)?,
            ridge: float(KEY_RIDGE)?,
            agreement: metadata.f32s(KEY_AGREEMENT)?.unwrap_or_default().to_vec(),
        };
        Ok(Head { weights: read_weights(gguf, shape)?, tokens, embedding_rms, made })
    }
}

fn type_of(part: Part) -> GgmlType {
    if part.is_matrix() { GgmlType::Q8_0 } else { GgmlType::F32 }
}

fn read_weights(gguf: &Gguf, shape: HeadShape) -> Result<Weights> {
    let error = |what: String| Error::gguf(gguf.name(), what);
    let tensors = Part::ALL.map(|part| {
        let (name, [rows, cols]) = (part.name(), shape.size(part));
        let tensor = gguf.tensor(name).ok_or_else(|| error(format!("no tensor `{name}`: fit it again")))?;
        let wanted = [cols as u64, rows as u64];
        if tensor.shape != wanted || tensor.ty != type_of(part) {
            return Err(error(format!(
                "`{name}` is {} {:?}, wanted {} {wanted:?}: fit it again",
                tensor.ty,
                tensor.shape,
                type_of(part),
            )));
        }
        Ok((part, tensor))
    });
    // The sizes are checked against the file before memory is allocated for them.
    let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
    let mut weights = Weights::zero(shape);
    for (part, tensor) in tensors {
        let numbers = weights.part_mut(part);
        dequantize(tensor.ty, gguf.bytes(tensor), numbers);
        if let Some(at) = numbers.iter().position(|x| !x.is_finite()) {
            return Err(error(format!(
                "`{}` has {} at number {at}: the file is damaged, fit it again",
                part.name(),
                numbers[at]
            )));
        }
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::gguf::Value;

    fn model() -> Model {
        let file =
            spec_run_fixtures::fixture("head_file", "models/stories260K.gguf").expect("the archive has it");
        Model::load(Arc::new(Gguf::open(&file).unwrap())).unwrap()
    }

    fn head(model: &Model) -> Head {
        let mut weights = Weights::zero(HeadShape::of(model).unwrap());
        // Whole 127ths with one of them in each block are kept by 8 bits.
        for (i, x) in weights.numbers_mut().iter_mut().enumerate() {
            *x = if i % 32 == 0 { 1.0 } else { (i % 97) as f32 / 127.0 };
        }
        let made = Made { text_tokens: 7, steps: 8, ridge: 0.5, agreement: vec![0.4, 0.2] };
        Head { weights, tokens: vec![3, 1, 2], embedding_rms: 0.5, made }
    }

    /// The message about a file that has other keys.
    fn refused(model: &Model, edit: impl Fn(&mut Writer)) -> String {
        let gguf = Gguf::from_bytes("x", head(model).bytes("x", model).unwrap()).unwrap();
        let mut writer = Writer::new();
        gguf.metadata().iter().for_each(|(key, value)| _ = writer.set(key, value.clone()));
        edit(&mut writer);
        gguf.tensors().iter().for_each(|t| _ = writer.tensor(&t.name, t.ty, &t.shape));
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |i, sink| sink.write(gguf.bytes(&gguf.tensors()[i]))).unwrap();
        Head::of(&Gguf::from_bytes("x", bytes).unwrap(), model).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let model = model();
        let head = head(&model);
        let gguf = Gguf::from_bytes("x", head.bytes("x", &model).unwrap()).unwrap();
        let read = Head::of(&gguf, &model).unwrap();
        assert_eq!((&read.tokens, &read.made, read.embedding_rms), (&head.tokens, &head.made, 0.5));
        for (found, wanted) in read.weights.numbers().iter().zip(head.weights.numbers()) {
            // The scale of a block is a half: 11 bits.
            assert!((found - wanted).abs() <= wanted.abs() / 2048.0, "{found} for {wanted}");
        }
    }

    #[test]
    fn heads_of_others_are_refused_in_one_line() {
        let model = model();
        let all = [
            (refused(&model, |w| _ = w.set(KEY_MODEL, "0123")), "a head of another model (`0123`"),
            (
                refused(&model, |w| _ = w.set(KEY_VERSION, 2u32)),
                "a head of version 2, this program reads version 1",
            ),
            (refused(&model, |w| _ = w.set("general.architecture", "llama")), "its architecture is `llama`"),
            (
                refused(&model, |w| _ = w.set(KEY_TOKENS, vec![1u32, 512])),
                "token 512 of `head.tokens` is not in",
            ),
            (refused(&model, |w| _ = w.set(KEY_TOKENS, Vec::<u32>::new())), "`head.tokens` is empty"),
            (
                refused(&model, |w| _ = w.set(KEY_EMBEDDING_RMS, -1f32)),
                "`head.embedding_rms` is -1, a positive",
            ),
            (refused(&model, |w| _ = w.set(KEY_EMBEDDING_RMS, f32::NAN)), "`head.embedding_rms` is NaN"),
            (refused(&model, |w| _ = w.set(KEY_TAPS, vec![3u32, 2])), "`head.taps` is [3, 2], of 5 layers"),
            (refused(&model, |w| _ = w.set(KEY_TAPS, vec![2u32, 5])), "`head.taps` is [2, 5], of 5 layers"),
            (refused(&model, |w| _ = w.set(KEY_HIDDEN, 32u32)), "`gate.weight` is Q8_0 [128, 128], wanted"),
            (refused(&model, |w| _ = w.set(KEY_STEPS, Value::Bool(true))), "metadata key `head.made.steps`"),
        ];
        for (message, begins) in all {
            assert!(message.starts_with(&format!("x: {begins}")), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn damaged_heads_are_refused_in_one_line() {
        let model = model();
        let bytes = head(&model).bytes("x", &model).unwrap();
        let cut = Gguf::from_bytes("x", bytes[..bytes.len() / 2].to_vec()).err().unwrap().to_string();
        assert!(cut.contains("incomplete") && !cut.contains('\n'), "{cut}");
        let mut wrong = head(&model);
        wrong.weights.part_mut(Part::Bias)[5] = f32::NAN;
        let gguf = Gguf::from_bytes("x", wrong.bytes("x", &model).unwrap()).unwrap();
        let message = Head::of(&gguf, &model).unwrap_err().to_string();
        assert!(message.starts_with("x: `embed.bias` has NaN at number 5"), "{message}");
    }
}
