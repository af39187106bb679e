//! Reads an adapter's file, and holds it to the model that it is for.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{Lora, LoraFile, Numbers, Part, Thin, check_scale};
use crate::{
    Error, Gguf, Model, Result,
    gguf::{TensorInfo, beside},
    model::TOKEN_TABLE,
    plan::WeightId,
    quant::{GgmlType, dequantize},
    quoted::{Quoted, one_line},
};

/// Adapters that begin in the middle of a text.
const ACTIVATED: &str = "adapter.alora.invocation_tokens";

/// The thin matrices of a name.
#[derive(Default)]
struct Pair<'a> {
    a: Option<&'a TensorInfo>,
    b: Option<&'a TensorInfo>,
}

impl Lora {
    /// Reads a file and finds the weights of the model that it belongs to.
    pub(super) fn open(LoraFile { path, scale }: &LoraFile, model: &Model) -> Result<Self> {
        check_scale(&path.display().to_string(), *scale)?;
        let file = Gguf::open(path)?;
        let alpha = check_kind(&file, model)?;
        let (pairs, left_out) = pairs(&file)?;
        if pairs.is_empty() {
            return Err(wrong(&file, "it has no matrices: not an adapter, or an incomplete file"));
        }
        let mut lora = Lora {
            path: path.display().to_string(),
            scale: *scale,
            task_name: text(&file, "adapter.lora.task_name")?,
            prompt_prefix: text(&file, "adapter.lora.prompt_prefix")?,
            fingerprint: file.fingerprint(),
            left_out,
            parts: model.weights.iter().map(|_| None).collect(),
            table: None,
        };
        let products = products(model);
        for (name, pair) in pairs {
            let Pair { a: Some(a), b: Some(b) } = pair else {
                let (there, missing) =
                    if pair.a.is_some() { ("lora_a", "lora_b") } else { ("lora_b", "lora_a") };
                let what = format!("of {} there is `{there}` and no `{missing}`", Quoted(name));
                return Err(wrong(&file, &what));
            };
            let Some(tensor) = model.gguf.tensor(name) else {
                let what = format!(
                    "{} is no tensor of {}: the adapter is for another model",
                    Quoted(name),
                    model.name
                );
                return Err(wrong(&file, &what));
            };
            let of = Matrices { file: &file, name, a, b, alpha };
            // Its thin matrices lie the other way round.
            if name == TOKEN_TABLE {
                lora.table = Some(of.beside_table(tensor)?);
            } else {
                of.beside_products(tensor, model, &products, &mut lora.parts)?;
            }
        }
        Ok(lora)
    }
}

/// What the file's keys say of it; gives its alpha, 0 where there is none.
fn check_kind(file: &Gguf, model: &Model) -> Result<f32> {
    let meta = file.metadata();
    let keys = [("general.type", "adapter"), ("general.architecture", &model.arch), ("adapter.type", "lora")];
    for (key, wanted) in keys {
        let found = meta.str(key)?;
        if found == Some(wanted) {
            continue;
        }
        let is = found.map_or("not there".into(), |found| format!("{}", Quoted(found)));
        let why = match key {
            "general.architecture" => format!("; the adapter is for another model than {}", model.name),
            _ => ": the file is no LoRA adapter; convert_lora_to_gguf.py of llama.cpp makes one".into(),
        };
        return Err(wrong(file, &format!("`{key}` is {is}, where `{wanted}` is needed{why}")));
    }
    if meta.get(ACTIVATED).is_some() {
        let what =
            format!("it has `{ACTIVATED}`: adapters that begin in the middle of a text are not applied here");
        return Err(wrong(file, &what));
    }
    let alpha = meta.f32("adapter.lora.alpha")?.unwrap_or(0.0);
    match alpha.is_finite() {
        true => Ok(alpha),
        false => Err(wrong(file, &format!("`adapter.lora.alpha` is {alpha}; it must be a number"))),
    }
}

fn text(file: &Gguf, key: &str) -> Result<String> {
    Ok(file.metadata().str(key)?.unwrap_or_default().to_owned())
}

/// The thin matrices by the name of the tensor that they are for; and how many vectors of norms there are, which are left
/// out, as llama.cpp does.
fn pairs(file: &Gguf) -> Result<(BTreeMap<&str, Pair<'_>>, usize)> {
    let mut pairs: BTreeMap<&str, Pair> = BTreeMap::new();
    let mut left_out = 0;
    for tensor in file.tensors() {
        if let Some(name) = tensor.name.strip_suffix(".lora_a") {
            pairs.entry(name).or_default().a = Some(tensor);
        } else if let Some(name) = tensor.name.strip_suffix(".lora_b") {
            pairs.entry(name).or_default().b = Some(tensor);
        } else if tensor.name.ends_with("_norm.weight") {
            left_out += 1;
        } else {
            let what =
                format!("tensor {} is neither `.lora_a` nor `.lora_b` of another", Quoted(&tensor.name));
            return Err(wrong(file, &what));
        }
    }
    Ok((pairs, left_out))
}

/// The weights whose products an adapter may change, by id.
fn products(model: &Model) -> Vec<bool> {
    let mut products = vec![false; model.weights.len()];
    for op in model.with_mtp().plan.ops() {
        let operands = model.plan.operands(op);
        let experts = operands.experts().flat_map(|matrices| matrices.ids());
        for id in operands.matrices().map(|(id, _)| id).chain(experts) {
            products[id.0 as usize] = true;
        }
    }
    products
}

/// The thin matrices beside a tensor.
struct Matrices<'a> {
    file: &'a Gguf,
    name: &'a str,
    a: &'a TensorInfo,
    b: &'a TensorInfo,
    alpha: f32,
}

