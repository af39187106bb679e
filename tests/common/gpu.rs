//! The adapter that the GPU tests run on: a hardware one, else the first there is.

use std::{
    process::{Command, Output},
    sync::Arc,
};

use spec_run::{
    Batch, Context, ContextConfig, Model, RunLayers,
    context::Device,
    placement::{HighBits, PlanesApart, UnitSet},
};
use spec_run_gpu::{AdapterChoice, Found, adapters, choose};

use super::{bits, child::Start, coarse, context};

/// The name to give as a device. Without any adapter the test says so and ends, unless
/// `SPEC_RUN_REQUIRE_FIXTURES` asks that it fail.
pub fn device(test: &str) -> Option<String> {
    let name = choose(&AdapterChoice::Any).or_else(|_| choose(&AdapterChoice::Named("0".into())));
    match name {
        Ok(found) => Some(found.info.name),
        Err(e) => {
            assert!(std::env::var_os("SPEC_RUN_REQUIRE_FIXTURES").is_none(), "{test}: {e}");
            eprintln!("NOT RUN: {test}: {e}");
            None
        }
    }
}

/// One of several choices for the `i`-th model, or all of them where `SPEC_RUN_EVERY_FAMILY` asks for it, as `.ci/full` does. A
/// driver that is a program takes half a second to compile a kernel.
pub fn chosen_in_turn<T: Copy>(i: usize, choices: &[&[T]]) -> Vec<T> {
    match std::env::var_os("SPEC_RUN_EVERY_FAMILY") {
        Some(_) => choices.concat(),
        None => choices[i % choices.len()].to_vec(),
    }
}

/// What the program wrote to its standard error, without the lines that a driver writes there at every start. The same
/// environment as the output's: a list of the devices says nothing of our own.
pub fn our_lines(output: &Output, list_devices: &mut Command) -> String {
    let listed = list_devices.args(["devices", "--json"]).ended();
    let of_drivers = String::from_utf8_lossy(&listed.stderr).into_owned();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours =
        message.lines().filter(|line| !line.is_empty() && !of_drivers.lines().any(|said| said == *line));
    ours.map(|line| format!("{line}\n")).collect()
}

pub fn found(test: &str) -> Option<Found> {
    let name = device(test)?;
    adapters().into_iter().find(|f| f.info.name == name)
}

pub fn on(device: &str, model: &Arc<Model>, edit: impl FnOnce(&mut ContextConfig)) -> Context {
    context(model, |c| {
        c.device = Device::Named(device.into());
        edit(c);
    })
}

/// The high planes of these units on the GPU, with as many bits as there can be.
pub fn by_planes(units: UnitSet) -> Option<PlanesApart> {
    Some(PlanesApart { units, high: HighBits::Most })
}

/// Drafts by the high planes leave no trace in what is evaluated after them: `want` are the text's logits.
pub fn a_coarse_draft_leaves_no_trace(context: &mut Context, text: &[u32], want: &[Vec<u32>], what: &str) {
    let draft = Batch::prompt(&text[10..13], 10, 1).with_layers(coarse(context.model().n_layer()));
    context.remove(0);
    context.decode(&Batch::prompt(&text[..10], 0, 0)).unwrap();
    context.fork(0, 1);
    context.decode(&draft).unwrap();
    context.remove(1);
    context.decode(&Batch::prompt(&text[10..], 10, 0)).unwrap();
    assert!(bits(context.logits(0)) == want[text.len() - 1], "{what}: after a draft");
}

/// Rounding grows through the layers: 2^-24 for an operation, some 10^3 terms in a sum that err at random, 16
/// layers that hand on what they are given. Measured: up to 6e-7; wrong weights or order give 10^-2 and more.
pub const ROUNDING: f64 = 1e-5;

/// The embedded model's first layers. Attention over hundreds of cells takes a program that is a GPU seconds a layer, and each
/// layer of that model does the same.
pub fn first_layers(n: usize) -> RunLayers {
    (n..16).fold(RunLayers::all(16), |mask, layer| mask.skip_attn(layer).skip_mlp(layer))
}
