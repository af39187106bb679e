//! Layers over several GPUs. One driver can be opened twice: two devices that know nothing of each other.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use crate::common;
use common::{
    all_logits, bits,
    child::{Ended, Start},
    context, embedded_model, gpu,
    in_floats::{f32_cache, floats, in_floats, relative_error},
    program::{Folder, program},
    same_in_batches, tokens,
};
use serde_json::Value;
use spec_run::{
    Batch, Context, ContextConfig, Model, RunLayers,
    context::Device,
    placement::{Unit, UnitSet},
};

/// On the same GPU as often.
fn on(number: usize, times: usize, model: &Arc<Model>, edit: impl FnOnce(&mut ContextConfig)) -> Context {
    context(model, |c| {
        c.device = Device::Several(vec![number; times]);
        edit(c);
    })
}

/// What a context takes of a GPU, by its own words: "GPU, llvmpipe (LLVM 15.0.6, 256 bits), 23.1 MiB".
fn bytes(context: &Context) -> u64 {
    let mib: f64 = context.describe().rsplit(", ").next().unwrap().trim_end_matches(" MiB").parse().unwrap();
    (mib * f64::from(1 << 20)) as u64
}

/// Opened with less and less of each GPU, until so many are needed that have some layers each.
fn over(times: usize, bytes: u64, open: impl Fn(u64) -> Context) -> Context {
    const STEP: u64 = 512 << 10;
    let mut opened = (1..bytes / STEP).map(|less| open(bytes - less * STEP));
    let suits = |context: &Context| {
        let layers = layers(context);
        layers.len() == times && layers.iter().all(|of| of.len() > 1)
    };
    opened.find(suits).expect("a room that this takes")
}

/// The layers whose attention each GPU has.
fn layers(context: &Context) -> Vec<Vec<usize>> {
    let of = |held: &UnitSet| (0..held.attn.len()).filter(|&l| held.attn[l]).collect();
    context.placement().shares.iter().map(|share| of(&share.held)).collect()
}

fn every_other() -> RunLayers {
    (0..8).fold(RunLayers::all(16), |mask, l| mask.skip_attn(2 * l + 1).skip_mlp(2 * l + 1))
}

/// What drafts leave behind, and shifts: a fork drafts by every other layer, the text goes on, and its beginning is dropped.
fn after_a_life(context: &mut Context, text: &[u32]) -> Vec<Vec<u32>> {
    context.remove_all();
    let mut found = Vec::new();
    context.decode(&Batch::prompt(&text[..10], 0, 0)).unwrap();
    context.fork(0, 1);
    context.decode(&Batch::prompt(&text[10..14], 10, 1).with_layers(every_other())).unwrap();
    found.push(bits(context.logits(0)));
    context.remove(1);
    context.decode(&Batch::prompt(&text[10..20], 10, 0)).unwrap();
    found.push(bits(context.logits(0)));
    context.truncate(0, 16).unwrap();
    context.shift(0, 4, 6).unwrap();
    context.decode(&Batch::prompt(&text[16..], 10, 0)).unwrap();
    found.push(bits(context.logits(0)));
    found
}

#[test]
fn layers_on_two_and_three_gpus_give_the_bits_of_one() {
    let name = "layers_on_two_and_three_gpus_give_the_bits_of_one";
    let Some(found) = gpu::found(name) else { return };
    let model = embedded_model();
    let text = tokens(24, 4, model.n_vocab());
    let mut one = gpu::on(&found.info.name, &model, |_| {});
    let whole = all_logits(&mut one, &text);
    let lived = after_a_life(&mut one, &text);
    for times in [2, 3] {
        let mut several = over(times, bytes(&one), |vram| {
            on(found.number, times, &model, |c| c.placement.vram = Some(vram))
        });
        let said = several.describe();
        assert!(said.matches("GPU, ").count() == times && !said.contains("CPU"), "{said}");
        assert!(several.is_divided() && several.notes().is_empty(), "{:?}", several.notes());
        // In the model's order, none left out.
        let layers = layers(&several);
        assert_eq!(layers.concat(), (0..16).collect::<Vec<_>>());
        assert!(all_logits(&mut several, &text) == whole, "{times}: all rows");
        for size in [1, 5] {
            same_in_batches(&mut several, &text, size, &whole, name);
        }
        assert!(after_a_life(&mut several, &text) == lived, "{times}: a fork, a draft, a cut and a shift");
    }
    // Where one has room for all of it, the other is left alone.
    let roomy = on(found.number, 2, &model, |_| {});
    assert_eq!(roomy.describe(), one.describe());
}

