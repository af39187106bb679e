//! Which plans are opened, and which GPU.

use super::*;

/// A card that has room for 600 bytes, whatever it says.
fn open(bytes: &u64) -> Result<u64> {
    if *bytes > 600 { Err(Error::Memory(format!("no memory for {bytes}"))) } else { Ok(*bytes) }
}

fn plan(_: &PlacementRequest, most: &[Option<u64>]) -> Result<u64> {
    Ok(most.first().copied().flatten().unwrap_or(1000))
}

fn taken(bytes: &u64) -> Vec<Option<u64>> {
    vec![Some(*bytes)]
}

#[test]
fn a_gpu_that_is_wrong_is_an_error_by_name_and_else_the_next_one_is_used() {
    let kernels = |name: &&str| {
        let refusal = name.starts_with("wrong").then(|| format!("{name}: its kernels are wrong"));
        Ok(Chosen { refusal, ..Chosen::default() })
    };
    let first = |names: &[&'static str]| {
        let (found, note) = first_right(names.to_vec(), kernels, |name| name.to_string()).unwrap();
        (found.map(|right| right.gpu), note)
    };
    assert_eq!(first(&[]), (None, None));
    assert_eq!(first(&["a", "wrong b"]), (Some("a"), None));
    let (found, note) = first(&["wrong a", "wrong b", "c", "d"]);
    assert_eq!(
        (found, note.as_deref()),
        (Some("c"), Some("wrong a: its kernels are wrong; c is used instead"))
    );
    let (found, note) = first(&["wrong a", "wrong b"]);
    assert_eq!(found, None);
    assert_eq!(note.unwrap(), "all of it runs on the CPU: wrong a: its kernels are wrong");
    let error = all_right(vec!["a", "wrong b"], kernels).err().unwrap();
    assert!(matches!(error, Error::Device(what) if what == "wrong b: its kernels are wrong"));
    assert_eq!(all_right(vec!["a", "b"], kernels).unwrap().len(), 2);
}

#[test]
fn devices_are_words_names_or_numbers() {
    for (text, device) in [
        ("auto", Device::Auto),
        ("CPU", Device::Cpu),
        ("none", Device::Cpu),
        ("1", Device::Named("1".into())),
        ("RTX", Device::Named("RTX".into())),
        ("llvmpipe (LLVM 15.0.6, 256 bits)", Device::Named("llvmpipe (LLVM 15.0.6, 256 bits)".into())),
        ("0,RTX", Device::Named("0,RTX".into())),
        ("2, 0,1", Device::Several(vec![2, 0, 1])),
    ] {
        assert_eq!(text.parse(), Ok(device), "{text}");
    }
    for (text, what) in [("0,1,0", "GPU 0 is named twice"), ("0,cpu", "numbers"), ("cpu,cpu", "numbers")] {
        let error = text.parse::<Device>().unwrap_err();
        assert!(error.contains(what) && !error.contains('\n'), "{text}: {error}");
    }
}

/// Each GPU takes less of what it took; one that had nothing may have as much as before.
#[test]
fn smaller_plans_take_less_of_each_gpu() {
    let plan = |_: &PlacementRequest, most: &[Option<u64>]| Ok(most.to_vec());
    let taken = |most: &Vec<Option<u64>>| match &most[..] {
        [] => vec![Some(1000), None],
        [first, _] => vec![*first, Some(400)],
        _ => unreachable!("two GPUs"),
    };
    let open = |most: &Vec<Option<u64>>| match most.last() {
        Some(Some(_)) => Ok(()),
        _ => Err(Error::Memory("no memory".into())),
    };
    let (planned, ..) = first_that_fits(&PlacementRequest::default(), true, plan, taken, open).unwrap();
    assert_eq!(planned, [Some(722), Some(340)]);
}

#[test]
fn a_plan_that_does_not_fit_is_followed_by_smaller_ones() {
    let request = PlacementRequest { gpu_layers: Some(9), ..PlacementRequest::default() };
    let (planned, opened, notes) = first_that_fits(&request, true, plan, taken, open).unwrap();
    assert_eq!((planned, opened), (521, 521));
    assert_eq!(notes.len(), 4);
    assert!(notes[0].contains("no memory for 1000") && notes[3].contains("no memory for 613"), "{notes:?}");
}

#[test]
fn more_layers_than_fit_are_what_fits() {
    let plan = |request: &PlacementRequest, _: &[Option<u64>]| match request.gpu_layers {
        Some(n) => Err(Error::Memory(format!("{n} layers do not fit"))),
        None => Ok(500),
    };
    let request = PlacementRequest { gpu_layers: Some(99), ..PlacementRequest::default() };
    let (planned, opened, notes) = first_that_fits(&request, true, plan, taken, open).unwrap();
    assert_eq!((planned, opened, notes.len()), (500, 500, 1), "{notes:?}");
    let error = first_that_fits(&request, false, plan, taken, open).unwrap_err();
    assert!(error.to_string().contains("99 layers"));
    let request = PlacementRequest { vram: Some(600), ..request };
    assert!(first_that_fits(&request, true, plan, taken, open).is_err(), "a budget is an order");
}

#[test]
fn strict_wishes_and_other_errors_end_at_once() {
    let error = first_that_fits(&PlacementRequest::default(), false, plan, taken, open).unwrap_err();
    assert!(error.to_string().contains("no memory for 1000"));
    let lost = |_: &u64| -> Result<u64> { Err(Error::Device("lost".into())) };
    let error = first_that_fits(&PlacementRequest::default(), true, plan, taken, lost).unwrap_err();
    assert!(matches!(error, Error::Device(_)));
    let never = |p: &u64| -> Result<u64> { Err(Error::Memory(format!("{p} is too much"))) };
    let error = first_that_fits(&PlacementRequest::default(), true, plan, taken, never).unwrap_err();
    assert!(error.to_string().contains("is too much"));
}
