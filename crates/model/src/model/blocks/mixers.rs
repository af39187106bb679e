//! What recurrent layers have in the place of attention: a gated delta net, a Mamba 2, or a short convolution alone.

use super::Residual;
use crate::{
    Result,
    model::Builder,
    plan::{Activation, Buf, Conv, MixerSpec, Norm, NormKind, Op, Parts, Scan, ScanKind},
};

#[derive(Clone, Copy, Debug)]
pub enum Mixer {
    GatedDelta(Sizes),
    Mamba2(Sizes),
    /// Of so many rows.
    ShortConv(usize),
}

/// The `ssm` keys of a file.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    kernel: usize,
    inner: usize,
    state: usize,
    n_head: usize,
    n_group: usize,
    /// Value head `h` takes key head `h % n_group`; otherwise neighbours share one.
    pub repeats: bool,
    /// Whether products are multiplied with the numbers that files may have for them.
    pub is_scaled: bool,
}

impl Sizes {
    pub fn read(b: &Builder) -> Result<Self> {
        let [kernel, inner, state] =
            ["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size"].map(|key| b.size(key));
        let (kernel, inner, state) = (kernel?, inner?, state?);
        let (n_head, n_group) = (b.size("ssm.time_step_rank")?, b.size("ssm.group_count")?);
        if !inner.is_multiple_of(n_head) {
            return Err(b.wrong(
                "ssm.time_step_rank",
                n_head,
                &format!("a divisor of ssm.inner_size {inner}"),
            ));
        }
        if !n_head.is_multiple_of(n_group) || !inner.is_multiple_of(n_group) {
            return Err(b.wrong(
                "ssm.group_count",
                n_group,
                &format!("a divisor of ssm.time_step_rank {n_head}"),
            ));
        }
        // Bounds what a hostile file can have us reckon with.
        if kernel > 64 {
            return Err(b.wrong("ssm.conv_kernel", kernel, "at most 64"));
        }
        if inner > 1 << 24 {
            return Err(b.wrong("ssm.inner_size", inner, "at most 2^24"));
        }
        if state.checked_mul(n_group).is_none_or(|keys| keys > 1 << 24) {
            return Err(b.wrong("ssm.state_size", state, "at most 2^24 numbers, in all groups together"));
        }
        Ok(Sizes { kernel, inner, state, n_head, n_group, repeats: false, is_scaled: true })
    }