/// The same parts on the CPU, and the same low planes: whether the others are on one GPU or on two changes no bit.
#[test]
fn two_gpus_beside_a_cpu_give_the_bits_of_one() {
    let name = "two_gpus_beside_a_cpu_give_the_bits_of_one";
    let Some(found) = gpu::found(name) else { return };
    let model = embedded_model();
    let text = tokens(24, 4, model.n_vocab());
    let on_cpu = |unit| matches!(unit, Unit::Embed | Unit::Attn(5) | Unit::Mlp(9));
    let placed = |c: &mut ContextConfig, apart: bool| {
        c.placement.on_gpu = Some(UnitSet::of(16, |unit| !on_cpu(unit)));
        c.placement.planes_apart =
            gpu::by_planes(UnitSet::of(16, |unit| apart && unit.layer().is_some_and(|layer| layer % 3 > 0)));
    };
    for apart in [false, true] {
        let mut one = gpu::on(&found.info.name, &model, |c| placed(c, apart));
        let whole = all_logits(&mut one, &text);
        let lived = after_a_life(&mut one, &text);
        let mut two = over(2, bytes_of_gpu(&one), |vram| {
            on(found.number, 2, &model, |c| {
                placed(c, apart);
                c.placement.vram = Some(vram);
            })
        });
        let said = two.describe();
        assert!(said.matches("GPU, ").count() == 2 && said.contains("CPU, "), "{said}");
        assert_eq!(two.placement().planes_apart(), one.placement().planes_apart());
        assert!(two.placement().planes_apart().units.mlp[1] == apart);
        assert!(all_logits(&mut two, &text) == whole, "low planes apart {apart}: all rows");
        for size in [1, 5] {
            same_in_batches(&mut two, &text, size, &whole, name);
        }
        assert!(after_a_life(&mut two, &text) == lived, "low planes apart {apart}");
    }
}

/// Of one whose other parts are the CPU's: "GPU, llvmpipe (LLVM 15.0.6, 256 bits), 23.1 MiB; CPU, ...".
fn bytes_of_gpu(context: &Context) -> u64 {
    let said = context.describe();
    let mib = said.split(" MiB").next().unwrap().rsplit(", ").next().unwrap();
    (mib.parse::<f64>().unwrap() * f64::from(1 << 20)) as u64
}

/// Mesa's program of a driver, as often as it is named: a machine of several GPUs. Else the test says that it cannot run.
struct Machine {
    drivers: Vec<PathBuf>,
    _directory: tempfile::TempDir,
}

impl Machine {
    fn of_two(test: &str) -> Option<Self> {
        let folder = Path::new("/usr/share/vulkan/icd.d");
        let files = folder.read_dir().into_iter().flatten().flatten().map(|file| file.path());
        let is_llvmpipe = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("lvp_icd");
        let Some(driver) = files.into_iter().find(is_llvmpipe) else {
            eprintln!("NOT RUN: {test}: no llvmpipe in {}", folder.display());
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let again = directory.path().join("again.json");
        std::fs::copy(&driver, &again).unwrap();
        Some(Machine { drivers: vec![driver, again], _directory: directory })
    }

    fn program(&self) -> Command {
        let mut program = program();
        program.env("VK_DRIVER_FILES", std::env::join_paths(&self.drivers).unwrap());
        program
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.program().args(args).ended()
    }

    fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let output = self.run(args);
        let message = gpu::our_lines(&output, &mut self.program());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    }
}

const TEXT: [&str; 9] =
    ["-p", "Once upon a time", "-n", "12", "--temp", "0", "--ignore-eos", "--logprobs", "1"];

