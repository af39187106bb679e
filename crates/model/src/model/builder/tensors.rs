//! What an architecture asks of a file's tensors: matrices and vectors of a demanded shape.

use std::ops::Range;

use super::Builder;
use crate::{
    Error, Result,
    gguf::{TensorInfo, beside},
    model::WeightInfo,
    plan::{Linear, Norm, NormKind, WeightId},
    quant::GgmlType,
};

impl Builder<'_> {
    /// A matrix that turns `cols` numbers into `rows`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        // A table that is the head too is one weight.
        if let Some(&known) = self.matrices.get(name) {
            return Ok(known);
        }
        let id = self.matrix_rows(name, rows, cols, 0..rows)?;
        self.matrices.insert(name.to_string(), id);
        Ok(id)
    }

    /// Some rows of a matrix that several were joined into.
    pub fn matrix_rows(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        of: Range<usize>,
    ) -> Result<WeightId> {
        let tensor = self.find(name)?;
        // Files leave a last side of 1 out.
        let side = |n: usize| tensor.shape.get(n).copied().unwrap_or(1);
        let beyond = tensor.shape.iter().skip(2);
        if [side(0), side(1)] != [cols as u64, rows as u64] || beyond.into_iter().any(|&d| d != 1) {
            return Err(self.misshapen(&tensor, &format!("[{cols}, {rows}]")));
        }
        let factor = self.factors(&tensor)?[0];
        self.add(tensor, rows, of, cols, factor)
    }

    /// The same rows of each expert's matrix; their ids follow each other.
    pub fn expert_rows(
        &mut self,
        name: &str,
        experts: usize,
        rows: usize,
        cols: usize,
        of: Range<usize>,
    ) -> Result<WeightId> {
        let tensor = self.find(name)?;
        let found = tensor.shape.iter().copied().chain(std::iter::repeat(1)).take(tensor.shape.len().max(3));
        if !found.eq([cols as u64, rows as u64, experts as u64]) {
            return Err(self.misshapen(&tensor, &format!("[{cols}, {rows}, {experts}]")));
        }
        let first = WeightId(self.weights.len() as u32);
        for (expert, factor) in self.factors(&tensor)?.into_iter().enumerate() {
            let of = expert * rows + of.start..expert * rows + of.end;
            self.add(tensor.clone(), experts * rows, of, cols, factor)?;
        }
        Ok(first)
    }

    pub fn vector(&mut self, name: &str, len: usize) -> Result<WeightId> {
        let tensor = self.find(name)?;
        if tensor.shape.iter().product::<u64>() != len as u64 {
            return Err(self.misshapen(&tensor, &format!("[{len}]")));
        }
        self.add(tensor, 1, 0..1, len, 1.0)
    }

    pub fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<WeightId>> {
        if self.has(name) { self.vector(name, len).map(Some) } else { Ok(None) }
    }

    /// Some numbers of a vector that several were joined into, if it is there: of floats, whose blocks can be cut.
    pub fn optional_vector_part(
        &mut self,
        name: &str,
        len: usize,
        of: Range<usize>,
    ) -> Result<Option<WeightId>> {
        let Some(tensor) = self.gguf.tensor(name).cloned() else { return Ok(None) };
        if tensor.shape.iter().product::<u64>() != len as u64 {
            return Err(self.misshapen(&tensor, &format!("[{len}]")));
        }
        if tensor.ty.block_len() != 1 {
            return Err(self.error(&format!("tensor `{name}` is of type {}; it must be floats", tensor.ty)));
        }
        // As a matrix of single numbers, of which some rows are taken, seen as one row.
        let id = self.add(tensor, len, of.clone(), 1, 1.0)?;
        let weight = self.weights.last_mut().expect("added above");
        (weight.rows, weight.cols) = (1, of.len());
        Ok(Some(id))
    }

    /// `NAME.weight` and the bias `NAME.bias` that some files carry.
    pub fn linear(&mut self, name: &str, rows: usize, cols: usize) -> Result<Linear> {
        self.linear_rows(name, rows, cols, 0..rows)
    }

    pub fn linear_rows(&mut self, name: &str, rows: usize, cols: usize, of: Range<usize>) -> Result<Linear> {
        Ok(Linear {
            weight: self.matrix_rows(&format!("{name}.weight"), rows, cols, of.clone())?,
            bias: match of == (0..rows) {
                true => self.optional_vector(&format!("{name}.bias"), rows)?,
                false => self.optional_vector_part(&format!("{name}.bias"), rows, of)?,
            },
        })
    }

    /// `NAME.weight`, or `NAME` where there is no other, and where the file carries one `NAME.bias`.
    pub fn norm(&mut self, kind: NormKind, name: &str, len: usize) -> Result<Norm> {
        let weight = format!("{name}.weight");
        let weight = if !self.has(&weight) && self.has(name) { name } else { &weight };
        Ok(Norm {
            kind,
            weight: Some(self.vector(weight, len)?),
            bias: self.optional_vector(&format!("{name}.bias"), len)?,
            eps: match kind {
                NormKind::Rms => self.rms_eps,
                NormKind::Layer => self.layer_eps,
            },
        })
    }

    /// Fails with the name of a key where, by its number, a tensor would have another size at one of its sides than it has. A
    /// tensor that is not there is told of elsewhere.
    pub fn must_match(
        &self,
        key: &str,
        found: usize,
        (tensor, side, by_it): (&str, usize, usize),
    ) -> Result<()> {
        let Some(shape) = self.gguf.tensor(tensor).map(|tensor| &tensor.shape) else { return Ok(()) };
        // Files leave a last side of 1 out.
        let has = shape.get(side).copied().unwrap_or(1);
        if has == by_it as u64 {
            return Ok(());
        }
        Err(self.error(&format!(
            "`{}` is {found}: by that tensor `{tensor}` would have {by_it} where its shape {shape:?} has {has}",
            self.key(key)
        )))
    }

    /// Fails with the name of the first that is missing.
    pub fn require(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.find(name).map(drop))
    }

    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// How many rows a tensor has, of which its layer's sizes follow.
    pub fn rows_of(&self, name: &str) -> Result<usize> {
        self.side_of(name, 1)
    }

    /// How long the rows of a tensor are, of which other sizes follow.
    pub fn columns_of(&self, name: &str) -> Result<usize> {
        self.side_of(name, 0)
    }

    fn side_of(&self, name: &str, side: usize) -> Result<usize> {
        let tensor = self.find(name)?;
        match tensor.shape.get(side).map(|&size| usize::try_from(size)) {
            Some(Ok(size)) if size > 0 => Ok(size),
            _ => Err(self.misshapen(&tensor, "a matrix")),
        }
    }

    /// Whether a tensor's scale is part of its weights, so that nothing else may multiply by it.
    pub fn has_factors(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some_and(|tensor| beside(tensor).is_some())
    }

    /// By what each matrix of a tensor is multiplied.
    pub(super) fn factors(&mut self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        self.folded.extend(beside(tensor).into_iter().flatten());
        self.gguf.factors(tensor)
    }

    /// A tensor that nothing here needs, if the file has it.
    pub fn leave_out(&mut self, name: &str) {
        self.folded.extend(self.gguf.tensor(name).and_then(beside).into_iter().flatten());
        self.folded.insert(name.to_string());
    }

    /// The numbers of a list of tokens, all of which there must be.
    pub fn optional_tokens(&mut self, name: &str) -> Result<Option<Vec<u32>>> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        if tensor.ty != GgmlType::I64 || tensor.shape.len() != 1 {
            let (ty, shape) = (tensor.ty, &tensor.shape);
            return Err(self.error(&format!(
                "tensor `{name}` is of type {ty} and shape {shape:?}; it must be a list of I64"
            )));
        }
        self.folded.insert(name.to_string());
        let (bytes, n_tokens) = (self.gguf.bytes(tensor), self.plan.n_tokens);
        let numbers = bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        let token = |number: i64| u32::try_from(number).ok().filter(|&token| (token as usize) < n_tokens);
        let tokens: Option<Vec<u32>> = numbers.map(token).collect();
        match tokens.filter(|tokens| !tokens.is_empty()) {
            Some(tokens) => Ok(Some(tokens)),
            None => {
                Err(self.error(&format!("tensor `{name}` is no list of tokens, which are below {n_tokens}")))
            }
        }
    }

    /// The numbers of a small f32 tensor, for what is folded into the plan itself.
    pub fn optional_f32s(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        if tensor.shape.iter().product::<u64>() != len as u64 {
            return Err(self.misshapen(tensor, &format!("[{len}]")));
        }
        self.check_readable(tensor)?;
        self.folded.insert(name.to_string());
        let mut out = vec![0.0; len];
        crate::quant::dequantize(tensor.ty, self.gguf.bytes(tensor), &mut out);
        Ok(Some(out))
    }

    pub(in crate::model) fn find(&self, name: &str) -> Result<TensorInfo> {
        self.gguf.tensor(name).cloned().ok_or_else(|| {
            let hint =
                if self.gguf.tensors().is_empty() { " (the file holds a vocabulary only)" } else { "" };
            self.error(&format!("tensor `{name}` is missing{hint}: architecture `{}` needs it", self.arch))
        })
    }

    /// Some of the `rows` rows of a tensor.
    fn add(
        &mut self,
        tensor: TensorInfo,
        rows: usize,
        of: Range<usize>,
        cols: usize,
        factor: f32,
    ) -> Result<WeightId> {
        self.check_readable(&tensor)?;
        let row = tensor.bytes / rows as u64;
        let (begin, bytes) = (of.start as u64 * row, of.len() as u64 * row);
        self.weights.push(WeightInfo { tensor, begin, bytes, rows: of.len(), cols, factor });
        Ok(WeightId(self.weights.len() as u32 - 1))
    }

    pub(super) fn check_readable(&self, tensor: &TensorInfo) -> Result<()> {
        if tensor.ty.readable() {
            return Ok(());
        }
        Err(self.error(&format!(
            "tensor `{}` is of type {}, which cannot be read yet: convert the file to Q4_K_M, Q8_0 or F16",
            tensor.name, tensor.ty
        )))
    }

    pub(in crate::model) fn misshapen(&self, tensor: &TensorInfo, wanted: &str) -> Error {
        self.error(&format!("tensor `{}` has shape {:?}, it must be {wanted}", tensor.name, tensor.shape))
    }
}