    /// Fails with the key that says something else than the tensors of a layer. `own` is the one that its norm shows, and at
    /// which side: then what channels are counted by beside it is wrong with these, if anything is.
    fn check(&self, b: &Builder, layer: usize, own: &str, side: usize) -> Result<()> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let conv = name("ssm_conv1d.weight");
        let equal = |key: &str, size: usize, tensor: &str, side: usize| {
            b.must_match(key, size, (&name(tensor), side, size))
        };
        equal("ssm.conv_kernel", self.kernel, "ssm_conv1d.weight", 0)?;
        equal("ssm.inner_size", self.inner, "ssm_out.weight", 0)?;
        equal("ssm.time_step_rank", self.n_head, "ssm_dt.bias", 0)?;
        let (state, groups) = (("ssm.state_size", self.state), ("ssm.group_count", self.n_group));
        let (own, other) = if own == state.0 { (state, groups) } else { (groups, state) };
        equal(own.0, own.1, "ssm_norm.weight", side)?;
        let channels = (conv.as_str(), 1, self.channels());
        if b.has(&name("ssm_norm.weight")) {
            return b.must_match(other.0, other.1, channels);
        }
        b.must_match(state.0, state.1, channels).map_err(|_| {
            let [state_key, groups_key] = [state.0, groups.0].map(|key| b.key(key));
            b.error(&format!(
                "`{state_key}` is {} and `{groups_key}` is {}: tensor `{conv}` does not have {} channels, as it would by these",
                self.state,
                self.n_group,
                self.channels(),
            ))
        })
    }

    fn channels(&self) -> usize {
        self.inner + 2 * self.n_group * self.state
    }

    fn scan(&self, b: &mut Builder, layer: usize, step: Buf, kind: ScanKind) -> Result<Scan> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        Ok(Scan {
            kind,
            n_head: self.n_head,
            rows: self.state,
            columns: self.inner / self.n_head,
            n_key_head: self.n_group,
            repeats: self.repeats,
            step,
            step_bias: b.vector(&name("ssm_dt.bias"), self.n_head)?,
            decay: b.vector(&name("ssm_a"), self.n_head)?,
            out: b.buffer("mixed", self.inner)?,
        })
    }

    fn conv(&self, b: &mut Builder, layer: usize, src: Buf) -> Result<Conv> {
        let channels = self.channels();
        Ok(Conv {
            src,
            dst: b.buffer("convolved", channels)?,
            channels,
            kernel: self.kernel,
            weight: b.vector(&format!("blk.{layer}.ssm_conv1d.weight"), self.kernel * channels)?,
            bias: b.optional_vector(&format!("blk.{layer}.ssm_conv1d.bias"), channels)?,
            silu: true,
        })
    }

    /// What a file multiplies a product with, and what it has beside that for narrower numbers, which nothing here reads.
    fn scale_of(&self, b: &mut Builder, name: &str) -> Result<Option<f32>> {
        b.leave_out(&format!("{name}.input_scale"));
        if b.has_factors(&format!("{name}.weight")) {
            return Ok(None);
        }
        if !self.is_scaled {
            b.leave_out(&format!("{name}.scale"));
            return Ok(None);
        }
        Ok(b.optional_f32s(&format!("{name}.scale"), 1)?.map(|scale| scale[0]))
    }

    fn close(&self, b: &mut Builder, layer: usize, out: Buf, residual: &Residual) -> Result<Vec<Op>> {
        let name = format!("blk.{layer}.ssm_out");
        let scale = self.scale_of(b, &name)?.unwrap_or(1.0);
        let last = b.linear(&name, b.dims().dim, self.inner)?;
        Residual { scale: residual.scale * scale, ..*residual }.close(b, layer, last, out)
    }

    fn gated_delta(&self, b: &mut Builder, layer: usize, residual: &Residual) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (dim, keys) = (b.dims().dim, self.n_group * self.state);
        let input = b.buffer("mixer input", self.channels())?;
        let z = b.buffer("mixer gate", self.inner)?;
        let [beta, alpha] = ["beta", "step"].map(|part| b.buffer(part, self.n_head));
        let (beta, alpha) = (beta?, alpha?);
        let mut ops = Vec::new();
        let mut product = |b: &mut Builder, part: &str, rows, dst| {
            let weight = b.linear(&name(part), rows, dim)?;
            ops.push(Op::MatMul { weight: weight.weight, bias: weight.bias, src: Buf::H, dst, add: false });
            ops.extend(self.scale_of(b, &name(part))?.map(|by| Op::Scale { buf: dst, by }));
            Ok::<_, crate::Error>(())
        };
        // Joined tensors have what belongs to a key head side by side.
        let shared = self.n_head / self.n_group;
        let values = shared * self.inner / self.n_head;
        let mut taken = Vec::new();
        // A file may have both: what is joined is the older form.
        let is_joined = !b.has(&name("attn_qkv.weight"));
        if is_joined {
            let every = 2 * self.state + 2 * values;
            let joined = b.buffer("mixer's joined input", self.n_group * every)?;
            product(b, "ssm_in", self.n_group * every, joined)?;
            let mut take = |dst, group, from, at| {
                let to = Parts { every: group, from: at };
                taken.push(Op::Take { src: joined, from: Parts { every, from }, group, dst, to });
            };
            take(input, self.state, 0, 0);
            take(input, self.state, self.state, keys);
            take(input, values, 2 * self.state, 2 * keys);
            take(z, values, 2 * self.state + values, 0);
        } else {
            product(b, "attn_qkv", self.channels(), input)?;
            product(b, "attn_gate", self.inner, z)?;
            for end in ["weight", "scale", "input_scale"] {
                b.leave_out(&name(&format!("ssm_in.{end}")));
            }
        }
        if b.has(&name("ssm_ba.weight")) {
            let joined = b.buffer("beta and step", 2 * self.n_head)?;
            product(b, "ssm_ba", 2 * self.n_head, joined)?;
            for (dst, from) in [(beta, 0), (alpha, shared)] {
                let from = Parts { every: 2 * shared, from };
                let to = Parts { every: shared, from: 0 };
                taken.push(Op::Take { src: joined, from, group: shared, dst, to });
            }
        } else {
            product(b, "ssm_beta", self.n_head, beta)?;
            product(b, "ssm_alpha", self.n_head, alpha)?;
        }
        ops.extend(taken);
        let conv = self.conv(b, layer, input)?;
        let scan = self.scan(b, layer, alpha, ScanKind::GatedDelta { beta, eps: b.rms_eps })?;
        let id = b.mixer(MixerSpec { conv, scan: Some(scan) });
        let norm = Norm {
            kind: NormKind::Rms,
            weight: Some(b.vector(&name("ssm_norm.weight"), scan.columns)?),
            bias: None,
            eps: b.rms_eps,
        };
        let out = scan.out;
        ops.extend([
            Op::Convolve(id),
            Op::Scan(id),
            Op::Norm { norm, group: scan.columns, src: out, dst: out, add: false },
            Op::Multiply { dst: out, f: None, by: z, g: Some(Activation::Silu), column: 0 },
        ]);
        ops.extend(self.close(b, layer, out, residual)?);
        Ok(ops)
    }

    fn mamba_2(&self, b: &mut Builder, layer: usize, residual: &Residual) -> Result<Vec<Op>> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let dim = b.dims().dim;
        let parts = [("mixer gate", self.inner), ("mixer input", self.channels()), ("step", self.n_head)];
        let all = parts.iter().map(|(_, width)| width).sum();
        let mut ops = Vec::new();
        let mut bufs = [Buf::H; 3];
        let mut begin = 0;
        for (buf, (purpose, width)) in bufs.iter_mut().zip(parts) {
            *buf = b.buffer(purpose, width)?;
            let part = b.linear_rows(&name("ssm_in"), all, dim, begin..begin + width)?;
            ops.push(Op::MatMul { weight: part.weight, bias: part.bias, src: Buf::H, dst: *buf, add: false });
            begin += width;
        }
        if let Some(by) = self.scale_of(b, &name("ssm_in"))? {
            ops.extend(bufs.map(|buf| Op::Scale { buf, by }));
        }
        let [z, input, step] = bufs;
        let conv = self.conv(b, layer, input)?;
        let through = b.vector(&name("ssm_d"), self.n_head)?;
        let scan = self.scan(b, layer, step, ScanKind::Mamba2 { through })?;
        let id = b.mixer(MixerSpec { conv, scan: Some(scan) });
        let out = scan.out;
        ops.extend([
            Op::Convolve(id),
            Op::Scan(id),
            Op::Multiply { dst: out, f: None, by: z, g: Some(Activation::Silu), column: 0 },
        ]);
        if let Some(weight) = b.optional_vector(&name("ssm_norm.weight"), self.inner)? {
            let norm = Norm { kind: NormKind::Rms, weight: Some(weight), bias: None, eps: b.rms_eps };
            ops.push(Op::Norm { norm, group: self.inner / self.n_group, src: out, dst: out, add: false });
        }
        ops.extend(self.close(b, layer, out, residual)?);
        Ok(ops)
    }
}

