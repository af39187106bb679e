//! Adapters as operations of a plan, for devices whose kernels make several operations at once: two thin products beside each
//! one that has an adapter, and the row's scale between them. All rows go through them; those of texts without an adapter add
//! nothing. A CPU by itself does better: see `crates/backend/src/cpu/adapt.rs`.

use std::{collections::HashMap, sync::Arc};

use spec_run_kernels::matmul::Weight;

use super::Loras;
use crate::{
    Error, Model, Result,
    gguf::NewTensor,
    plan::{Activation, Buf, EmbedBy, Linear, Op, WeightId},
    quant::dequantize,
    quoted::Quoted,
};

/// Products are made in whole blocks of so many.
const BLOCK: usize = 32;

impl Loras {
    /// Why a model with these adapters cannot run by operations of a plan, if it cannot.
    pub fn only_by_themselves(&self, model: &Model) -> Option<String> {
        let mut only =
            self.all.iter().filter(|lora| lora.table.is_some()).map(|_| crate::model::TOKEN_TABLE.to_owned());
        let of_op = |op: &Op| {
            let operands = model.plan.operands(op);
            let fused = matches!(op, Op::Head { .. })
                // What its second factor is depends on the first.
                || matches!(op, Op::Gate { activation: Activation::ClampedSwiglu { .. }, up: Some(_), .. });
            let matrices = operands.matrices().map(|(id, _)| id).filter(|_| fused);
            let found = matrices.chain(operands.experts().map(|of| of.first)).find(|id| self.adapts(*id));
            found.map(|id| model.weight(id).tensor.name.clone())
        };
        let name = only.next().or_else(|| model.plan.ops().find_map(of_op))?;
        Some(format!(
            "all of it runs on the CPU: `loras` have something for {}, which is applied there only",
            Quoted(&name)
        ))
    }

    /// The model with them in its plan.
    pub fn in_plan(&self, model: &Model) -> Result<Arc<Model>> {
        let mut made = Made {
            loras: self,
            model,
            widths: model.plan.widths.clone(),
            bufs: HashMap::new(),
            tensors: Vec::new(),
            ones: HashMap::new(),
        };
        let mut layers = model.plan.layers.clone();
        for layer in &mut layers {
            for ops in [&mut layer.shared, &mut layer.attn, &mut layer.mlp] {
                *ops = made.adapted(ops)?;
            }
        }
        let Made { widths, tensors, .. } = made;
        let mut adapted = model.with_matrices(tensors)?;
        (adapted.plan.layers, adapted.plan.widths) = (layers, widths);
        Ok(Arc::new(adapted))
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// What the first matrix makes of the n-th pair beside products of the same rows.
    Thin(usize),
    /// What a gate's first factor is multiplied with.
    Factor,
}

struct Made<'a> {
    loras: &'a Loras,
    model: &'a Model,
    widths: Vec<usize>,
    bufs: HashMap<(Purpose, usize), Buf>,
    tensors: Vec<NewTensor>,
    /// Rows of ones, by their width.
    ones: HashMap<usize, WeightId>,
}

/// A product to which adapters may add.
#[derive(Clone, Copy)]
struct Product {
    weight: WeightId,
    dst: Buf,
}

