//! Recurrent layers: a convolution along the rows of each sequence, and a scan over them; and both again from rows that
//! were kept, for states that drafts have gone past.

use super::{
    super::{
        command::Binding,
        layout::BufLayout,
        params::{ConvolveParams, ScanParams},
        pipelines::Kernel,
        states::{ScanShape, Slab},
        weights::Numbers,
    },
    Lowering, Ops, Stage,
};
use crate::{
    kv::Replay,
    plan::{MixerId, MixerSpec, Scan, ScanColumns, ScanKind},
};

/// Channels of a workgroup of a convolution.
const CHANNELS: usize = 32;

/// A layer's mixer.
pub struct Mixer {
    convolve: Binding,
    channel_groups: u32,
    scan: Option<ScanStep>,
}

struct ScanStep {
    bound: Binding,
    gated_delta: bool,
    lanes: u32,
    groups: u32,
}

impl ScanStep {
    fn kernel(&self, again: bool) -> Kernel {
        Kernel::Scan { gated_delta: self.gated_delta, lanes: self.lanes, again }
    }
}

/// Where the numbers of a mixer lie.
#[derive(Clone, Copy)]
pub struct MixerLayouts {
    pub src: BufLayout,
    pub dst: BufLayout,
    pub step: BufLayout,
    pub beta: BufLayout,
    pub out: BufLayout,
}

pub fn convolve_params(layer: u32, spec: &MixerSpec, layouts: &MixerLayouts) -> ConvolveParams {
    let (conv, slab) = (&spec.conv, Slab::of(spec));
    let MixerLayouts { src, dst, .. } = *layouts;
    ConvolveParams {
        layer,
        channels: conv.channels as u32,
        kernel: conv.kernel as u32,
        has_silu: u32::from(conv.silu),
        src_stride: src.stride as u32,
        src_first: src.column as u32,
        dst_stride: dst.stride as u32,
        dst_first: dst.column as u32,
        slab: slab.len as u32,
        rows_at: slab.rows_at as u32,
        row_len: slab.row_len as u32,
    }
}

pub fn scan_params(layer: u32, spec: &MixerSpec, scan: &Scan, layouts: &MixerLayouts) -> ScanParams {
    let slab = Slab::of(spec);
    let MixerLayouts { dst: x, step, beta, out, .. } = *layouts;
    let ScanColumns { q, k, v } = scan.columns_of(0);
    let (eps, out_scale) = match scan.kind {
        ScanKind::GatedDelta { beta: _, eps } => (eps, 1.0 / (scan.rows as f32).sqrt()),
        ScanKind::Mamba2 { through: _ } => (0.0, 1.0),
    };
    ScanParams {
        layer,
        heads: scan.n_head as u32,
        key_heads: scan.n_key_head as u32,
        in_turn: u32::from(scan.repeats),
        key_quads: (scan.rows / 4) as u32,
        columns: scan.columns as u32,
        groups: ScanShape::of(scan).groups as u32,
        x_stride: (x.stride / 4) as u32,
        q_first: ((x.column + q) / 4) as u32,
        k_first: ((x.column + k) / 4) as u32,
        v_first: (x.column + v) as u32,
        step_stride: step.stride as u32,
        step_first: step.column as u32,
        beta_stride: beta.stride as u32,
        beta_first: beta.column as u32,
        out_stride: out.stride as u32,
        out_first: out.column as u32,
        slab: slab.len as u32,
        matrices_at: slab.matrices_at as u32,
        rows_at: slab.rows_at as u32,
        row_len: slab.row_len as u32,
        gates_at: spec.conv.channels as u32,
        eps,
        out_scale,
    }
}

impl Ops {
    pub(super) fn add_mixer(&mut self, stage: &Stage, id: MixerId) {
        let spec = stage.model.plan.mixer(id);
        let conv = &spec.conv;
        // Where there is no scan, or it has no such numbers, others stand in for them.
        let (step, beta, out) = match spec.scan {
            None => (conv.src, conv.src, conv.dst),
            Some(Scan { kind: ScanKind::GatedDelta { beta, eps: _ }, step, out, .. }) => (step, beta, out),
            Some(Scan { kind: ScanKind::Mamba2 { through: _ }, step, out, .. }) => (step, step, out),
        };
        let layout = |buf| stage.rows_of(buf);
        let layouts = MixerLayouts {
            src: layout(conv.src),
            dst: layout(conv.dst),
            step: layout(step),
            beta: layout(beta),
            out: layout(out),
        };
        let runs = || stage.states.runs.as_entire_buffer_binding();
        let slabs = || stage.states.slabs(id).as_entire_buffer_binding();
        let taps = stage.weights.numbers(Numbers::taps(conv));
        let storage = [runs(), stage.buffer(conv.src), taps, slabs(), stage.buffer(conv.dst)];
        let params = self.params.add(&convolve_params(id.0, spec, &layouts));
        let convolve =
            Binding { group: stage.bind(&self.params, Kernel::Convolve { again: false }, &storage), params };
        let scan = spec.scan.map(|scan| {
            let numbers = stage.weights.numbers(Numbers::of_scan(&scan));
            let [x, step, beta, out] = [conv.dst, step, beta, out].map(|buf| stage.buffer(buf));
            let params = self.params.add(&scan_params(id.0, spec, &scan, &layouts));
            let storage = [runs(), x, step, beta, numbers, slabs(), out];
            let ScanShape { lanes, groups } = ScanShape::of(&scan);
            let (gated_delta, lanes) = (matches!(scan.kind, ScanKind::GatedDelta { .. }), lanes as u32);
            let kernel = Kernel::Scan { gated_delta, lanes, again: false };
            let bound = Binding { group: stage.bind(&self.params, kernel, &storage), params };
            ScanStep { bound, gated_delta, lanes, groups: (scan.n_head * groups) as u32 }
        });
        let channel_groups = conv.channels.div_ceil(CHANNELS) as u32;
        self.mixers.insert(id, Mixer { convolve, channel_groups, scan });
    }

    /// For so many sequences.
    pub(super) fn convolve(&self, out: &mut Lowering, id: MixerId, runs: usize) {
        let mixer = &self.mixers[&id];
        let groups = [mixer.channel_groups, runs as u32, 1];
        out.dispatch(Kernel::Convolve { again: false }, &mixer.convolve, groups);
    }

    pub(super) fn scan(&self, out: &mut Lowering, id: MixerId, runs: usize) {
        let scan = self.mixers[&id].scan.as_ref().expect("a plan that scans has one");
        out.dispatch(scan.kernel(false), &scan.bound, [scan.groups, runs as u32, 1]);
    }

    /// Makes states again.
    pub(super) fn replay(&self, out: &mut Lowering, replay: &Replay) {
        for (layer, _) in replay.layers.iter().enumerate().filter(|(_, step)| step.is_some()) {
            let Some(mixer) = self.mixers.get(&MixerId(layer as u32)) else { continue };
            let groups = [mixer.channel_groups, 1, 1];
            out.dispatch(Kernel::Convolve { again: true }, &mixer.convolve, groups);
            if let Some(scan) = &mixer.scan {
                out.dispatch(scan.kernel(true), &scan.bound, [scan.groups, 1, 1]);
            }
        }
    }
}
