use super::{
    forecast::{Forecast, Known},
    *,
};

fn read(bytes: u64) -> Read {
    Read { full: bytes, draft: bytes }
}

pub(super) fn basis([vram, ram, file]: [f64; 3], crossing: f64) -> Basis {
    // Nothing is sent over a bus that is slower than RAM.
    let [vram, ram, file, bus] = [vram, ram, file, ram / 2.0].map(Known::given);
    Basis { vram, ram, file, bus, crossing: Known::given(crossing), ..Basis::default() }
}

/// Layers of 100 bytes of attention and 200 of MLP, 10 of K/V; an embedding and a head of 50.
pub(super) fn model(n_layer: usize, draft: Option<&RunLayers>) -> Vec<UnitSize> {
    let part = |unit, bytes, overhead, drafted| UnitSize {
        unit,
        bytes,
        gpu_bytes: bytes,
        read: read(if unit == Unit::Embed { 1 } else { bytes }),
        gpu_read: read(if unit == Unit::Embed { 1 } else { bytes }),
        work: RowWork::default(),
        overhead,
        drafted,
        choice: None,
        goes_on: false,
        by_planes: None,
        planes_apart: None,
        keys_of: None,
    };
    let mut parts = vec![part(Unit::Embed, 50, 0, draft.is_some())];
    for l in 0..n_layer {
        parts.push(part(Unit::Attn(l), 100, 10, draft.is_some_and(|m| m.runs_attn(l))));
        parts.push(part(Unit::Mlp(l), 200, 0, draft.is_some_and(|m| m.runs_mlp(l))));
    }
    parts.push(part(Unit::Head, 50, 5, draft.is_some()));
    parts
}

/// The same with experts of 400 bytes in every layer, of which a token reads a fourth.
fn with_experts(n_layer: usize, draft: Option<&RunLayers>) -> Vec<UnitSize> {
    let mut parts = model(n_layer, draft);
    for l in (0..n_layer).rev() {
        let mlp = parts[2 * l + 2];
        let experts = UnitSize {
            unit: Unit::Experts(l),
            bytes: 400,
            gpu_bytes: 400,
            read: read(100),
            gpu_read: read(100),
            choice: Some(Choice { of: 8, used: 2 }),
            ..mlp
        };
        parts.insert(2 * l + 3, experts);
    }
    parts
}

pub(super) fn budgets(vram: u64) -> Budgets {
    Budgets { vram: Some(vram), scratch: 20, ram: None }
}

fn layers(held: &[bool]) -> Vec<usize> {
    (0..held.len()).filter(|&l| held[l]).collect()
}

#[test]
fn everything_that_fits_goes_to_the_gpu() {
    let all = place(model(4, None), &PlacementRequest::default(), budgets(10_000)).unwrap();
    assert!(!all.uses(Place::Ram) && !all.uses(Place::File));
    assert_eq!(all.on_gpu(), UnitSet::all(4));
}

#[test]
fn without_a_mask_whole_layers_the_last_ones_first() {
    // 20 scratch, 55 head, two layers of 310.
    let p = place(model(4, None), &PlacementRequest::default(), budgets(20 + 55 + 620 + 309)).unwrap();
    let gpu = p.on_gpu();
    assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![2, 3], vec![2, 3]));
    assert!(gpu.head && !gpu.embed);
}

/// A gap would make the rows cross twice more.
#[test]
fn a_layer_that_does_not_fit_is_where_whole_layers_end() {
    let mut parts = model(4, None);
    parts[6].gpu_bytes = 10_000;
    assert_eq!(parts[6].unit, Unit::Mlp(2));
    let p = place(parts, &PlacementRequest::default(), budgets(20 + 55 + 3 * 310)).unwrap();
    assert_eq!((layers(&p.on_gpu().attn), layers(&p.on_gpu().mlp)), (vec![3], vec![3]));
}

