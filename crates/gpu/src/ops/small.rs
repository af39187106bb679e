//! Operations on each row by itself.

use super::{
    super::{
        params::{
            AddParams, CapParams, EmbedParams, MultiplyParams, NormGroupsParams, NormParams, ScaleParams,
            TakeParams,
        },
        pipelines::{Curve, Kernel, numbers_of},
        variants::Arith,
        weights::{Numbers, plain_norm},
    },
    AT_ONCE, Ops, RowStep, Stage,
};
use crate::plan::{Activation, Buf, EmbedBy, Norm, NormKind, Op, Parts, WeightId};

/// Where parts of rows are copied to.
pub struct Taken<'a> {
    pub buffer: wgpu::BufferBinding<'a>,
    pub stride: usize,
    pub first: usize,
    pub every: usize,
    /// Numbers that are written: zeros beyond what is taken.
    pub each: usize,
}

/// Parts of rows that are copied.
pub(super) struct Source {
    pub src: Buf,
    pub from: Parts,
    pub parts: usize,
    /// The first numbers of each.
    pub taken: usize,
}

/// Which rows are normed, and where to.
#[derive(Clone, Copy)]
pub(super) struct NormRows {
    /// Numbers that are normed by themselves; 0: the whole row.
    pub group: usize,
    pub src: Buf,
    pub dst: Buf,
    pub add: bool,
    /// Where the list of rows begins, if not all are normed.
    pub list_at: Option<usize>,
}

/// A factor, and the function that is applied to it first.
pub(super) struct Factor {
    pub buf: Buf,
    pub activation: Option<Activation>,
}

impl<'a> Taken<'a> {
    /// Into parts of a buffer.
    pub fn into_parts(stage: &Stage<'a>, dst: Buf, to: Parts, each: usize) -> Self {
        let layout = stage.rows_of(dst);
        let buffer = stage.work.buffer(dst).as_entire_buffer_binding();
        Taken { buffer, stride: layout.stride, first: layout.column + to.from, every: to.every, each }
    }
}

impl Ops {
    /// One step for each part of the table.
    pub(super) fn embed(
        &mut self,
        stage: &Stage,
        table: WeightId,
        by: EmbedBy,
        dst: Buf,
        scale: f32,
        add: bool,
    ) -> Vec<RowStep> {
        let matrix = &stage.weights.matrices[&table];
        let x_stride = (stage.rows_of(dst).stride / 4) as u32;
        let parts = matrix.parts.iter().map(|part| {
            let given = EmbedParams {
                first: part.first_row as u32,
                count: part.rows as u32,
                blocks: matrix.blocks as u32,
                x_stride,
                picks_at: stage.rows.sections.picks(by) as u32,
                scale,
                adds: u32::from(add),
            };
            let [high, low, scales] = part.streams.map(|s| stage.weights.binding(s));
            let rows = stage.rows.rows.as_entire_buffer_binding();
            let storage = [high, low, scales, rows, stage.buffer(dst)];
            self.row_step(
                stage,
                Kernel::Embed(matrix.format),
                &given,
                &storage,
                x_stride.div_ceil(32) as usize,
            )
        });
        parts.collect()
    }

    pub(super) fn norm(&mut self, stage: &Stage, op: &Op, norm: &Norm, rows: NormRows) -> RowStep {
        let NormRows { group, src, dst, add, list_at } = rows;
        if let Some(weight) = plain_norm(&stage.work.layout, op) {
            // Only rows that all products of a layer read are worth preparing here.
            let arith = if dst == Buf::H { self.arith } else { Arith::Float };
            return self.norm_of_rows(stage, weight, norm.eps, rows, arith);
        }
        let listed = u32::from(list_at.is_some());
        let list_at = list_at.unwrap_or(0) as u32;
        let rows = stage.rows.rows.as_entire_buffer_binding();
        let (from, to) = (stage.rows_of(src), stage.rows_of(dst));
        let len = if group == 0 { from.width } else { group };
        let numbers = Numbers::of_norm(stage.model, norm, len);
        let factors = numbers.factors();
        let given = NormGroupsParams {
            len: len as u32,
            src_stride: from.stride as u32,
            src_first: from.column as u32,
            dst_stride: to.stride as u32,
            dst_first: to.column as u32,
            eps: norm.eps,
            step: if factors > len { len as u32 } else { 0 },
            summands_at: factors as u32,
            subtracts_mean: u32::from(norm.kind == NormKind::Layer),
            adds: u32::from(add),
            listed,
            list_at,
        };
        let inside = from.buffer == to.buffer;
        let kernel = Kernel::NormGroups { inside };
        let mut storage = vec![rows, stage.weights.numbers(numbers), stage.buffer(dst)];
        if !inside {
            storage.insert(2, stage.buffer(src));
        }
        self.row_step(stage, kernel, &given, &storage, from.width / len)
    }

