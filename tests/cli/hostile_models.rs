//! Models that are sound files and bad models: what they say, and how the program ends.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use spec_run::{
    Gguf,
    gguf::{Array, Value},
};

use crate::common::{
    child::Ended,
    parts::Parts,
    program::{Folder, json, run, stdout},
};

/// A tiny model, changed.
struct Copy {
    parts: Parts,
    folder: Folder,
}

impl Copy {
    /// The tiny models have no vocabulary; this one gets SentencePiece's least: a few letters and all bytes.
    fn new() -> Self {
        let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny/llama-linear.gguf");
        let parts = Parts::of(&Gguf::open(&tiny).unwrap()).with("tokenizer.ggml.model", "llama");
        let mut texts = letters("</s>");
        texts.extend((texts.len()..64).map(|i| format!("<token {i}>")));
        Copy { parts, folder: Folder::new() }.tokens(&texts)
    }

    /// Another vocabulary; its first tokens are SentencePiece's special ones.
    fn tokens(self, texts: &[String]) -> Self {
        let kinds: Vec<i32> = (0..texts.len()).map(|i| [2, 3, 3].get(i).copied().unwrap_or(1)).collect();
        self.with("tokenizer.ggml.tokens", Array::String(texts.iter().collect()))
            .with("tokenizer.ggml.scores", vec![0.0f32; texts.len()])
            .with("tokenizer.ggml.token_type", kinds)
    }

    fn with(self, key: &str, value: impl Into<Value>) -> Self {
        Copy { parts: self.parts.with(key, value), ..self }
    }

    /// Writes the file.
    fn path(&self) -> String {
        self.folder.file("model.gguf", self.parts.bytes())
    }

    fn run(&self, args: &[&str]) -> Ended {
        run(&[args, &["-m", &self.path(), "-t", "1"]].concat())
    }

    /// Exit code 1 and one line that has all of `words`.
    fn fails(&self, args: &[&str], words: &[&str]) {
        let started = Instant::now();
        let output = self.run(args);
        output.broke_off(1, words);
        let said = output.said();
        assert!(said.len() < 4000, "{args:?}: {said}");
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{args:?}: {said:?}");
        assert!(started.elapsed() < Duration::from_secs(40), "{args:?}");
    }
}

/// Some special tokens, of which the third ends a text in most vocabularies, and the letters.
fn letters(third: &str) -> Vec<String> {
    let mut texts: Vec<String> = ["<unk>", "<s>", third, "▁", "▁a"].map(String::from).to_vec();
    texts.extend(('a'..='z').map(String::from));
    texts
}