#[test]
fn what_a_draft_runs_comes_first() {
    let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
    let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
    // Head 55, attention of 0 and 2 220, MLP of 0 and 3 400: 675; then nothing else fits but one attention.
    let p = place(model(4, Some(&mask)), &request, budgets(20 + 675)).unwrap();
    let gpu = p.on_gpu();
    assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![0, 2], vec![0, 3]));
    // The draft never leaves the fast memory but for the row of the embedding.
    let predicted = p.predict(&basis([100.0, 10.0, 1.0], 0.5));
    let drafted = (50.0 + 200.0 + 400.0) / 100.0 + 0.1 + 0.5;
    assert!((predicted.draft - drafted).abs() < 1e-9, "{predicted:?}");
    // Token: the same and 600 bytes from RAM; borders: embed|0, 0|1, 1|2attn, 2attn|2mlp, 2mlp..3attn|3mlp.
    let token = 6.5 + 0.1 + (100.0 + 200.0 + 200.0 + 100.0) / 10.0 + 5.0 * 0.5;
    assert!((predicted.token - token).abs() < 1e-9, "{predicted:?} {token}");
    let speedup = |k: i32| {
        let tokens: f64 = (0..=k).map(|i| 0.75f64.powi(i)).sum();
        tokens * token / (f64::from(k) * drafted + token)
    };
    assert!((predicted.speedup() - speedup(predicted.drafted as i32)).abs() < 1e-9);
    assert!((1..=48).all(|k| speedup(k) <= predicted.speedup() + 1e-12));
}

#[test]
fn ngl_means_what_llama_cpp_means() {
    let with = |n| PlacementRequest { gpu_layers: Some(n), ..PlacementRequest::default() };
    let gpu = |n| place(model(4, None), &with(n), budgets(10_000)).unwrap().on_gpu();
    assert_eq!((layers(&gpu(3).attn), gpu(3).head), (vec![1, 2, 3], false));
    assert_eq!((layers(&gpu(4).attn), gpu(4).head, gpu(4).embed), (vec![0, 1, 2, 3], false, false));
    assert_eq!(gpu(5), UnitSet::all(4));
    assert_eq!(gpu(99), UnitSet::all(4));
    let error = place(model(4, None), &with(3), budgets(700)).unwrap_err().to_string();
    assert!(error.contains("`gpu_layers` 3") && error.contains("2 layers"), "{error}");
}

#[test]
fn what_ram_does_not_hold_stays_in_the_file() {
    let mask = RunLayers::all(3).skip_attn(0).skip_mlp(0);
    let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
    let none = Budgets { vram: None, scratch: 0, ram: Some(50 + 50 + 600) };
    let p = place(model(3, Some(&mask)), &request, none).unwrap();
    let ram = p.in_ram();
    assert_eq!((layers(&ram.attn), layers(&ram.mlp)), (vec![1, 2], vec![1, 2]));
    assert!(ram.embed && ram.head && p.uses(Place::File) && !p.uses(Place::Vram));
}

#[test]
fn the_table_names_every_place_and_part() {
    let mask = RunLayers::all(4).skip_attn(1).skip_mlp(1).skip_mlp(2).skip_attn(3);
    let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
    let p = place(model(4, Some(&mask)), &request, Budgets { ram: Some(350), ..budgets(695) }).unwrap();
    let table = p.to_string();
    assert!(table.contains("attention 0,2, MLP 0,3, head"), "{table}");
    assert!(table.contains("RAM") && table.contains("file"), "{table}");
}

