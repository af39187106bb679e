//! Models that are sound files and bad models: what they say, and how the program ends.

use std::{
    path::PathBuf,
    process::Output,
    time::{Duration, Instant},
};

use spec_run::{
    Gguf,
    gguf::{Value, Writer},
};

use crate::common::run;

/// A copy of a tiny model with more keys, and with other bytes in one tensor.
struct Copy {
    gguf: Gguf,
    keys: Vec<(String, Value)>,
    tensor: Option<(String, Vec<u8>)>,
    folder: tempfile::TempDir,
}

impl Copy {
    /// The tiny models have no vocabulary; this one gets SentencePiece's least: a few letters and all bytes.
    fn new() -> Self {
        let tiny = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny/llama-linear.gguf");
        let gguf = Gguf::open(&tiny).unwrap();
        let mut texts = letters("</s>");
        texts.extend((texts.len()..64).map(|i| format!("<token {i}>")));
        let mut copy = Copy { gguf, keys: Vec::new(), tensor: None, folder: tempfile::tempdir().unwrap() };
        copy.set("tokenizer.ggml.model", Value::String("llama".into()));
        copy.tokens(&texts);
        copy
    }

    /// Another vocabulary; its first tokens are SentencePiece's special ones.
    fn tokens(&mut self, texts: &[String]) {
        let kinds = (0..texts.len()).map(|i| [2, 3, 3].get(i).copied().unwrap_or(1)).collect();
        let scores = vec![0.0; texts.len()];
        self.set(
            "tokenizer.ggml.tokens",
            Value::Array(spec_run::gguf::Array::String(texts.iter().collect())),
        );
        self.set("tokenizer.ggml.scores", Value::Array(spec_run::gguf::Array::F32(scores)));
        self.set("tokenizer.ggml.token_type", Value::Array(spec_run::gguf::Array::I32(kinds)));
    }

    fn set(&mut self, key: &str, value: Value) {
        self.keys.retain(|(k, _)| k != key);
        self.keys.push((key.into(), value));
    }

    /// Writes the file.
    fn path(&self) -> String {
        let mut writer = Writer::new();
        for (key, value) in self.gguf.metadata().iter() {
            if self.keys.iter().all(|(k, _)| k != key) {
                writer.set(key, value.clone());
            }
        }
        for (key, value) in &self.keys {
            writer.set(key, value.clone());
        }
        for tensor in self.gguf.tensors() {
            writer.tensor(&tensor.name, tensor.ty, &tensor.shape);
        }
        let mut bytes = Vec::new();
        let write = |i: usize, out: &mut spec_run::gguf::Sink<'_>| {
            let tensor = &self.gguf.tensors()[i];
            match &self.tensor {
                Some((name, bytes)) if *name == tensor.name => out.write(bytes),
                _ => out.write(self.gguf.bytes(tensor)),
            }
        };
        writer.write(&mut bytes, write).unwrap();
        let path = self.folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn run(&self, args: &[&str]) -> Output {
        let path = self.path();
        run(&[args, &["-m", &path, "-t", "1"]].concat())
    }

