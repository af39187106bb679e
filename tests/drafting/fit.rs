//! Heads that are fitted to a model's text, from the first token to the file.

use std::{fs, path::Path, time::Duration};

use spec_run::{
    Context, Error, Gguf, Model, Tokenizer,
    fit::{Event, FitConfig, Fitted, Outcome, Prompts, fit},
    head::{Head, HeadShape},
};

use crate::common::{context, five_layers, load};

fn config(folder: &Path, seconds: f64) -> FitConfig {
    FitConfig {
        time: Duration::from_secs_f64(seconds),
        states: folder.join("states"),
        most_bytes: 64 << 20,
        resume: false,
    }
}

fn with_model<T>(work: impl FnOnce(&mut Context, &Tokenizer, &Prompts) -> T) -> T {
    let model = load(Path::new(five_layers()));
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let prompts = Prompts::asked(&model.gguf, &tokenizer, None).unwrap();
    let mut context = context(&model, |config| config.n_ctx = 8192);
    work(&mut context, &tokenizer, &prompts)
}

/// Far more than a guess: what a model of stories says most often is right in one place of twelve.
#[test]
fn a_head_knows_the_next_token_but_one_better_than_chance() {
    let folder = tempfile::tempdir().unwrap();
    let (mut started, mut last, mut steps) = (None, 0, 0);
    let fitted = with_model(|context, tokenizer, prompts| {
        let outcome = fit(context, tokenizer, prompts, &config(folder.path(), 12.0), &mut |event| {
            match event {
                Event::Started { verdict, .. } => started = Some(verdict),
                Event::Writing { tokens, .. } => last = tokens,
                Event::Training(progress) => steps = progress.steps,
                Event::Judged(_) | Event::Full => (),
            }
            true
        });
        match outcome.unwrap() {
            Outcome::Fitted(fitted) => *fitted,
            Outcome::Interrupted { .. } => panic!("nobody interrupted it"),
        }
    });
    let Fitted { head, verdict, .. } = &fitted;
    let started = started.expect("the ridges are told of");
    assert!(started.of_temps[0].agreement[0] > 0.2, "{started:?}");
    let of = &verdict.of_temps[0];
    assert!(of.drafts > 500 && of.agreement[0] > 0.2, "{verdict:?}");
    assert!(of.agreement.is_sorted_by(|a, b| a >= b) && of.among.is_sorted(), "{verdict:?}");
    assert_eq!(of.among[0], of.agreement[0]);
    assert!(last >= 512 && head.made.text_tokens as usize >= 512 && head.made.steps >= steps && steps > 0);
    let model = load(Path::new(five_layers()));
    let path = folder.path().join("x.head.gguf");
    head.write(&path, &model).unwrap();
    assert_eq!(Head::open(&path, &model).unwrap().tokens, head.tokens);
}

#[test]
fn what_is_written_before_an_interruption_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    with_model(|context, tokenizer, prompts| {
        let config = config(folder.path(), 20.0);
        let mut heard = 0;
        let outcome = fit(context, tokenizer, prompts, &config, &mut |_| {
            heard += 1;
            heard < 300
        });
        let Ok(Outcome::Interrupted { tokens }) = outcome else { panic!("it was interrupted") };
        assert!(tokens > 0);
        let mut first = None;
        let resumed = FitConfig { resume: true, ..config };
        let outcome = fit(context, tokenizer, prompts, &resumed, &mut |event| {
            if let Event::Writing { tokens, .. } = event {
                first.get_or_insert(tokens);
            }
            false
        });
        let Ok(Outcome::Interrupted { tokens: again }) = outcome else { panic!("it was interrupted") };
        assert_eq!((first, again), (Some(tokens), tokens));
    });
}

#[test]
fn states_that_have_no_room_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let full = with_model(|context, tokenizer, prompts| {
        let config = FitConfig { most_bytes: 3 << 20, ..config(folder.path(), 60.0) };
        let mut full = false;
        let outcome = fit(context, tokenizer, prompts, &config, &mut |event| {
            full |= matches!(event, Event::Full);
            !full
        });
        assert!(matches!(outcome, Ok(Outcome::Interrupted { .. })));
        full
    });
    assert!(full);
    assert!(fs::metadata(folder.path().join("states")).unwrap().len() <= 3 << 20);
}

#[test]
fn models_and_prompts_that_cannot_be_are_one_line() {
    let model = load(Path::new(five_layers()));
    let tokenizer = Tokenizer::from_gguf(&model.gguf).unwrap();
    let refused =
        |lines: &str| Prompts::asked(&model.gguf, &tokenizer, Some(lines)).err().unwrap().to_string();
    assert!(refused(" \n\n").starts_with("0 prompts: "), "{}", refused(" \n\n"));
    let short = Prompts::continued(&tokenizer, "Once upon a time").err().unwrap().to_string();
    assert!(short.starts_with("the text has ") && !short.contains('\n'), "{short}");
    let long = format!("a line\n{}", "word ".repeat(400));
    let prompts = Prompts::asked(&model.gguf, &tokenizer, Some(&long)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut context = context(&model, |config| config.n_ctx = 1024);
    let error = fit(&mut context, &tokenizer, &prompts, &config(folder.path(), 1.0), &mut |_| true);
    let message = error.err().unwrap().to_string();
    assert!(message.starts_with("prompt 2 has ") && message.contains("256 are the limit"), "{message}");
}

/// Of all architectures: a head can be made, or one line says why not.
#[test]
fn every_architecture_has_heads_or_a_reason() {
    let mut with_heads = 0;
    for path in spec_run_fixtures::architectures() {
        let model = Model::load(std::sync::Arc::new(Gguf::open(&path).unwrap())).unwrap();
        match HeadShape::of(&model) {
            Ok(shape) => {
                with_heads += 1;
                assert!(shape.taps.is_sorted_by(|a, b| a < b), "{}: {shape:?}", model.arch);
                assert!(shape.taps.iter().all(|tap| (1..model.n_layer()).contains(tap)), "{shape:?}");
            }
            Err(Error::Model { what, .. }) => assert!(what.starts_with("no head can be fitted: "), "{what}"),
            Err(error) => panic!("{}: {error}", model.arch),
        }
    }
    assert!(with_heads > 0);
}