/// The design's arithmetic for a 70B on a card of 24 GB.
#[test]
fn the_case_of_the_70b() {
    const GB: u64 = 1_000_000_000;
    let n_layer = 80;
    let mask =
        (0..n_layer).filter(|l| l % 2 == 1).fold(RunLayers::all(n_layer), |m, l| m.skip_attn(l).skip_mlp(l));
    let parts = |draft: Option<&RunLayers>| -> Vec<UnitSize> {
        model(n_layer, draft)
            .into_iter()
            .map(|mut p| {
                let bytes = match p.unit {
                    Unit::Embed | Unit::Head | Unit::Mtp => GB,
                    Unit::Attn(_) => GB / 10,
                    Unit::Mlp(_) | Unit::Experts(_) => GB * 4 / 10,
                };
                p.bytes = bytes;
                p.gpu_bytes = bytes;
                p.read = read(if p.unit == Unit::Embed { 8192 } else { bytes });
                p.gpu_read = p.read;
                p.overhead = 0;
                p
            })
            .collect()
    };
    let budgets = Budgets { vram: Some(24 * GB), scratch: GB, ram: None };
    let basis = basis([1e12, 50e9, 3e9], 100e-6);
    let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
    let whole_layers = place(parts(Some(&mask)), &PlacementRequest::default(), budgets).unwrap();
    let chosen = place(parts(Some(&mask)), &request, budgets).unwrap();
    let forecast = Forecast::new(&whole_layers, &chosen, None, Vec::new(), basis);
    let (plain, drafting, aware) = (forecast.plain, forecast.drafting.unwrap(), forecast.placed.unwrap());
    assert!((0.35..0.45).contains(&plain.token), "{plain:?}");
    assert!((0.02..0.025).contains(&aware.draft), "{aware:?}");
    assert!(aware.speedup() > 2.4, "{aware:?}");
    // Half of what a draft reads lies in RAM: by whole layers it gains little.
    assert!((1.0..1.6).contains(&forecast.gain(&drafting)), "{drafting:?}");
    assert!(forecast.gain(&aware) > 1.5 * forecast.gain(&drafting));
    assert_eq!(plain.token, drafting.token);
    let text = forecast.to_string();
    assert!(text.contains("1000 (given), 50 (given) and 3.00 (given) GB/s"), "{text}");
    assert!(text.contains("75 % of drafted tokens standing (assumed)"), "{text}");
}

