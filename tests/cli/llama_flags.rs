//! Command lines as they stand on model cards and in llama.cpp's documents: they are read, run where that is quick, or
//! are refused in one line that names the flag.

use std::fs;

use crate::common::{
    child::{Ended, Start},
    fixture,
    program::{Folder, program},
};

#[path = "../../src/cli/llama_flags.rs"]
#[allow(dead_code)]
mod table;

use table::{AS_THEY_ARE, Here, TABLES};

/// Words, split at blanks; what stands in quotes stays together.
fn words(line: &str) -> Vec<&str> {
    let quoted = line.split('"').enumerate();
    quoted
        .flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

fn check(line: &str) -> Result<(), String> {
    spec_run::cli::check(&words(line)).map_err(|e| e.to_string())
}

fn run_with(line: &str, env: &[(&str, &str)]) -> Ended {
    let mut command = program();
    command.args(words(line)).envs(env.iter().copied());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).ended()
}

fn run(line: &str) -> Ended {
    run_with(line, &[])
}

/// The same in llama.cpp, but for the program's name.
const LINES: &[&str] = &[
    "-m model.gguf -md draft.gguf -ngl 99 -ngld 99 -ctkd q8_0 --draft-max 16 --draft-min 5 -p Hi",
    "-m model.gguf -hfd user/draft:Q8_0 -devd cpu -td 4 -p Hi",
    "--grammar-file json.gbnf -p Hi",
    "-j {} -p Hi",
    "-jf schema.json -p Hi",
    "-cnv -p Hi",
    "-cnv --no-context-shift --display-prompt -p Hi",
    "-i -m model.gguf -sys You",
    r#"-m model.gguf -p "I believe the meaning of life is" -n 128"#,
    r#"-m model.gguf -p "Building a website can be done in 10 simple steps:" -n 400 -e"#,
    r#"-m model.gguf -p "You are a helpful assistant" -no-cnv"#,
    r#"-m model.gguf -st -p "What is 1+1?""#,
    r#"-m model.gguf -cnv -st -p "What is 1+1?""#,
    r#"-m model.gguf --single-turn -sys "You are brief." -p Hi"#,
    "-m model.gguf -sysf system.txt -f prompt.txt",
    "-m model.gguf --system-prompt-file system.txt -f prompt.txt",
    "-m model.gguf -ngl 99 -p Hi",
    "-m model.gguf -ngl all -p Hi",
    "-m model.gguf -ngl auto -p Hi",
    "-m model.gguf -ngl -1 -p Hi",
    "-m model.gguf --gpu-layers 20 -p Hi",
    "-m model.gguf --n-gpu-layers 0 -p Hi",
    "-m model.gguf -ngl 99 -fa on -p Hi",
    "-m model.gguf -ngl 99 -fa -p Hi",
    "-m model.gguf --flash-attn auto -p Hi",
    "-m model.gguf -ngl 99 -c 8192 -fa 1 -ctk q8_0 -ctv q8_0 -p Hi",
    "-m model.gguf -dev none -p Hi",
    "-m model.gguf --device none -p Hi",
    "-m model.gguf -dev Vulkan0 -p Hi",
    "--list-devices",
    "-m model.gguf -t 8 -tb 16 -p Hi",
    "-m model.gguf -t 8 -C 0xff --cpu-strict 1 --prio 2 --poll 50 -p Hi",
    "-m model.gguf --numa distribute -p Hi",
    "-m model.gguf --mlock -p Hi",
    "-m model.gguf --no-mmap -p Hi",
    "-m model.gguf -lm none -p Hi",
    "-m model.gguf --load-mode mlock -p Hi",
    "-m model.gguf --load-mode dio -p Hi",
    "-m model.gguf --no-warmup -p Hi",
    "-m model.gguf --log-disable -p Hi",
    "-m model.gguf --log-file log.txt -lv 1 -p Hi",
    "-m model.gguf --log-colors off --log-timestamps --log-prefix -p Hi",
    "-m model.gguf --perf -p Hi",
    "-m model.gguf -v -p Hi",
    "-m model.gguf --no-display-prompt -p Hi",
    "-m model.gguf --no-display-prompt --display-prompt -st -p Hi",
    "-m model.gguf --simple-io -p Hi",
    "-m model.gguf --color on -p Hi",
    "-m model.gguf -co auto -p Hi",
    "-m model.gguf --color -p Hi",
    "-m model.gguf -c 0 -n -1 -p Hi",
    "-m model.gguf -c 4096 -n -2 -p Hi",
    "-m model.gguf --ctx-size 4096 --batch-size 2048 --ubatch-size 512 -p Hi",
    "-m model.gguf -b 2048 -ub 512 -p Hi",
    "-m model.gguf --keep -1 --context-shift -p Hi",
    "-m model.gguf --no-context-shift -p Hi",
    "-m model.gguf --swa-full -p Hi",
    "-m model.gguf -kvu -p Hi",
    "-m model.gguf -nkvo -p Hi",
    "-m model.gguf --no-kv-offload -p Hi",
    "-m model.gguf -nr -p Hi",
    "-m model.gguf --no-repack -p Hi",
    "-m model.gguf -np 1 -p Hi",
    "-m model.gguf --temp 0.7 --top-k 40 --top-p 0.9 --min-p 0.05 -p Hi",
    "-m model.gguf --temp 0.6 --top-p 0.95 --top-k 20 --min-p 0 --presence-penalty 1.5 -p Hi",
    "-m model.gguf --temp=0 --top-k=1 -p Hi",
    "-m model.gguf --temperature 0 -p Hi",
    "-m model.gguf --repeat-penalty 1.1 --repeat-last-n 64 -p Hi",
    "-m model.gguf --frequency-penalty 0.5 -p Hi",
    "-m model.gguf --typical-p 0.9 -p Hi",
    "-m model.gguf -s 42 -p Hi",
    "-m model.gguf --seed 42 -p Hi",
    "-m model.gguf -l 15043+1 -p Hi",
    "-m model.gguf --logit-bias 15043-1 -p Hi",
    "-m model.gguf --mirostat 0 --dynatemp-range 0.0 --xtc-probability 0 -p Hi",
    "-m model.gguf --dry-multiplier 0 --dry-base 1.75 -p Hi",
    "-m model.gguf --top-nsigma -1 -p Hi",
    "-m model.gguf --ignore-eos -n 512 -p Hi",
    r#"-m model.gguf -r "User:" -p Hi"#,
    r#"-m model.gguf -r "-cnv" -p "-md""#,
    "-m model.gguf --jinja -st -p Hi",
    "-m model.gguf --chat-template-file template.jinja -st -p Hi",
    "-m model.gguf --reasoning-format none -st -p Hi",
    "-m model.gguf --reasoning-budget -1 -st -p Hi",
    "-m model.gguf --spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-p-min 0.75 -p Hi",
    "-m model.gguf --draft-max 16 --draft-min 2 --draft-p-min 0.75 -p Hi",
    "-m model.gguf --draft-n 16 --draft-n-min 2 -p Hi",
    "-m model.gguf --spec-type none -p Hi",
    "-m model.gguf --spec-type ngram-simple -p Hi",
    "-m model.gguf --spec-type draft-mtp --spec-draft-n-max 3 -p Hi",
    "-m model.gguf --spec-type ngram-mod --spec-ngram-mod-n-match 24 -p Hi",
    "-m model.gguf --spec-default -p Hi",
    "-m model.gguf -ngld 99 -devd none -td 4 -p Hi",
    "-m model.gguf -ctkd q8_0 -ctvd q8_0 -p Hi",
    "-m model.gguf -sm layer -mg 0 -p Hi",
    "-m model.gguf --split-mode none --main-gpu 0 -p Hi",
    "-m model.gguf -cmoe -p Hi",
    "-m model.gguf --n-cpu-moe 20 -p Hi",
    "-m model.gguf -ngl 99 -ncmoe 99 -p Hi",
    "-m model.gguf -ngl 99 -ot exps=CPU -p Hi",
    r"-m model.gguf -ot \.ffn_.*_exps\.=CPU,blk\.0\.=CPU -p Hi",
    "bench -m model.gguf -ngl 99 -ncmoe 0,8,16",
    "-m model.gguf -fit on -fitt 1024 -p Hi",
    "-m model.gguf --lora a.gguf --lora-scaled b.gguf:0.5,c.gguf:-1 --lora d.gguf -p Hi",
    "-m model.gguf --control-vector a.gguf --control-vector-scaled b.gguf:-0.5 --control-vector-layer-range 10 31 -p Hi",
    "-m model.gguf --no-mmproj -p Hi",
    "-m model.gguf --check-tensors -p Hi",
    "-m model.gguf --rope-scaling none --rope-freq-base 0 -p Hi",
    "-m model.gguf --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 --yarn-ext-factor -1 -p Hi",
    "-m model.gguf --device 0,1 -ts 3,1 -p Hi",
    "-m model.gguf --no-op-offload --no-host -p Hi",
    "-m model.gguf -n5 -t4 -c512 -p Hi",
    "perplexity -m model.gguf -f wiki.test.raw",
    "perplexity -m model.gguf -f wiki.test.raw -c 512 --chunks 100 -ngl 99",
    "perplexity -m model.gguf -f wiki.test.raw -b 2048 -ub 512 -fa on",
    "perplexity -m model.gguf -f wiki.test.raw --ppl-stride 0 --no-warmup -t 8",
    "perplexity -m model.gguf -f wiki.test.raw --seed 1 --temp 0 --ignore-eos",
    "perplexity -m model-f16.gguf -f wiki.test.raw --kl-divergence-base logits.bin",
    "perplexity -m model-q4_k.gguf --kl-divergence-base logits.bin --kl-divergence",
    "perplexity -m model.gguf -f hellaswag_val_full.txt --hellaswag --hellaswag-tasks 400",
    "perplexity -m model.gguf -f winogrande-debiased-eval.csv --winogrande --winogrande-tasks 0",
    "perplexity -m model.gguf -bf mmlu-validation.bin --multiple-choice --multiple-choice-tasks 750",
    "bench --list-devices",
    "bench -m model.gguf",
    "bench -m model.gguf -p 512 -n 128",
    "bench -m model.gguf -p 0 -n 128,256,512",
    "bench -m model.gguf -n 0 -n 16 -p 64 -t 1,2,4,8,16,32",
    "bench -m model.gguf -p 1024 -n 0 -b 128,256,512,1024",
    "bench -m model.gguf -ngl 10,20,30,31,32",
    "bench -m model.gguf -d 0,512 -pg 512,128",
    "bench -m a.gguf -m b.gguf -p 512 -o json",
    "bench -m model.gguf -o csv -r 3 --progress",
    "bench -m model.gguf -o sql -fa on -ctk f16,q8_0",
    "bench -m model.gguf -t 1-8*2 -o jsonl --delay 0",
    "bench -m model.gguf --n-prompt 512 --n-gen 0 --repetitions 10 -nopo 0 -embd 0",
    r#"tokenize -m model.gguf -p "Hello world" --ids --show-count"#,
    "tokenize -m model.gguf --stdin --no-bos --no-parse-special",
];