/// No key and no text names a token that ends a text: text can be written, a grammar is refused in one line.
#[test]
#[cfg(feature = "constraints")]
fn a_vocabulary_without_an_end_writes_text_and_refuses_grammars() {
    let mut texts = letters("<third>");
    texts.extend((texts.len()..64).map(|i| format!("<token {i}>")));
    let copy = Copy::new()
        .tokens(&texts)
        // Of the kinds that text is written with, the one that has no such token unless a file names it.
        .with("tokenizer.ggml.model", "gemma4")
        .with("tokenizer.ggml.merges", Array::String(["▁ a".to_string()].iter().collect()))
        .with("tokenizer.ggml.bos_token_id", 1u32);
    copy.run(&["-p", "abc", "-n", "4", "--no-learn"]).done();
    let words = ["no token that ends a text"];
    copy.fails(&["-p", "abc", "-n", "4", "--no-learn", "--grammar", "root ::= \"a\""], &words);
    copy.fails(&["-p", "abc", "-n", "4", "--no-learn", "-j", "{}"], &words);
    #[cfg(feature = "server")]
    {
        let server = crate::common::server::Server::start(&["-t", "1", "-c", "128", "-m", &copy.path()]);
        let body = |more: serde_json::Value| {
            let mut body = serde_json::json!({"prompt": "abc", "n_predict": 4});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        for more in [serde_json::json!({"json_schema": {}}), serde_json::json!({"grammar": "root ::= \"a\""})]
        {
            server.refuses("/completion", &body(more), 400, "no token that ends a text");
        }
        // It stays.
        assert!(server.text(&body(serde_json::json!({}))).is_string());
    }
}

/// More rows than tokens. The rows that no token has answer most strongly here: they have no text, and no grammar chooses one.
#[test]
#[cfg(all(feature = "constraints", feature = "server"))]
fn rows_without_a_token_have_no_text() {
    let texts = letters("</s>");
    let mut copy = Copy::new().tokens(&texts);
    let head = copy.parts.tensor("output.weight");
    let mut numbers = head.numbers();
    let of_a_row = numbers.len() / 64;
    let (known, further) = numbers.split_at_mut(texts.len() * of_a_row);
    let strong = known.iter().map(|x| x * 100.0).cycle();
    further.iter_mut().zip(strong).for_each(|(x, strong)| *x = strong);
    *head = head.with_numbers(head.ty, &numbers);
    let made = |more: &[&str]| {
        let args = ["-p", "abc", "-n", "24", "--temp", "0", "--json", "--no-learn"];
        let json = copy.run(&[&args, more].concat()).json();
        let tokens: Vec<u64> =
            json["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        (tokens, json["text"].as_str().unwrap().to_owned())
    };
    let is_known = |id: &&u64| **id < texts.len() as u64;
    let (tokens, text) = made(&["--ignore-eos"]);
    assert!(tokens.len() == 24 && tokens.iter().filter(is_known).count() < 24, "{tokens:?}");
    assert!(text.len() <= 2 * tokens.iter().filter(is_known).count(), "{tokens:?}: {text}");
    for drafts in [&[][..], &["--draft", "none"]] {
        let (tokens, text) = made(&[&["--grammar", "root ::= [a-c]{8}"], drafts].concat());
        assert!(tokens.iter().all(|id| is_known(&id)), "{tokens:?}");
        assert!(text.len() == 8 && text.bytes().all(|c| b"abc".contains(&c)), "{text}");
    }
    let server = crate::common::server::Server::start(&["-t", "1", "-c", "128", "-m", &copy.path()]);
    let body = serde_json::json!({"prompt": "abc", "n_predict": 4, "temperature": 0, "n_probs": 40, "ignore_eos": true});
    let answer = server.json("/completion", &body);
    assert_eq!(answer["tokens_predicted"], 4, "{answer}");
    // A number that no token has is refused where a prompt has it.
    server.refuses("/completion", &serde_json::json!({"prompt": [40], "n_predict": 1}), 400, "");
}

#[test]
fn a_model_without_numbers_is_refused() {
    let mut copy = Copy::new();
    let norm = copy.parts.tensor("blk.1.attn_norm.weight");
    norm.bytes = f32::NAN.to_le_bytes().repeat(norm.bytes.len() / 4);
    let text = "a b c d e f g h i j k l m n o p q r s t u v w x y z ".repeat(8);
    let out = copy.folder.path("skips.json");
    let words = ["model.gguf", "position", "NaN"];
    copy.fails(&["-p", "abc", "-n", "4", "--temp", "0", "--no-learn"], &words);
    copy.fails(&["-p", "abc", "-n", "4", "--draft-max", "0"], &words);
    copy.fails(&["perplexity", "-p", &text, "-c", "32"], &words);
    copy.fails(&["perplexity", "-p", &text, "-c", "32", "--exit", "each"], &words);
    #[cfg(feature = "search")]
    copy.fails(&["search", "-c", "64", "--positions", "64", "-o", &out], &words);
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn templates_that_would_take_everything_are_one_line_and_take_little() {
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
    for (template, word) in [
        ("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "nests too deeply"),
        ("{{ 'a'|indent(10000000000) }}", "768 MiB"),
        ("{{ range(100000)|join('x' * 100000) }}", "768 MiB"),
        // A prompt of 200,000 tokens, or nested too deeply: that depends on how the program was compiled.
        (nested, ""),
        (&"x".repeat(2 << 20), "1048576"),
        ("{% for i in range(10000) %}{{ '0123456789' * 100000 }}{% endfor %}", "64 MiB"),
        (
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}",
            "6 seconds",
        ),
        ("{{ raise_exception('\u{1b}[2J' + 'x' * 100000) }}", "\\u{1b}[2J"),
    ] {
        let copy = Copy::new().with("tokenizer.chat_template", template);
        copy.fails(&["--chat", "-p", "a", "-n", "1"], &[word]);
    }
}

#[test]
fn a_template_renders_with_the_files_tokens() {
    let template =
        "{{ bos_token }}{% for m in messages %}{{ m.role }} {{ m.content }}{{ eos_token }}{% endfor %}";
    let copy = Copy::new().with("tokenizer.chat_template", template);
    let text = copy.run(&["--chat", "--display-prompt", "--system", "b", "-p", "a", "-n", "0"]).done();
    assert_eq!(text.trim_end(), "<s>system b</s>user a</s>");
}

#[test]
fn names_out_of_a_file_are_short_and_without_control_characters() {
    let name = "\u{1b}[2J\r\n".to_string() + &"x".repeat(100_000);
    for key in ["tokenizer.ggml.model", "general.architecture"] {
        Copy::new().with(key, &*name).fails(&["-p", "a"], &["\\u{1b}[2J\\r\\n", "x..`"]);
    }
    // What the user wrote is quoted no longer than that either.
    let errors = run(&["tokenize", "--detokenize", "-p", &"[".repeat(10_000)]).said();
    assert!(errors.contains("[[..' is not a token id") && errors.len() < 300, "{errors}");
}

/// What follows the prompt on stdout, to the byte.
#[test]
fn json_has_the_text_that_stdout_has() {
    for args in [&["-p", "Once", "-n", "8"][..], &["-p", "The end.", "-n", "60", "--ignore-eos"]] {
        let args = [args, &["--temp", "0", "--no-learn", "--draft-max", "0"]].concat();
        let whole = stdout(&args);
        let json = json(&[&args[..], &["--json"]].concat());
        assert_eq!(format!("{}{}\n", args[1], json["text"].as_str().unwrap()), whole);
    }
}