#[test]
fn the_program_takes_several_gpus_by_their_numbers() {
    let Some(machine) = Machine::of_two("the_program_takes_several_gpus_by_their_numbers") else { return };
    let text = |more: &[&str]| {
        let out = machine
            .run(&[&TEXT[..], &["--json", "--no-learn", "--gpu-variant", "plain"], more].concat())
            .json();
        (out["tokens"].clone(), out["logprobs"].clone())
    };
    let one = text(&["--device", "0"]);
    assert_eq!(one.0.as_array().unwrap().len(), 12);
    let both = ["--device", "1,0", "--vram", "12MiB", "-c", "256"];
    assert_eq!(text(&both), one);
    let mask = ["--skip-mlp", "1,3,5,7,9,11,13,15", "--draft-max", "3"];
    assert_eq!(text(&[&both[..], &mask].concat()), one, "drafting");

    // The plan names them, and gives the same places again.
    let table = machine.run(&[&both[..], &["--dry-run", "--speeds", "1,1,1"]].concat()).done();
    let line =
        |begin: &str| table.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{table}"));
    assert!(line("VRAM 1").contains(" 0-") && !line("VRAM 1").contains("head"), "{table}");
    assert!(line("VRAM 0").contains("-15") && line("VRAM 0").ends_with("head"), "{table}");
    assert!(line("VRAM budgets").ends_with("12.0 MiB of GPU 1, 12.0 MiB of GPU 0"), "{table}");
    assert!(!table.contains("RAM  "), "{table}");
    let plan = machine.run(&[&both[..], &["--dry-run", "--json", "--speeds", "1,1,1"]].concat()).json();
    let gpus: Vec<&Value> = plan["places"].as_array().unwrap().iter().map(|place| &place["gpu"]).collect();
    assert_eq!(gpus, [1, 0]);
    assert_eq!(plan["places"][1]["budget"], 12 << 20);
    let folder = Folder::new();
    let kept = folder.file("plan.json", plan.to_string());
    assert_eq!(text(&[&both[..], &["--placement", &kept]].concat()), one, "a plan kept");
}

#[test]
fn numbers_that_cannot_be_are_one_line() {
    let Some(machine) = Machine::of_two("numbers_that_cannot_be_are_one_line") else { return };
    machine.fails(
        &["-n", "1", "--device", "0,2"],
        1,
        &["--device", "2", "there are 0 llvmpipe", "1 llvmpipe", "cpu"],
    );
    machine.fails(&["-n", "1", "--device", "1,1"], 2, &["--device", "GPU 1 is named twice"]);
    machine.fails(&["-n", "1", "--device", "0,cpu"], 2, &["--device", "0,cpu", "GPUs by their numbers"]);
    machine.fails(&["-n", "1", "--device", "0,1", "--vram", "100KiB"], 1, &["nothing fits", "--vram"]);
}

/// Where there are two drivers: their arithmetic may differ, so a text is that of the same two, in whatever batches.
#[test]
fn layers_on_two_drivers_give_the_same_in_every_batch() {
    let name = "layers_on_two_drivers_give_the_same_in_every_batch";
    let all = spec_run_gpu::adapters();
    let other = all.iter().find(|of| of.info.driver != all[0].info.driver);
    let (Some(first), Some(other)) = (all.first(), other) else {
        eprintln!("NOT RUN: {name}: there are no two drivers");
        return;
    };
    let model = in_floats(&embedded_model());
    let text = tokens(12, 4, model.n_vocab());
    let want = floats(&all_logits(&mut context(&model, f32_cache), &text));
    let all = bytes(&gpu::on(&first.number.to_string(), &model, f32_cache));
    for numbers in [vec![first.number, other.number], vec![other.number, first.number]] {
        let mut both = context(&model, |c| {
            f32_cache(c);
            c.device = Device::Several(numbers.clone());
            c.placement.vram = Some(all / 10 * 7);
        });
        assert_eq!(both.describe().matches("GPU, ").count(), 2, "{}", both.describe());
        let got = all_logits(&mut both, &text);
        for (row, (got, want)) in floats(&got).iter().zip(&want).enumerate() {
            let error = relative_error(got, want);
            assert!(error < gpu::ROUNDING, "{numbers:?}: row {row}: {error}");
        }
        same_in_batches(&mut both, &text, 1, &got, name);
    }
}
