//! What a layer is that keeps a state in the place of keys and values: a short convolution along the text, and mostly a
//! recurrence behind it.

use super::{Buf, WeightId};

/// Index into [`super::Plan::mixers`]; also which of a sequence's states it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MixerId(pub u32);

impl MixerId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A layer's state is the convolution's last inputs and, where there is a scan, a matrix for each head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixerSpec {
    pub conv: Conv,
    pub scan: Option<Scan>,
}

/// `dst[c] = activation(Σ weight[c][j] · src[row + j + 1 - kernel][c] + bias[c])`, each channel by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    pub src: Buf,
    pub dst: Buf,
    pub channels: usize,
    /// Rows that it sees, its own the last.
    pub kernel: usize,
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    /// Whether SiLU goes over what comes out.
    pub silu: bool,
}

/// A recurrence whose heads have a state of `rows · columns` numbers each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    pub kind: ScanKind,
    pub n_head: usize,
    /// Numbers of a key, by which the state is read.
    pub rows: usize,
    /// Numbers of a value, which is what comes out.
    pub columns: usize,
    /// Heads of keys and queries; value heads share them.
    pub n_key_head: usize,
    /// Value head `h` takes key head `h % n_key_head`; otherwise neighbours share one.
    pub repeats: bool,
    /// What the step's size is made of, one number for each head.
    pub step: Buf,
    pub step_bias: WeightId,
    /// By head, the logarithm of what is kept in a step of size 1.
    pub decay: WeightId,
    pub out: Buf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScanKind {
    /// Queries, keys, values lie in the convolution's result in this order. Queries and keys are brought to length 1, then
    /// `S = e^(decay·step)·S; S += k ⊗ sigmoid(beta)·(v − Sᵀk); out = Sᵀq / √rows`.
    GatedDelta { beta: Buf, eps: f32 },
    /// Values, keys, queries lie in the convolution's result in this order.
    /// `S = e^(decay·step)·S + k ⊗ step·v; out = Sᵀq + through·v`.
    Mamba2 { through: WeightId },
}

/// Where a row's queries, keys and values begin among the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanColumns {
    pub q: usize,
    pub k: usize,
    pub v: usize,
}

impl Scan {
    pub fn state_len(&self) -> usize {
        self.n_head * self.rows * self.columns
    }

    /// Of a head's query, key and value.
    pub fn columns_of(&self, head: usize) -> ScanColumns {
        let keys = self.n_key_head * self.rows;
        let key_head = match self.repeats {
            true => head % self.n_key_head,
            false => head / (self.n_head / self.n_key_head),
        };
        let (key, value) = (key_head * self.rows, head * self.columns);
        match self.kind {
            ScanKind::GatedDelta { .. } => ScanColumns { q: key, k: keys + key, v: 2 * keys + value },
            ScanKind::Mamba2 { .. } => {
                let values = self.n_head * self.columns;
                ScanColumns { q: values + keys + key, k: values + key, v: value }
            }
        }
    }

    /// What beside the convolution's inputs a row's step is made of: so many numbers.
    pub fn gates(&self) -> usize {
        match self.kind {
            ScanKind::GatedDelta { .. } => 2 * self.n_head,
            ScanKind::Mamba2 { .. } => self.n_head,
        }
    }
}

impl MixerSpec {
    /// The convolution's inputs that a state has.
    pub fn inputs_len(&self) -> usize {
        (self.conv.kernel - 1) * self.conv.channels
    }

    /// Numbers of a state.
    pub fn state_len(&self) -> usize {
        self.inputs_len() + self.scan.map_or(0, |scan| scan.state_len())
    }

    /// Numbers of a row from which its step can be done again.
    pub fn replay_len(&self) -> usize {
        self.conv.channels + self.scan.map_or(0, |scan| scan.gates())
    }
}