/// Refused, with words of the message.
const REFUSED: &[(&str, &[&str])] = &[
    ("--spec-type draft-medusa -p Hi", &["draft-medusa", "not read here", "spec-run fit"]),
    (r#"--in-prefix " " -p Hi"#, &["--in-prefix: the chat template"]),
    ("--lora-scaled adapter.gguf -p Hi", &["--lora-scaled", "adapter.gguf:0.5"]),
    ("--lora-scaled adapter.gguf:x -p Hi", &["--lora-scaled", "adapter.gguf:x"]),
    ("--lora-scaled adapter.gguf:nan -p Hi", &["--lora-scaled", "adapter.gguf:nan"]),
    ("--control-vector-scaled v.gguf:inf -p Hi", &["--control-vector-scaled", "v.gguf:inf"]),
    ("--control-vector-layer-range 2 1 -p Hi", &["--control-vector-layer-range 2 1"]),
    ("--control-vector-layer-range 2", &["2 values required for '--control-vector-layer-range"]),
    ("--rope-scaling longrope -p Hi", &["longrope", "--rope-scaling"]),
    ("-ts 3,x -p Hi", &["3,x", "--tensor-split"]),
    ("-mg 1 -p Hi", &["-mg 1: --device 0,1 names the GPUs"]),
    ("-sm row -p Hi", &["-sm row: --device 0,1 names the GPUs"]),
    ("-ot exps -p Hi", &["--override-tensor", "`exps` is no REGEX=CPU"]),
    ("-ot exps=CUDA0 -p Hi", &["CUDA0", "only CPU can be named", "-ngl"]),
    ("-ot (exps=CPU -p Hi", &["(exps", "unclosed group"]),
    ("-ot exps(?!x)=CPU -p Hi", &["look-ahead"]),
    ("-ot", &["-ot: a value is missing"]),
    ("-ncmoe many -p Hi", &["many", "--n-cpu-moe"]),
    ("-ncmoe -1 -p Hi", &["-1", "--n-cpu-moe"]),
    ("-np 4 -p Hi", &["-np 4: one sequence"]),
    ("--rpc 10.0.0.1:50052 -p Hi", &["--rpc: a model runs on one machine"]),
    ("-mm mmproj.gguf --image cat.png -p Hi", &["-mm: only text"]),
    ("--prompt-cache cache.bin -p Hi", &["--prompt-cache:"]),
    ("--override-kv a=int:1 -p Hi", &["--override-kv:"]),
    ("--chat-template-kwargs {} -st -p Hi", &["--chat-template-kwargs:"]),
    ("-sp -p Hi", &["-sp:", "--json"]),
    ("perplexity -f x.txt --hellaswag --winogrande", &["--hellaswag", "--winogrande"]),
    ("perplexity -f x.txt --winogrande-tasks 4", &["--winogrande"]),
    ("bench -oe md", &["-oe: results go to standard output"]),
    ("bench -t 1,x", &["-t", "1,x"]),
    ("bench -t 1-4+0", &["--threads", "1-4+0"]),
    ("-cnvv -p Hi", &["'-cnvv' found; tip: a similar argument exists: '-cnv'"]),
    ("-zzz", &["'-zzz' found"]),
    ("--adaptive-target 0.5", &["--adaptive-target 0.5: there is no such sampler"]),
    ("serve --tools all", &["--tools: the server runs no tools"]),
    ("-xyz -p Hi", &["unexpected argument '-xyz'"]),
    ("--tempp 0 -p Hi", &["'--tempp'", "tip:", "'--temp'"]),
    ("-ngl many -p Hi", &["many", "--n-gpu-layers", "all (-2)"]),
    ("-ngl", &["-ngl: a value is missing"]),
    ("--color blue -p Hi", &["blue"]),
    ("--load-mode fast -p Hi", &["fast", "mlock"]),
    ("bench -n 8 --vs=-t1 -p x", &["x", "list of numbers"]),
];

#[test]
fn a_hundred_lines_are_read() {
    assert!(LINES.len() >= 100, "{} lines", LINES.len());
    for line in LINES {
        // A list of devices ends at once, so what is checked is the line that it becomes.
        assert_eq!(check(line), Ok(()), "{line}");
    }
}

#[test]
fn what_is_refused_is_named_whole_in_one_line() {
    for (line, parts) in REFUSED {
        let message = check(line).expect_err(line);
        assert!(!message.contains('\n'), "{line}: {message}");
        for part in *parts {
            assert!(message.contains(part), "{line}: `{part}` is not in: {message}");
        }
    }
}

#[test]
fn some_run_to_the_end() {
    let short = "-n 1 --temp 0 -c 64 -p Once";
    let expected = run(&format!("{short} --json")).json();
    for line in [
        "-ngl 99 -dev none",
        "-ngl all --device cpu -q",
        "-cmoe -ncmoe 99 -ot exps=CPU",
        "-fa on --mlock --no-warmup --prio 2 --poll 50 -tb 2",
        "-b 2048 -ub 512 -ctk f16 -ctv f16 -kvu -np 1",
        "--log-disable -lv 1 --perf -e --jinja",
        "--spec-draft-n-max 4 --spec-draft-n-min 1 -ngld 99",
        "--spec-type ngram-simple",
        "--color on",
        "-s 42 --mirostat 0 --load-mode none",
        "-v -no-cnv --simple-io",
    ] {
        let line = format!("-m models/stories13m-q8_0.gguf {line} {short}");
        let shown = run(&line).done();
        let shown = shown.replace("\x1b[0m", "").replace("\x1b[32m", "").replace("\x1b[34m", "");
        assert!(shown.contains(expected["text"].as_str().unwrap().trim()), "{line}: {shown}");
    }
}

#[test]
fn ngl_without_a_gpu_warns_once_and_runs() {
    let output = run("-ngl 99 --device none -n 1 --temp 0 -c 64");
    output.done();
    let said = output.said();
    assert_eq!(said.matches("warning: -ngl 99").count(), 1, "{said}");
    run("-ngl 99 --device none --strict -n 1 -c 64").failed(2, &["-ngl"]);
}

#[test]
fn what_changes_nothing_is_said_with_v_alone() {
    let line = "-fa on --mlock -n 1 --temp 0 -c 64";
    assert!(!run(line).said().contains("--mlock"));
    let said = run(&format!("-v {line}")).said();
    for flag in ["-fa changes nothing: ", "--mlock changes nothing: "] {
        assert_eq!(said.matches(flag).count(), 1, "{said}");
    }
}

/// Without a GPU all of a model is in main memory anyway; what cannot be said of it is refused all the same.
#[test]
fn experts_stay_in_main_memory_as_in_llama_cpp() {
    let test = "experts_stay_in_main_memory_as_in_llama_cpp";
    let Some(model) = fixture(test, "archs/qwen3moe.gguf") else { return };
    let model = model.display();
    let start = format!("-m {model} --device none -n 3 --temp 0 -c 64 -p 7");
    let expected = run(&start).printed();
    for line in ["-cmoe", "-ncmoe 1", "-ncmoe 99", "-ot exps=CPU", r"-ot blk\.0\.=CPU,^output\.=CPU"] {
        let output = run(&format!("{start} -v {line}"));
        let said = output.said();
        assert_eq!(output.done(), expected, "{line}");
        let told = said.lines().filter(|l| l.starts_with("--cpu-moe, --n-cpu-moe and -ot change nothing: "));
        assert_eq!(told.count(), 1, "{line}: {said}");
        assert_eq!(said.contains("--n-cpu-moe 99 is all: the model has "), line == "-ncmoe 99", "{said}");
        let quiet = run(&format!("{start} {line}")).said();
        assert!(!quiet.contains("cpu-moe"), "{line}: {quiet}");
    }
    let words = ["ffn_up_exps.weight and not", "experts 0 goes to one place as a whole"];
    run(&format!("{start} -ot ffn_up_exps=CPU")).refused(2, &words);
    let lost = run(&format!("{} --cpu-moe", start.replace("--device none", "--device Voodoo")));
    let said = lost.said();
    // Where there is no driver at all, that is what is missing.
    assert!(
        !lost.status.success() && (said.contains("Voodoo") || said.contains("no GPU was found")),
        "{said}"
    );
}

#[test]
fn the_environment_is_read_and_the_command_line_wins() {
    let tokens = |line: &str, env: &[(&str, &str)]| run_with(line, env).json()["generated"].as_u64().unwrap();
    let line = "--temp 0 -c 64 --ignore-eos --json";
    assert_eq!(tokens(line, &[("LLAMA_ARG_N_PREDICT", "3")]), 3);
    assert_eq!(tokens(&format!("{line} -n 2"), &[("LLAMA_ARG_N_PREDICT", "3")]), 2);
    run_with("-n 1", &[("LLAMA_ARG_THREADS", "many")]).failed(2, &["many"]);
    let warned = run_with("-n 1 --temp 0 -c 64", &[("LLAMA_ARG_DOCKER_REPO", "x.gguf")]);
    warned.done();
    assert!(warned.said().contains("warning: LLAMA_ARG_DOCKER_REPO is set"), "{}", warned.said());
}

#[test]
fn no_color_is_respected() {
    let line = "-n 24 --temp 0 --spec-draft-n-max 4 --draft-exit 8 --color";
    assert!(run(line).printed().contains("\x1b["), "no draft token was accepted");
    assert!(!run_with(line, &[("NO_COLOR", "1")]).printed().contains("\x1b["));
    assert!(!run(&line.replace("--color", "--color auto")).printed().contains("\x1b["), "not a terminal");
}

#[test]
fn a_system_message_and_a_template_go_into_the_prompt() {
    let folder = Folder::new();
    let template = folder.file("t.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
    let system = folder.file("s.txt", "Be brief.");
    for more in
        ["-sys \"Be brief.\"".to_string(), format!("-sysf {system}"), format!("-st --system-file {system}")]
    {
        let shown =
            run(&format!("{more} --chat-template-file {template} --display-prompt -p Hi -n 1 -c 64")).done();
        assert!(shown.starts_with("<system>Be brief.<user>Hi"), "{more}: {shown}");
    }
    let named = run("-st --chat-template chatml --display-prompt -p Hi -n 1 -c 64").done();
    assert!(named.starts_with("<|im_start|>user\nHi<|im_end|>"), "{named}");
    let unknown = run("-st --chat-template vicuna -p Hi -n 1 -c 64").said();
    assert!(unknown.contains("--chat-template vicuna"), "{unknown}");
}

/// The page with what stands between two marks of this name, each on a line of its own, made again.
fn with(page: &str, name: &str, made: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("docs/llama-cpp.md lacks {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("docs/llama-cpp.md lacks {end}"));
    format!("{before}{begin}\n{made}\n{end}{after}")
}

/// With SPEC_RUN_WRITE_PAGES=1 the page is written.
#[test]
fn the_page_is_made_of_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/llama-cpp.md");
    let page = fs::read_to_string(path).unwrap();
    let names: Vec<String> = AS_THEY_ARE.iter().map(|name| format!("`{name}`")).collect();
    let mut made = with(&page, "flags as they are", &(names.join(" ") + "\n"));
    for (program, flags) in TABLES {
        let rows: String = flags.iter().map(|flag| flag.row() + "\n").collect();
        let table = format!("| {program} | here | environment |\n|:--|:--|:--|\n{rows}");
        made = with(&made, &format!("flags of {program}"), &table);
    }
    if std::env::var_os("SPEC_RUN_WRITE_PAGES").is_some() {
        fs::write(path, made).unwrap();
    } else {
        assert!(
            made == page,
            "docs/llama-cpp.md is not up to date: SPEC_RUN_WRITE_PAGES=1 cargo test --test cli llama_flags writes it"
        );
    }
}

/// What the table says is done, is.
#[test]
fn flags_of_ours_exist() {
    let help = ["", "perplexity", "bench", "embed", "serve"];
    let help = help.map(|command| run(&format!("{command} --help")).done()).concat();
    for flag in TABLES.iter().flat_map(|(_, flags)| *flags) {
        if let Here::Same(long) | Here::Chat(long) = flag.here {
            assert!(help.contains(long), "{long} of {:?} is not in --help", flag.names);
        }
    }
}

/// As scripts do that add flags to those of another script.
#[test]
fn of_a_flag_that_stands_twice_the_last_counts() {
    let twice = run("-n 40 --temp 2 -p Hi -n 3 --temp 0").done();
    assert_eq!(twice, run("-n 3 --temp 0 -p Hi").done());
    assert!(check("serve -c 512 -m model.gguf -c 1024").is_ok());
}