#[test]
fn experts_come_behind_everything_else() {
    let parts = || with_experts(4, None);
    // The head, all attention and MLPs, and the experts of one layer.
    let room = 20 + 55 + 4 * 310;
    let on_gpu = |vram| place(parts(), &PlacementRequest::default(), budgets(vram)).unwrap().on_gpu();
    let gpu = on_gpu(room + 799);
    assert_eq!((layers(&gpu.attn), layers(&gpu.mlp)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
    assert_eq!(layers(&gpu.experts), [3]);
    // Experts whose router is elsewhere are of no use there.
    let gpu = on_gpu(room - 1);
    assert_eq!((layers(&gpu.mlp), layers(&gpu.experts)), (vec![1, 2, 3], vec![]));
    assert_eq!(on_gpu(10_000), UnitSet::all(4));
    // -ngl is about whole layers.
    let last = PlacementRequest { gpu_layers: Some(2), ..PlacementRequest::default() };
    let gpu = place(parts(), &last, budgets(10_000)).unwrap().on_gpu();
    assert_eq!((layers(&gpu.attn), layers(&gpu.experts)), (vec![2, 3], vec![2, 3]));
    // In RAM too; the embedding of 50 comes last.
    let ram = Budgets { vram: None, scratch: 0, ram: Some(4 * 300 + 50 + 2 * 400 + 49) };
    let p = place(parts(), &PlacementRequest::default(), ram).unwrap();
    assert_eq!((layers(&p.in_ram().mlp), layers(&p.in_ram().experts)), (vec![0, 1, 2, 3], vec![0, 1]));
    assert_eq!((p.place_of(Unit::Embed), p.place_of(Unit::Experts(2))), (Place::File, Place::File));
}

#[test]
fn what_is_kept_off_the_gpu_makes_room_for_the_rest() {
    let off = |chosen: fn(Unit) -> bool| Some(UnitSet::of(4, chosen));
    let first_two = |unit| matches!(unit, Unit::Experts(0 | 1));
    let request = PlacementRequest { off_gpu: off(first_two), ..PlacementRequest::default() };
    let room = budgets(20 + 55 + 4 * 310 + 2 * 400);
    let p = place(with_experts(4, None), &request, room).unwrap();
    assert_eq!(layers(&p.on_gpu().experts), [2, 3]);
    assert!(!p.on_gpu().embed && p.on_gpu().attn.iter().all(|&here| here));
    let table = p.to_string();
    assert!(table.contains("attention 0-3, MLP 0-3, experts 2-3, head"), "{table}");
    assert!(table.contains("embedding, experts 0-1"), "{table}");
    // With -ngl too: all layers fit once their experts are left out.
    let request = PlacementRequest { gpu_layers: Some(5), ..request };
    let ngl = place(with_experts(4, None), &request, room).unwrap();
    assert_eq!(ngl.on_gpu(), p.on_gpu());
    let both = PlacementRequest { on_gpu: Some(UnitSet::all(4)), ..request };
    let error = place(with_experts(4, None), &both, budgets(10_000)).unwrap_err().to_string();
    assert!(error.contains("experts 0 on the GPU, `off_gpu`"), "{error}");
}

/// Layers 2 and 3 read the keys of layer 1.
#[test]
fn attention_is_where_the_keys_are_that_it_reads() {
    let mut parts = model(4, None);
    let readers = parts.iter_mut().filter(|part| matches!(part.unit, Unit::Attn(2 | 3)));
    readers.for_each(|part| part.keys_of = Some(1));
    let on_gpu = |n| {
        let request = PlacementRequest { gpu_layers: Some(n), ..PlacementRequest::default() };
        place(parts.clone(), &request, budgets(10_000)).unwrap().on_gpu()
    };
    assert_eq!((layers(&on_gpu(2).attn), layers(&on_gpu(2).mlp)), (vec![], vec![2, 3]));
    assert_eq!((layers(&on_gpu(3).attn), layers(&on_gpu(3).mlp)), (vec![1, 2, 3], vec![1, 2, 3]));
    let divided = UnitSet::of(4, |unit| unit != Unit::Attn(1));
    let request = PlacementRequest { on_gpu: Some(divided), ..PlacementRequest::default() };
    let error = place(parts.clone(), &request, budgets(10_000)).unwrap_err().to_string();
    assert!(error.contains("attention 2 and attention 1 in two places"), "{error}");
}

#[test]
fn a_verification_reads_the_experts_of_all_its_rows() {
    let mask = RunLayers::all(2).skip_mlp(1);
    let request = PlacementRequest { draft: Some(mask.clone()), ..PlacementRequest::default() };
    let in_ram = Budgets { vram: None, scratch: 0, ram: None };
    let p = place(with_experts(2, Some(&mask)), &request, in_ram).unwrap();
    let predicted = p.predict(&basis([100.0, 10.0, 1.0], 0.0));
    // By hand: an embedding's row, two layers of 300, their experts of 100 and the head; of a draft step less.
    assert_eq!((predicted.token, predicted.draft), ((1.0 + 600.0 + 200.0 + 50.0) / 10.0, 55.1));
    let rows = predicted.drafted as i32 + 1;
    let distinct = 8.0 * (1.0 - 0.75f64.powi(rows));
    let verification = (651.0 + 200.0 * distinct / 2.0) / 10.0;
    let round = predicted.drafted as f64 * 55.1 + verification;
    assert!((predicted.round - round).abs() < 1e-9, "{predicted:?} {round}");
}

/// A pass that comes back to its MLP behind the experts crosses once more.
#[test]
fn crossings_are_counted_where_a_pass_comes_by() {
    let experts = Some(UnitSet::of(3, |unit| matches!(unit, Unit::Experts(_))));
    let request = PlacementRequest { off_gpu: experts, ..PlacementRequest::default() };
    let crossings = |goes_on: bool, head_bytes: u64| {
        let mut parts = with_experts(3, None);
        for part in &mut parts {
            part.goes_on = goes_on && matches!(part.unit, Unit::Mlp(_));
            if part.unit == Unit::Head {
                part.gpu_bytes = head_bytes;
            }
        }
        place(parts, &request, budgets(20 + 3 * 310 + 55)).unwrap().crossings(false)
    };
    // Into the first layer, to the experts of each and back.
    assert_eq!((crossings(false, 50), crossings(true, 50)), (7, 7));
    // With the head in RAM, behind the last experts there is no way back, unless the MLP goes on.
    assert_eq!((crossings(false, 5000), crossings(true, 5000)), (6, 8));
}
