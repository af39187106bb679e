//! `--placement`: what comes first into the GPU's memory, or a placement that an earlier --dry-run --json has written.

use std::{fs::File, io::Read, path::Path, str::FromStr};

use serde::Deserialize;

use crate::{
    Error, Result,
    mask::skips::ModelId,
    placement::{HighBits, PlacementRequest, PlanesApart},
    plan::{Unit, UnitSet},
};

/// A plan names the layers of a model, thousands of them at most.
const MAX_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub enum PlacementArg {
    Auto,
    Layers,
    File(String),
}

impl FromStr for PlacementArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => PlacementArg::Auto,
            "layers" => PlacementArg::Layers,
            file => PlacementArg::File(file.into()),
        })
    }
}

impl PlacementArg {
    /// `with_experts`: which layers of the model have some.
    pub fn add_to(
        &self,
        request: &mut PlacementRequest,
        model: &ModelId,
        with_experts: &[bool],
    ) -> Result<()> {
        match self {
            PlacementArg::Auto => {}
            PlacementArg::Layers => request.whole_layers = true,
            PlacementArg::File(path) => {
                let (held, apart) = parse(path, &read(path.as_ref())?, model, with_experts)?;
                if held == UnitSet::none(model.n_layer) {
                    // No GPU is looked for.
                    request.gpu_layers = Some(0);
                }
                // Another placement would be another text.
                (request.on_gpu, request.strict) = (Some(held), true);
                request.planes_apart = Some(apart);
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(path, e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong(&path.display().to_string(), "larger than 4 MiB, which no plan is"));
    }
    Ok(bytes)
}

fn wrong(source: &str, what: impl std::fmt::Display) -> Error {
    Error::Input(format!(
        "{source}: {what}; --placement takes what --dry-run --json has printed for this model"
    ))
}

#[derive(Deserialize)]
struct Plan {
    model: Option<Model>,
    places: Vec<Here>,
}

#[derive(Deserialize)]
struct Model {
    n_layer: usize,
    fingerprint: String,
}

#[derive(Deserialize)]
struct Here {
    place: Place,
    embedding: bool,
    attention: Vec<usize>,
    mlp: Vec<usize>,
    /// Plans of models without experts, from earlier versions, do not have it.
    #[serde(default)]
    experts: Vec<usize>,
    head: bool,
    /// Of what is here, as later versions have it.
    #[serde(default)]
    low_planes_in_ram: LowPlanes,
}

#[derive(Default, Deserialize)]
struct LowPlanes {
    attention: Vec<usize>,
    mlp: Vec<usize>,
    /// Which high planes lie on the GPU; as later versions have it.
    #[serde(default)]
    all_but_two_bits: bool,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Place {
    Vram,
    Ram,
    File,
}

/// What goes to the GPU, and of that what has its low planes in RAM. Between RAM and the file nothing is pinned: they hold
/// the same bits.
fn parse(
    source: &str,
    bytes: &[u8],
    model: &ModelId,
    with_experts: &[bool],
) -> Result<(UnitSet, PlanesApart)> {
    let plan: Plan = serde_json::from_slice(bytes).map_err(|e| wrong(source, e))?;
    let n_layer = model.n_layer;
    if let Some(of) = plan.model {
        if of.n_layer != n_layer {
            let what =
                format_args!("made for a model of {} layers, this one has {n_layer}", of.n_layer).to_string();
            return Err(wrong(source, what));
        }
        if of.fingerprint != model.fingerprint {
            return Err(wrong(source, "made for another model"));
        }
    }
    // Each part is in one place.
    let mut held = UnitSet::none(n_layer);
    let mut seen = UnitSet::none(n_layer);
    for here in &plan.places {
        let on_gpu = here.place == Place::Vram;
        for (name, layers, seen, held) in [
            ("attention", &here.attention, &mut seen.attn, &mut held.attn),
            ("MLP", &here.mlp, &mut seen.mlp, &mut held.mlp),
            ("experts", &here.experts, &mut seen.experts, &mut held.experts),
        ] {
            for &layer in layers {
                if layer >= n_layer {
                    let last = n_layer.saturating_sub(1);
                    return Err(wrong(source, format!("{name} {layer}: the model's layers are 0 to {last}")));
                }
                if name == "experts" && !with_experts[layer] {
                    return Err(wrong(source, format!("experts {layer}: that layer has none")));
                }
                if seen[layer] {
                    return Err(wrong(source, format!("{name} {layer} is in two places")));
                }
                (seen[layer], held[layer]) = (true, on_gpu);
            }
        }
        for (name, is_here, seen, held) in [
            ("the embedding", here.embedding, &mut seen.embed, &mut held.embed),
            ("the head", here.head, &mut seen.head, &mut held.head),
        ] {
            if is_here && *seen {
                return Err(wrong(source, format!("{name} is in two places")));
            }
            if is_here {
                (*seen, *held) = (true, on_gpu);
            }
        }
    }
    // Where there are no experts, they are where the MLP is.
    for layer in (0..n_layer).filter(|&layer| !with_experts[layer]) {
        (seen.experts[layer], held.experts[layer]) = (seen.mlp[layer], held.mlp[layer]);
    }
    let mut apart = PlanesApart::none(n_layer);
    for LowPlanes { attention, mlp, all_but_two_bits } in
        plan.places.iter().map(|here| &here.low_planes_in_ram)
    {
        if *all_but_two_bits {
            apart.high = HighBits::Two;
        }
        for (name, layers, held, apart) in [
            ("attention", attention, &held.attn, &mut apart.units.attn),
            ("MLP", mlp, &held.mlp, &mut apart.units.mlp),
        ] {
            for &layer in layers {
                if !held.get(layer).is_some_and(|&here| here) {
                    let what = format!("{name} {layer} has its low planes in RAM, and is not in vram itself");
                    return Err(wrong(source, what));
                }
                apart[layer] = true;
            }
        }
    }
    // What predicts one token more is where all of the model is, if that is one place.
    held.mtp = held.head;
    let layers = (0..n_layer).flat_map(|l| [Unit::Attn(l), Unit::Mlp(l), Unit::Experts(l)]);
    match layers.chain([Unit::Embed, Unit::Head]).find(|&unit| !seen.holds(unit)) {
        Some(unit) => Err(wrong(source, format!("{unit} is nowhere"))),
        None => Ok((held, apart)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn model() -> ModelId {
        ModelId { name: "m".into(), arch: "llama".into(), n_layer: 3, fingerprint: "12".into() }
    }

    fn plan() -> Value {
        json!({
            "model": {"name": "m", "arch": "llama", "n_layer": 3, "fingerprint": "12"},
            "places": [
                {"place": "vram", "bytes": 1, "embedding": false, "attention": [0, 2], "mlp": [2], "head": true},
                {"place": "ram", "bytes": 1, "embedding": true, "attention": [1], "mlp": [0], "head": false},
                {"place": "file", "bytes": 1, "embedding": false, "attention": [], "mlp": [1], "head": false},
            ],
            "first": "drafted",
        })
    }

    fn parsed(plan: &Value) -> Result<UnitSet> {
        parse("plan.json", plan.to_string().as_bytes(), &model(), &[false; 3]).map(|(held, _)| held)
    }

    /// The last two layers have experts.
    fn parsed_with_experts(plan: &Value) -> Result<UnitSet> {
        parse("plan.json", plan.to_string().as_bytes(), &model(), &[false, true, true]).map(|(held, _)| held)
    }

    #[test]
    fn what_lies_on_the_gpu_is_read_from_a_plan() {
        let held = UnitSet {
            embed: false,
            attn: vec![true, false, true],
            mlp: vec![false, false, true],
            experts: vec![false, false, true],
            head: true,
            mtp: true,
        };
        assert_eq!(parsed(&plan()).unwrap(), held);
        // Of another tool, or an older one.
        let mut anonymous = plan();
        anonymous["model"] = Value::Null;
        assert_eq!(parsed(&anonymous).unwrap(), held);
    }

    #[test]
    fn what_is_no_plan_for_the_model_is_said_in_a_line() {
        let fails = |change: &dyn Fn(&mut Value), words: &str| {
            let mut plan = plan();
            change(&mut plan);
            let message = parsed(&plan).unwrap_err().to_string();
            assert!(message.starts_with("plan.json: ") && message.contains("--dry-run --json"), "{message}");
            assert!(message.contains(words) && !message.contains('\n'), "{message}");
        };
        fails(&|p| p["model"]["n_layer"] = json!(4), "a model of 4 layers, this one has 3");
        fails(&|p| p["model"]["fingerprint"] = json!("13"), "another model");
        fails(&|p| p["places"][0]["attention"] = json!([0, 3]), "attention 3: the model's layers are 0 to 2");
        fails(&|p| p["places"][1]["mlp"] = json!([0, 2]), "MLP 2 is in two places");
        fails(&|p| p["places"][1]["mlp"] = json!([]), "MLP 0 is nowhere");
        fails(&|p| p["places"][0]["attention"] = json!([0]), "attention 2 is nowhere");
        fails(&|p| p["places"][1]["head"] = json!(true), "the head is in two places");
        fails(&|p| p["places"][1]["embedding"] = json!(false), "the embedding is nowhere");
        fails(&|p| p["places"][0]["place"] = json!("moon"), "moon");
        fails(&|p| p["places"] = json!(7), "invalid type");
        fails(&|p| *p = json!([]), "");
        fails(&|p| *p = json!({}), "places");
    }

    #[test]
    fn planes_that_lie_apart_are_read_with_their_bits() {
        let mut plan = plan();
        let of = |plan: &Value| parse("plan.json", plan.to_string().as_bytes(), &model(), &[false; 3]);
        plan["places"][0]["low_planes_in_ram"] = json!({"attention": [2], "mlp": [2]});
        // As plans were before there were high planes of two bits.
        let apart = of(&plan).unwrap().1;
        assert_eq!((apart.units.attn, apart.units.mlp), (vec![false, false, true], vec![false, false, true]));
        assert_eq!(apart.high, HighBits::Most);
        plan["places"][0]["low_planes_in_ram"]["all_but_two_bits"] = json!(true);
        assert_eq!(of(&plan).unwrap().1.high, HighBits::Two);
        plan["places"][0]["low_planes_in_ram"]["mlp"] = json!([1]);
        let message = of(&plan).unwrap_err().to_string();
        assert!(message.contains("MLP 1 has its low planes in RAM, and is not in vram itself"), "{message}");
    }

    #[test]
    fn experts_are_a_part_of_their_own() {
        let mut plan = plan();
        plan["places"][0]["experts"] = json!([1]);
        plan["places"][1]["experts"] = json!([2]);
        assert_eq!(parsed_with_experts(&plan).unwrap().experts, [false, true, false]);
        let message = |plan: &Value| parsed_with_experts(plan).unwrap_err().to_string();
        plan["places"][1]["experts"] = json!([1, 2]);
        assert!(message(&plan).contains("experts 1 is in two places"));
        plan["places"][1]["experts"] = json!([0, 2]);
        assert!(message(&plan).contains("experts 0: that layer has none"));
        plan["places"][1]["experts"] = json!([]);
        assert!(message(&plan).contains("experts 2 is nowhere"));
    }

    #[test]
    fn what_is_pinned_is_that_or_nothing() {
        let mut request = PlacementRequest::default();
        PlacementArg::Layers.add_to(&mut request, &model(), &[false; 3]).unwrap();
        assert_eq!(request, PlacementRequest { whole_layers: true, ..PlacementRequest::default() });
        let mut plan = plan();
        plan["places"][0]["place"] = json!("ram");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, plan.to_string()).unwrap();
        let arg: PlacementArg = file.path().to_str().unwrap().parse().unwrap();
        let mut request = PlacementRequest::default();
        arg.add_to(&mut request, &model(), &[false; 3]).unwrap();
        let nothing = Some(UnitSet::none(3));
        assert_eq!((request.on_gpu, request.strict, request.gpu_layers), (nothing, true, Some(0)));
        let missing = PlacementArg::File("no such file".into()).add_to(
            &mut PlacementRequest::default(),
            &model(),
            &[false; 3],
        );
        assert!(missing.unwrap_err().to_string().starts_with("no such file: "));
    }
}