    /// By the fast kernel, which also prepares the rows for such products.
    pub(super) fn norm_of_rows(
        &mut self,
        stage: &Stage,
        weight: WeightId,
        eps: f32,
        NormRows { src, dst, list_at, .. }: NormRows,
        arith: Arith,
    ) -> RowStep {
        let layout = stage.rows_of(src);
        let given = NormParams {
            dim: layout.width as u32,
            stride: (layout.stride / 4) as u32,
            eps,
            listed: u32::from(list_at.is_some()),
            list_at: list_at.unwrap_or(0) as u32,
            zero: 0,
        };
        let rows = stage.rows.rows.as_entire_buffer_binding();
        let weight = stage.weights.numbers(Numbers::Vector(weight));
        let mut storage = vec![rows, weight, stage.buffer(src), stage.buffer(dst)];
        if arith != Arith::Float {
            storage.push(stage.prepared(dst));
        }
        let kernel = Kernel::Norm(arith);
        self.row_step(stage, kernel, &given, &storage, 1)
    }

    /// `column`: where the numbers of `by` begin.
    pub(super) fn multiply(&mut self, stage: &Stage, dst: Factor, by: Factor, column: usize) -> RowStep {
        let (Factor { buf: dst, activation: f }, Factor { buf: by, activation: g }) = (dst, by);
        let (to, from) = (stage.rows_of(dst), stage.rows_of(by));
        let given = MultiplyParams {
            f_numbers: numbers_of(f),
            g_numbers: numbers_of(g),
            width: to.width as u32,
            dst_stride: to.stride as u32,
            dst_first: to.column as u32,
            by_stride: from.stride as u32,
            by_first: (from.column + column) as u32,
        };
        let kernel = Kernel::Multiply { f: Curve::of(f), g: Curve::of(g) };
        let storage = [stage.buffer(by), stage.buffer(dst)];
        self.row_step(stage, kernel, &given, &storage, to.width.div_ceil(AT_ONCE))
    }

    pub(super) fn add(
        &mut self,
        stage: &Stage,
        src: Buf,
        dst: Buf,
        scale: f32,
        gate: Option<Buf>,
    ) -> RowStep {
        let (from, to) = (stage.rows_of(src), stage.rows_of(dst));
        let by = gate.map_or(from, |gate| stage.rows_of(gate));
        let given = AddParams {
            width: to.width as u32,
            src_stride: from.stride as u32,
            src_first: from.column as u32,
            dst_stride: to.stride as u32,
            dst_first: to.column as u32,
            scale,
            gated: u32::from(gate.is_some()),
            gate_stride: by.stride as u32,
            gate_first: by.column as u32,
        };
        let storage = [stage.buffer(src), stage.buffer(gate.unwrap_or(src)), stage.buffer(dst)];
        self.row_step(stage, Kernel::Add, &given, &storage, to.width.div_ceil(AT_ONCE))
    }

    pub(super) fn take(&mut self, stage: &Stage, source: Source, to: Taken) -> RowStep {
        let Source { src, from, parts, taken } = source;
        let layout = stage.rows_of(src);
        let given = TakeParams {
            parts: parts as u32,
            taken: taken as u32,
            each: to.each as u32,
            src_stride: layout.stride as u32,
            src_first: (layout.column + from.from) as u32,
            src_every: from.every as u32,
            dst_stride: to.stride as u32,
            dst_first: to.first as u32,
            dst_every: to.every as u32,
        };
        self.row_step(
            stage,
            Kernel::Take,
            &given,
            &[stage.buffer(src), to.buffer],
            (parts * to.each).div_ceil(AT_ONCE),
        )
    }

    pub(super) fn scale(&mut self, stage: &Stage, buf: Buf, by: f32) -> RowStep {
        let layout = stage.rows_of(buf);
        let given = ScaleParams {
            width: layout.width as u32,
            stride: layout.stride as u32,
            first: layout.column as u32,
            by,
        };
        self.row_step(stage, Kernel::Scale, &given, &[stage.buffer(buf)], layout.width.div_ceil(AT_ONCE))
    }

    /// Multiplies each row by its scale of an adapter.
    pub(super) fn weigh(&mut self, stage: &Stage, buf: Buf, adapter: usize) -> RowStep {
        let (to, sections) = (stage.rows_of(buf), &stage.rows.sections);
        let given = MultiplyParams {
            f_numbers: numbers_of(None),
            g_numbers: numbers_of(None),
            width: to.width as u32,
            dst_stride: to.stride as u32,
            dst_first: to.column as u32,
            by_stride: sections.thin_width() as u32,
            by_first: sections.scales(adapter) as u32,
        };
        let kernel = Kernel::Multiply { f: Curve::of(None), g: Curve::of(None) };
        let storage = [stage.rows.rows.as_entire_buffer_binding(), stage.buffer(buf)];
        self.row_step(stage, kernel, &given, &storage, to.width.div_ceil(AT_ONCE))
    }

    /// Scales and caps logits, if the plan asks for it.
    pub(super) fn logits(&mut self, stage: &Stage, scale: f32, cap: Option<f32>) -> Option<RowStep> {
        if scale == 1.0 && cap.is_none() {
            return None;
        }
        let n_vocab = stage.model.plan.dims.n_vocab;
        let given = CapParams { count: n_vocab as u32, scale, cap: cap.unwrap_or(0.0) };
        Some(self.row_step(stage, Kernel::Cap, &given, &[stage.logits()], n_vocab.div_ceil(AT_ONCE)))
    }
}
