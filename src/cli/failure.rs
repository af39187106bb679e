//! How a command's failure ends the program: what is said of it, and the exit code.
//!
//! The library knows no flags. Its messages name a setting by its field, in backticks; here it gets the name that it has on
//! the command line.

use crate::Error;

/// The library's settings that flags of the same name set.
const SAME: &str = "\
    chunks ctx device dim dry_base dry_multiplier dynatemp_range epsilon ffn force frequency_penalty \
    gpu_variant head_dim heads journal kv_heads layers logit_bias min_p positions presence_penalty profile prune_layers \
    repeat_penalty rope_freq_base samplers sampling_seq skippable swa_full temp top_n_sigma top_p vocab vram \
    xtc_probability xtc_threshold yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_ext_factor";

/// Its settings that other flags set.
const OTHER: &[(&str, &str)] = &[
    ("chunk", "-c"),
    ("control_layers", "--control-vector-layer-range"),
    ("dynatemp_exponent", "--dynatemp-exp"),
    ("factor", "--widen"),
    ("gpu_layers", "-ngl"),
    ("importance", "--imatrix"),
    ("key_type", "-ctk"),
    ("loras", "--lora"),
    ("mirostat_eta", "--mirostat-lr"),
    ("mirostat_tau", "--mirostat-ent"),
    ("model", "-m"),
    ("n_ctx", "-c"),
    ("n_ubatch", "-b"),
    ("off_gpu", "--cpu-moe, --n-cpu-moe or -ot"),
    ("overrides", "--tensor-type"),
    ("planes: None", "--no-repack"),
    ("prompt", "-p, -f or standard input"),
    ("requantize", "--allow-requantize"),
    ("rope_freq_scale", "--rope-freq-scale or --rope-scale"),
    ("text", "text with -f FILE"),
    ("threads", "-t"),
    ("time", "--minutes"),
    ("typical_p", "--typical"),
    ("value_type", "-ctv"),
];

/// All settings, and the flags that set them.
fn flags() -> impl Iterator<Item = (&'static str, String)> {
    let same = SAME.split(' ').map(|setting| (setting, format!("--{}", setting.replace('_', "-"))));
    same.chain(OTHER.iter().map(|&(setting, flag)| (setting, flag.into())))
}

/// The message in the command line's words.
pub fn message(error: &Error) -> String {
    let message = error.to_string();
    match error {
        // What stands in backticks there is a name in the user's file.
        Error::Io { .. } | Error::Gguf { .. } | Error::Tokenizer(_) | Error::Mask(_) => message,
        _ => in_flags(&message),
    }
}

/// A library's note in the command line's words.
pub fn in_flags(text: &str) -> String {
    flags().fold(text.to_owned(), |text, (setting, flag)| text.replace(&quoted(setting), &flag))
}

fn quoted(setting: &str) -> String {
    format!("`{setting}`")
}

/// 2 for a wrong command line, 0 for a reader that went away, 1 for everything else.
pub fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Usage(_) => 2,
        Error::ClosedPipe => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use regex::Regex;

    use super::*;
    use crate::sampler::SamplerConfig;

    #[test]
    fn settings_become_flags() {
        let error = SamplerConfig { temp: f32::NAN, ..SamplerConfig::default() }.validate().unwrap_err();
        assert!(error.to_string().starts_with("`temp` NaN: "), "{error}");
        assert!(message(&error).starts_with("--temp NaN: "), "{}", message(&error));
        assert_eq!(in_flags("use a smaller `n_ctx`, or `planes: None`"), "use a smaller -c, or --no-repack");
        // A name in a file stays what it is.
        let error = Error::gguf("a.gguf", "tensor `dim` lies beyond the end");
        assert_eq!(message(&error), "a.gguf: tensor `dim` lies beyond the end");
    }

    /// The program's sources below the command line, less tests and comments.
    fn library(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && !["cli", "tests"].contains(&name.as_str()) {
                library(&path, found);
            } else if name.ends_with(".rs") && name != "tests.rs" && name != "main.rs" {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                found.push((path.display().to_string(), code.collect::<Vec<_>>().join("\n")));
            }
        }
    }

    #[test]
    fn below_the_command_line_messages_name_settings_and_no_flags() {
        let mut files = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        ["src", "crates"].iter().for_each(|src| library(&root.join(src), &mut files));
        assert!(files.len() > 100, "{} files", files.len());
        let flag = Regex::new(r#""[^"\n]*(--[a-z]|[ "(]-(ngl|ctk|ctv|[a-z])\b)[^"\n]*""#).unwrap();
        for (file, code) in &files {
            let wrong: Vec<_> = flag.find_iter(code).map(|m| m.as_str()).collect();
            assert!(wrong.is_empty(), "{file} names flags: {wrong:?}");
        }
        let all: String = files.into_iter().map(|(_, code)| code).collect();
        for (setting, _) in flags() {
            let named = all.contains(&quoted(setting)) || all.contains(&format!("\"{setting}\""));
            assert!(named, "nothing says {setting}");
        }
    }
}