    /// Exit code 1 and one line that has all of `words`.
    fn fails(&self, args: &[&str], words: &[&str]) {
        let started = Instant::now();
        let output = self.run(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        let line = errors.lines().last().unwrap();
        assert!(line.starts_with("spec-run: ") && errors.len() < 4000, "{args:?}: {errors}");
        assert!(!errors.contains(|c: char| c.is_control() && c != '\n'), "{args:?}: {errors:?}");
        for word in words {
            assert!(line.contains(word), "{args:?}: `{word}` is not in: {line}");
        }
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
    let mut copy = Copy::new();
    let mut texts = letters("<third>");
    texts.extend((texts.len()..64).map(|i| format!("<token {i}>")));
    copy.tokens(&texts);
    // Of the kinds that text is written with, the one that has no such token unless a file names it.
    copy.set("tokenizer.ggml.model", Value::String("gemma4".into()));
    let merges = spec_run::gguf::Array::String(["▁ a".to_string()].iter().collect());
    copy.set("tokenizer.ggml.merges", Value::Array(merges));
    copy.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    let plain = copy.run(&["-p", "abc", "-n", "4", "--no-learn"]);
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    let words = ["no token that ends a text"];
    copy.fails(&["-p", "abc", "-n", "4", "--no-learn", "--grammar", "root ::= \"a\""], &words);
    copy.fails(&["-p", "abc", "-n", "4", "--no-learn", "-j", "{}"], &words);
    #[cfg(feature = "server")]
    {
        let server = crate::common::server::Server::start(&["-t", "1", "-c", "128", "-m", &copy.path()]);
        let ask = |more: serde_json::Value| {
            let mut body = serde_json::json!({"prompt": "abc", "n_predict": 4});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            server.json("/completion", &body)
        };
        for more in [serde_json::json!({"json_schema": {}}), serde_json::json!({"grammar": "root ::= \"a\""})]
        {
            let error = &ask(more)["error"];
            assert_eq!(error["code"], 400, "{error}");
            assert!(error["message"].as_str().unwrap().contains("no token that ends a text"), "{error}");
        }
        // It stays.
        assert!(ask(serde_json::json!({}))["content"].is_string());
    }
}

/// More rows than tokens. The rows that no token has answer most strongly here: they have no text, and no grammar chooses one.
#[test]
#[cfg(all(feature = "constraints", feature = "server"))]
fn rows_without_a_token_have_no_text() {
    let mut copy = Copy::new();
    let texts = letters("</s>");
    copy.tokens(&texts);
    let head = copy.gguf.tensor("output.weight").unwrap();
    let bytes = copy.gguf.bytes(head);
    let (known, further) = bytes.split_at(texts.len() * bytes.len() / 64);
    let strong = known.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()) * 100.0);
    let strong: Vec<u8> = strong.flat_map(f32::to_le_bytes).cycle().take(further.len()).collect();
    let other = [known, &strong].concat();
    copy.tensor = Some((head.name.clone(), other));
    let made = |more: &[&str]| {
        let args = ["-p", "abc", "-n", "24", "--temp", "0", "--json", "--no-learn"];
        let output = copy.run(&[&args, more].concat());
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
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
    let error = &server.json("/completion", &serde_json::json!({"prompt": [40], "n_predict": 1}))["error"];
    assert_eq!(error["code"], 400, "{error}");
}

#[test]
fn a_model_without_numbers_is_refused() {
    let mut copy = Copy::new();
    let name = "blk.1.attn_norm.weight";
    let bytes = copy.gguf.bytes(copy.gguf.tensor(name).unwrap()).len();
    copy.tensor = Some((name.into(), f32::NAN.to_le_bytes().repeat(bytes / 4)));
    let text = "a b c d e f g h i j k l m n o p q r s t u v w x y z ".repeat(8);
    let out = copy.folder.path().join("skips.json").display().to_string();
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
        let mut copy = Copy::new();
        copy.set("tokenizer.chat_template", Value::String(template.into()));
        copy.fails(&["--chat", "-p", "a", "-n", "1"], &[word]);
    }
}

#[test]
fn a_template_renders_with_the_files_tokens() {
    let mut copy = Copy::new();
    let template =
        "{{ bos_token }}{% for m in messages %}{{ m.role }} {{ m.content }}{{ eos_token }}{% endfor %}";
    copy.set("tokenizer.chat_template", Value::String(template.into()));
    let output = copy.run(&["--chat", "--display-prompt", "--system", "b", "-p", "a", "-n", "0"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.trim_end(), "<s>system b</s>user a</s>", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn names_out_of_a_file_are_short_and_without_control_characters() {
    let name = || Value::String("\u{1b}[2J\r\n".to_string() + &"x".repeat(100_000));
    let mut copy = Copy::new();
    copy.set("tokenizer.ggml.model", name());
    copy.fails(&["-p", "a"], &["\\u{1b}[2J\\r\\n", "x..`"]);
    let mut copy = Copy::new();
    copy.set("general.architecture", name());
    copy.fails(&["-p", "a"], &["\\u{1b}[2J\\r\\n", "x..`"]);
    // What the user wrote is quoted no longer than that either.
    let errors = run(&["tokenize", "--detokenize", "-p", &"[".repeat(10_000)]).stderr;
    let errors = String::from_utf8(errors).unwrap();
    assert!(errors.contains("[[..' is not a token id") && errors.len() < 300, "{errors}");
}

/// What follows the prompt on stdout, to the byte.
#[test]
fn json_has_the_text_that_stdout_has() {
    for args in [&["-p", "Once", "-n", "8"][..], &["-p", "The end.", "-n", "60", "--ignore-eos"]] {
        let args = [args, &["--temp", "0", "--no-learn", "--draft-max", "0"]].concat();
        let whole = String::from_utf8(run(&args).stdout).unwrap();
        let out = run(&[&args[..], &["--json"]].concat()).stdout;
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(format!("{}{}\n", args[1], json["text"].as_str().unwrap()), whole);
    }
}