impl Made<'_> {
    fn adapted(&mut self, ops: &[Op]) -> Result<Vec<Op>> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < ops.len() {
            match ops[at] {
                Op::MatMul { src, .. } => {
                    let run = products_of(src, &ops[at..]);
                    out.extend(&ops[at..at + run.len()]);
                    self.add(src, &run, &mut out)?;
                    at += run.len();
                    continue;
                }
                Op::Gate { gate, up, activation, src, dst }
                    if std::iter::once(gate).chain(up).any(|linear| self.loras.adapts(linear.weight)) =>
                {
                    let factor = self.buf(Purpose::Factor, self.widths[dst.index()])?;
                    let both = std::iter::once((gate, dst)).chain(up.map(|up| (up, factor)));
                    let mut products = Vec::new();
                    for (Linear { weight, bias }, dst) in both {
                        out.push(Op::MatMul { weight, bias, src, dst, add: false });
                        products.push(Product { weight, dst });
                    }
                    self.add(src, &products, &mut out)?;
                    if up.is_none() {
                        let table = self.ones(self.widths[dst.index()]);
                        out.push(Op::Embed {
                            table,
                            by: EmbedBy::First,
                            dst: factor,
                            scale: 1.0,
                            add: false,
                        });
                    }
                    out.push(Op::Multiply { dst, f: Some(activation), by: factor, g: None, column: 0 });
                }
                op => out.push(op),
            }
            at += 1;
        }
        Ok(out)
    }

    /// What adapters add to products of the same rows: all their first matrices, then the scales, then the second ones.
    fn add(&mut self, src: Buf, products: &[Product], out: &mut Vec<Op>) -> Result<()> {
        let loras = self.loras;
        let mut pairs = Vec::new();
        for product in products {
            for (adapter, thin) in loras.of(product.weight) {
                let rank = thin.rank().next_multiple_of(BLOCK);
                let buf = self.buf(Purpose::Thin(pairs.len()), rank)?;
                let (a, b) = (thin.a(), thin.b());
                let a = self.matrix(&a, (rank, a.cols()), 1.0);
                let b = self.matrix(&b, (b.rows(), rank), thin.times());
                pairs.push((adapter, a, b, buf, product.dst));
            }
        }
        let product = |weight, src, dst, add| Op::MatMul { weight, bias: None, src, dst, add };
        out.extend(pairs.iter().map(|&(_, a, _, buf, _)| product(a, src, buf, false)));
        out.extend(pairs.iter().map(|&(adapter, _, _, buf, _)| Op::Weigh { buf, adapter }));
        out.extend(pairs.iter().map(|&(_, _, b, buf, dst)| product(b, buf, dst, true)));
        Ok(())
    }

    /// A thin matrix, with zeros to whole blocks, times a number.
    fn matrix(&mut self, from: &Weight, (rows, cols): (usize, usize), times: f32) -> WeightId {
        let mut numbers = vec![0.0; rows * cols];
        for row in 0..from.rows() {
            let to = &mut numbers[row * cols..][..from.cols()];
            dequantize(from.ty(), from.row(row), to);
            to.iter_mut().for_each(|x| *x *= times);
        }
        self.tensor([cols, rows], numbers)
    }

    fn ones(&mut self, width: usize) -> WeightId {
        if let Some(&known) = self.ones.get(&width) {
            return known;
        }
        let id = self.tensor([width, 1], vec![1.0; width]);
        self.ones.insert(width, id);
        id
    }

    fn tensor(&mut self, [cols, rows]: [usize; 2], numbers: Vec<f32>) -> WeightId {
        let id = self.model.weights.len() + self.tensors.len();
        self.tensors.push(NewTensor { name: format!("lora.{id}"), cols, rows, numbers });
        WeightId(id as u32)
    }

    fn buf(&mut self, purpose: Purpose, width: usize) -> Result<Buf> {
        let next = self.widths.len();
        if next == Buf::MOST && !self.bufs.contains_key(&(purpose, width)) {
            let what =
                format!("`loras`: more than {} buffers; use fewer adapters, or `device` cpu", Buf::MOST);
            return Err(Error::Usage(what));
        }
        Ok(*self.bufs.entry((purpose, width)).or_insert_with(|| {
            self.widths.push(width);
            Buf::new(next)
        }))
    }
}

/// The products that begin operations and read these rows, up to one that changes them.
fn products_of(src: Buf, ops: &[Op]) -> Vec<Product> {
    let mut out = Vec::new();
    for op in ops {
        match *op {
            Op::MatMul { weight, src: of, dst, .. } if of == src => {
                out.push(Product { weight, dst });
                if dst == src {
                    break;
                }
            }
            _ => break,
        }
    }
    out
}