impl Matrices<'_> {
    /// For the rows that tokens become: what `A` has for a token is a row of it.
    fn beside_table(&self, tensor: &TensorInfo) -> Result<Thin> {
        let [width, tokens, _] = sides(tensor);
        let ([a_rank, a_rows, a_count], [b_rank, b_rows, b_count]) = (sides(self.a), sides(self.b));
        if [a_rows, b_rows, a_count, b_count] != [tokens, width, 1, 1] {
            return Err(self.misfits(tensor, &format!("[rank, {tokens}] and [rank, {width}]")));
        }
        let rank = self.rank(a_rank, b_rank)?;
        Ok(Thin {
            a: Part { of: self.numbers(self.a)?, rows: 0..tokens as usize },
            b: Part { of: self.numbers(self.b)?, rows: 0..width as usize },
            rank,
            times: self.times(rank),
        })
    }

    /// For each weight that is some rows of the tensor, or of an expert's part of it.
    fn beside_products(
        &self,
        tensor: &TensorInfo,
        model: &Model,
        products: &[bool],
        parts: &mut [Option<Thin>],
    ) -> Result<()> {
        let of_tensor = |id: &usize| products[*id] && model.weights[*id].tensor.name == self.name;
        let ids: Vec<usize> = (0..products.len()).filter(of_tensor).collect();
        if ids.is_empty() {
            let what = format!(
                "{} is not multiplied by itself in {}, so an adapter of it cannot be applied: merge it into the model",
                Quoted(self.name),
                model.name
            );
            return Err(wrong(self.file, &what));
        }
        let scale = format!("{}scale", self.name.strip_suffix("weight").unwrap_or(self.name));
        let is_scaled = model.gguf.tensor(&scale).is_some_and(|scale| scale.elements() == 1);
        if is_scaled && beside(tensor).is_none() {
            let what = format!(
                "{} is multiplied by {} in {}, and it cannot be told whether an adapter is too: merge it into the model",
                Quoted(self.name),
                Quoted(&scale),
                model.name
            );
            return Err(wrong(self.file, &what));
        }
        let [cols, rows, count] = sides(tensor);
        let ([a_cols, a_rank, a_count], [b_rank, b_rows, b_count]) = (sides(self.a), sides(self.b));
        if [a_cols, b_rows, a_count, b_count] != [cols, rows, count, count] {
            let experts = if count > 1 { format!(", {count}") } else { String::new() };
            return Err(self.misfits(tensor, &format!("[{cols}, rank{experts}] and [rank, {rows}{experts}]")));
        }
        let rank = self.rank(a_rank, b_rank)?;
        let (a, b) = (self.numbers(self.a)?, self.numbers(self.b)?);
        for id in ids {
            let weight = model.weight(WeightId(id as u32));
            let first = weight.begin as usize / weight.row_bytes();
            let expert = first / rows as usize;
            let part = |of: &Arc<Numbers>, rows: Range<usize>| Part { of: of.clone(), rows };
            parts[id] = Some(Thin {
                a: part(&a, expert * rank..(expert + 1) * rank),
                b: part(&b, first..first + weight.rows),
                rank,
                times: self.times(rank),
            });
        }
        Ok(())
    }

    fn rank(&self, of_a: u64, of_b: u64) -> Result<usize> {
        if of_a == of_b && of_a > 0 {
            return Ok(of_a as usize);
        }
        let what = format!(
            "the thin matrices of {} have the ranks {of_a} and {of_b}: they must have the same; the file is damaged",
            Quoted(self.name)
        );
        Err(wrong(self.file, &what))
    }

    /// Without an alpha the rank does not count.
    fn times(&self, rank: usize) -> f32 {
        if self.alpha == 0.0 { 1.0 } else { self.alpha / rank as f32 }
    }

    fn misfits(&self, tensor: &TensorInfo, wanted: &str) -> Error {
        let what = format!(
            "the thin matrices of {} have the shapes {:?} and {:?}; beside the model's {:?} they must be {wanted}: the adapter is for another model",
            Quoted(self.name),
            self.a.shape,
            self.b.shape,
            tensor.shape
        );
        wrong(self.file, &what)
    }

    /// The numbers of a tensor, which must be some.
    fn numbers(&self, tensor: &TensorInfo) -> Result<Arc<Numbers>> {
        if !tensor.ty.readable() {
            let what = format!(
                "tensor {} is of type {}, which cannot be read here",
                Quoted(&tensor.name),
                tensor.ty
            );
            return Err(wrong(self.file, &what));
        }
        let bytes = self.file.bytes(tensor);
        let mut floats = vec![0.0; tensor.elements() as usize];
        dequantize(tensor.ty, bytes, &mut floats);
        if let Some(at) = floats.iter().position(|x| !x.is_finite()) {
            let what = format!(
                "tensor {} has {} as number {at}: the file is damaged",
                Quoted(&tensor.name),
                floats[at]
            );
            return Err(wrong(self.file, &what));
        }
        let cols = tensor.shape[0] as usize;
        Ok(Arc::new(match tensor.ty {
            ty @ (GgmlType::F32 | GgmlType::F16 | GgmlType::BF16) => {
                Numbers { ty, bytes: bytes.to_vec(), cols }
            }
            _ => {
                let bytes = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
                Numbers { ty: GgmlType::F32, bytes, cols }
            }
        }))
    }
}

/// The sides of a matrix, or of one for each expert.
fn sides(tensor: &TensorInfo) -> [u64; 3] {
    let side = |n: usize| tensor.shape.get(n).copied().unwrap_or(1);
    // What has more sides than three fits nothing.
    let beyond: u64 = tensor.shape.iter().skip(3).product();
    [side(0), side(1), side(2) * beyond]
}

fn wrong(file: &Gguf, what: &str) -> Error {
    Error::gguf(one_line(file.name(), 200), what)
}