impl Mixer {
    /// Reads the normed input, and adds to the stream.
    pub fn ops(&self, b: &mut Builder, layer: usize, residual: &Residual) -> Result<Vec<Op>> {
        match self {
            Mixer::GatedDelta(sizes) => {
                sizes.check(b, layer, "ssm.state_size", 0)?;
                sizes.gated_delta(b, layer, residual)
            }
            Mixer::Mamba2(sizes) => {
                sizes.check(b, layer, "ssm.group_count", 1)?;
                sizes.mamba_2(b, layer, residual)
            }
            Mixer::ShortConv(kernel) => short_conv(b, layer, *kernel, residual),
        }
    }
}

/// `out · (c ⊙ conv(b ⊙ x))`
fn short_conv(b: &mut Builder, layer: usize, kernel: usize, residual: &Residual) -> Result<Vec<Op>> {
    let name = |part: &str| format!("blk.{layer}.shortconv.{part}");
    let dim = b.dims().dim;
    b.must_match("shortconv.l_cache", kernel, (&name("conv.weight"), 0, kernel))?;
    let mut ops = Vec::new();
    let mut bufs = [Buf::H; 3];
    for (n, (buf, purpose)) in bufs.iter_mut().zip(["mixer input", "mixer gate", "mixer value"]).enumerate() {
        *buf = b.buffer(purpose, dim)?;
        let part = b.linear_rows(&name("in_proj"), 3 * dim, dim, n * dim..(n + 1) * dim)?;
        ops.push(Op::MatMul { weight: part.weight, bias: part.bias, src: Buf::H, dst: *buf, add: false });
    }
    let [input, gate, value] = bufs;
    let out = b.buffer("convolved", dim)?;
    let conv = Conv {
        src: input,
        dst: out,
        channels: dim,
        kernel,
        weight: b.vector(&name("conv.weight"), kernel * dim)?,
        bias: None,
        silu: false,
    };
    let id = b.mixer(MixerSpec { conv, scan: None });
    ops.extend([
        Op::Multiply { dst: input, f: None, by: value, g: None, column: 0 },
        Op::Convolve(id),
        Op::Multiply { dst: out, f: None, by: gate, g: None, column: 0 },
    ]);
    let last = b.linear(&name("out_proj"), dim, dim)?;
    ops.extend(residual.close(b, layer, last, out)?);
    Ok(ops)
}
