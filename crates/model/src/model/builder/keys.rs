//! What an architecture asks of a file's keys, under its own prefix.

use super::Builder;
use crate::{Error, Result, gguf::Value};

impl<'a> Builder<'a> {
    /// The key `ARCH.name`, a whole number.
    pub fn u32(&self, name: &str) -> Result<Option<u32>> {
        self.gguf.metadata().u32(&self.key(name))
    }

    pub fn i32(&self, name: &str) -> Result<Option<i32>> {
        self.gguf.metadata().i32(&self.key(name))
    }

    pub fn u32s(&self, name: &str) -> Result<Option<Vec<u32>>> {
        self.gguf.metadata().u32s(&self.key(name))
    }

    pub fn f32(&self, name: &str) -> Result<Option<f32>> {
        self.gguf.metadata().f32(&self.key(name))
    }

    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        self.gguf.metadata().bool(&self.key(name))
    }

    /// A number for each layer; a key that holds one number holds it for all.
    pub fn per_layer(&self, name: &str) -> Result<Option<Vec<u32>>> {
        let key = self.key(name);
        let Some(numbers) = self.gguf.metadata().u32s(&key)? else { return Ok(None) };
        match numbers.len() {
            1 => Ok(Some(vec![numbers[0]; self.dims().n_layer])),
            n if n >= self.dims().n_layer => Ok(Some(numbers[..self.dims().n_layer].to_vec())),
            n => Err(self.error(&format!(
                "`{key}` has {n} numbers, one for each of {} layers is needed",
                self.dims().n_layer
            ))),
        }
    }

    /// Yes or no for each layer, where the key is an array.
    pub fn flags(&self, name: &str) -> Result<Option<Vec<bool>>> {
        if !matches!(self.gguf.metadata().get(&self.key(name)), Some(Value::Array(_))) {
            return Ok(None);
        }
        Ok(self.per_layer(name)?.map(|numbers| numbers.into_iter().map(|n| n != 0).collect()))
    }

    /// The same of sizes, which are above zero in layers that have what it is a size of; the others get that of the first.
    pub fn sizes_of(&self, name: &str, has: &[bool]) -> Result<Option<Vec<usize>>> {
        let Some(numbers) = self.per_layer(name)? else { return Ok(None) };
        let known = |(&n, &has): (&u32, &bool)| (has && n > 0).then_some(n);
        let first = numbers.iter().zip(has).find_map(known).unwrap_or(1);
        let wrong = |(&n, &has): (&u32, &bool)| (has && n == 0 || n > i32::MAX as u32).then_some(n);
        if let Some(n) = numbers.iter().zip(has).find_map(wrong) {
            return Err(self.wrong(name, n as usize, "between 1 and 2^31 - 1"));
        }
        let size = |(&n, &has): (&u32, &bool)| if has { n as usize } else { first as usize };
        Ok(Some(numbers.iter().zip(has).map(size).collect()))
    }

    /// Which numbers of a list are above zero.
    pub fn lists_above_zero(&self, name: &str) -> Result<Vec<bool>> {
        let numbers = self.per_layer(name)?.ok_or_else(|| self.missing(name))?;
        Ok(numbers.into_iter().map(|n| n > 0).collect())
    }

    /// A number that makes no sense unless it is positive.
    pub fn positive(&self, name: &str) -> Result<Option<f32>> {
        match self.f32(name)? {
            Some(x) if !(x.is_finite() && x > 0.0) => {
                Err(self.error(&format!("`{}` is {x}; it must be a positive number", self.key(name))))
            }
            x => Ok(x),
        }
    }

    /// One that must be there.
    pub fn factor(&self, name: &str) -> Result<f32> {
        self.positive(name)?.ok_or_else(|| self.missing(name))
    }

    /// The same, where 0 means that there is none.
    pub fn positive_or_none(&self, name: &str) -> Result<Option<f32>> {
        if self.f32(name)? == Some(0.0) { Ok(None) } else { self.positive(name) }
    }

    pub fn str(&self, name: &str) -> Result<Option<&'a str>> {
        self.gguf.metadata().str(&self.key(name))
    }

    pub fn size(&self, name: &str) -> Result<usize> {
        self.optional_size(name)?.ok_or_else(|| self.missing(name))
    }

    pub fn missing(&self, name: &str) -> Error {
        self.gguf.metadata().missing(&self.key(name))
    }

    pub fn optional_size(&self, name: &str) -> Result<Option<usize>> {
        match self.u32(name)? {
            Some(n) if n == 0 || n > i32::MAX as u32 => {
                Err(self.wrong(name, n as usize, "between 1 and 2^31 - 1"))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }
}
