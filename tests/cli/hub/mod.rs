//! Models from a hub, which is a server on the loopback device: nothing here asks anything of the network.

mod failures;
mod server;
mod urls;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{
    child::{Ended, Start},
    program::{EMBEDDED, program, stdout},
};
use server::{COMMIT, Reply, Repo, Request, Server, sha256};
use spec_run::{gguf::Writer, quant::GgmlType};
use tempfile::TempDir;

const TINY: &[u8] = include_bytes!("../../golden/tiny/llama-linear.gguf");
/// By sha256sum.
const TINY_SHA256: &str = "c9087a5345c16547dda361ddbb3eaadf4cc872acb51cebc271788cb7f4d8ea56";
const OTHER: &[u8] = include_bytes!("../../golden/tiny/qwen2.gguf");

const TOKEN: &str = "hf_secret";
const NOTHING: [PathBuf; 0] = [];

/// A user's machine: a cache, and the hub that it asks.
struct User {
    home: TempDir,
    endpoint: String,
}

impl User {
    fn of(server: &Server) -> Self {
        User { home: tempfile::tempdir().unwrap(), endpoint: server.address() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().to_ascii_uppercase();
            if ["HF_", "HUGGINGFACE_", "LLAMA_", "MODEL_", "XDG_CACHE"]
                .iter()
                .any(|start| name.starts_with(start))
                || name.ends_with("_PROXY")
            {
                command.env_remove(name.to_ascii_lowercase()).env_remove(name);
            }
        }
        command.env("HOME", self.home.path()).env("USERPROFILE", self.home.path());
        command.env("HF_ENDPOINT", &self.endpoint).env("HF_TOKEN", TOKEN).env("HF_HUB_DOWNLOAD_TIMEOUT", "1");
        command.args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.command(args).ended()
    }

    /// What `inspect --json` says of a model that must be found, but with which command.
    #[track_caller]
    fn inspect(&self, args: &[&str]) -> serde_json::Value {
        described(&self.run(&[&["inspect", "--json"], args].concat()))
    }

    #[track_caller]
    fn name(&self, args: &[&str]) -> String {
        self.inspect(args)["metadata"]["general.name"].as_str().unwrap_or_default().to_string()
    }

    /// The one line of an error that ends with `code`.
    #[track_caller]
    fn error(&self, args: &[&str], code: i32) -> String {
        let output = self.run(&[&["inspect"], args].concat());
        output.failed(code, &[]);
        let text = output.said();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("downloading ")).collect();
        assert_eq!(lines.len(), 1, "{text}");
        lines[0].to_string()
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join(".cache/huggingface/hub")
    }

    fn repo(&self) -> PathBuf {
        self.cache().join("models--a--b")
    }

    fn snapshot(&self, file: &str) -> PathBuf {
        self.repo().join("snapshots").join(COMMIT).join(file)
    }

    fn part(&self, bytes: &[u8]) -> PathBuf {
        self.repo().join("blobs").join(sha256(bytes) + ".incomplete")
    }
}

/// Whether the system makes links and follows them: Windows lets few users make any.
fn links_work() -> bool {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let link = folder.path().join("link");
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink("file", &link);
    #[cfg(windows)]
    let made = std::os::windows::fs::symlink_file("file", &link);
    made.is_ok() && link.exists()
}

/// All files below a folder, without the locks, which stay.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            _ if entry.path().extension().is_some_and(|ext| ext == "lock") => {}
            _ => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// A repository whose files are answered by `answer` if it has something to say, as hubs do else.
fn odd(repo: Repo, answer: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Server {
    Server::new(move |request| {
        repo.list(request).unwrap_or_else(|| answer(request).unwrap_or_else(|| repo.file(request)))
    })
}

fn tiny() -> Repo {
    Repo::new(&[("tiny-Q8_0.gguf", TINY)])
}

/// `odd`, for the first `n` times that a file is asked for.
fn at_first(n: usize, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
    let times = AtomicUsize::new(0);
    odd(tiny(), move |request| (times.fetch_add(1, Ordering::Relaxed) < n).then(|| answer(request)))
}

/// What `inspect --json` has written, without the command that it was.
#[track_caller]
fn described(output: &Ended) -> serde_json::Value {
    let mut json = output.json();
    json["provenance"]["command"] = serde_json::Value::Null;
    json
}

#[test]
fn a_model_is_fetched_once_into_the_cache_that_others_read() {
    let server = tiny().serve();
    let user = User::of(&server);
    let there = user.inspect(&["-hf", "a/b"]);
    assert_eq!(
        there["tensors"].as_array().unwrap().len() as u64,
        spec_run::Gguf::from_bytes("tiny", TINY).unwrap().tensors().len() as u64
    );
    let (blob, link) = (user.repo().join("blobs").join(TINY_SHA256), user.snapshot("tiny-Q8_0.gguf"));
    let main = user.repo().join("refs").join("main");
    let lie = files(&user.cache());
    if links_work() {
        assert_eq!(lie, [blob.clone(), main.clone(), link.clone()]);
        assert_eq!(fs::read(&blob).unwrap(), TINY);
    } else {
        assert_eq!(lie, [main.clone(), link.clone()]);
        assert_eq!(fs::read(&link).unwrap(), TINY);
    }
    assert_eq!(fs::read_to_string(main).unwrap(), COMMIT);
    #[cfg(unix)]
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../blobs").join(TINY_SHA256));

    let asked = server.asked();
    let paths: Vec<_> = asked.iter().map(|request| request.path.as_str()).collect();
    let tree = format!("/api/models/a/b/tree/{COMMIT}?recursive=true");
    let file = format!("/a/b/resolve/{COMMIT}/tiny-Q8_0.gguf");
    assert_eq!(paths, ["/api/models/a/b/refs", &tree, &file]);
    assert!(asked.iter().all(|request| request.header("authorization") == Some("Bearer hf_secret")));

    // The second time it is there.
    let output = user.run(&["inspect", "--hf-repo", "a/b"]);
    assert_eq!((output.status.code(), &*output.said()), (Some(0), ""));
    assert_eq!(server.files_asked().len(), 0);
    assert_eq!(user.run(&["-cl"]).done(), "a/b:Q8_0\n");
}

#[test]
fn the_program_writes_the_same_text_from_it() {
    let model = fs::read(EMBEDDED).unwrap();
    let user = User::of(&Repo::new(&[("x/stories13m-q8_0.gguf", &model)]).serve());
    let text = ["-p", "Once upon a time", "-n", "12", "--temp", "0", "--device", "cpu"];
    let embedded = stdout(&text);
    let fetched = user.run(&[&["-hf", "a/b:Q8_0"], &text[..]].concat()).done();
    assert!(embedded.len() > 40);
    assert_eq!(fetched, embedded);
}

#[test]
fn caches_lie_where_the_environment_says() {
    let server = tiny().serve();
    for (variables, below) in [
        (&["HF_HOME"][..], "HF_HOME/hub"),
        (&["HF_HUB_CACHE", "HF_HOME"], "HF_HUB_CACHE"),
        (&["XDG_CACHE_HOME"], "XDG_CACHE_HOME/huggingface/hub"),
        (&["LLAMA_CACHE", "HF_HUB_CACHE"], "LLAMA_CACHE"),
    ] {
        let user = User::of(&server);
        let mut command = user.command(&["inspect", "-hf", "a/b"]);
        for variable in variables {
            command.env(variable, user.home.path().join(variable));
        }
        assert!(command.ended().status.success());
        let folder = user.home.path().join(below).join("models--a--b/snapshots").join(COMMIT);
        assert!(folder.join("tiny-Q8_0.gguf").exists(), "{variables:?}");
    }
}

#[test]
fn quantizations_are_chosen_as_llama_cpp_does() {
    let named = |name: &str| {
        let mut writer = Writer::new();
        writer.set("general.architecture", "llama");
        writer.set("general.name", name);
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).unwrap();
        bytes
    };
    let repo = Repo::new(&[
        ("m-Q2_K.gguf", &named("two")),
        ("m-Q8_0.gguf", &named("eight")),
        ("mmproj-Q4_K_M.gguf", b"no model"),
        ("m-Q4_K_M.gguf", &named("four")),
    ]);
    let server = repo.serve();
    let user = User::of(&server);
    assert_eq!(user.name(&["-hf", "a/b"]), "four");
    assert_eq!(user.name(&["-hfr", "a/b:q8_0"]), "eight");
    assert_eq!(user.name(&["-hf", "a/b:Q8_0", "-hff", "m-Q2_K.gguf"]), "two");
    let list = "it has m-Q2_K.gguf, m-Q8_0.gguf, m-Q4_K_M.gguf";
    let line = user.error(&["-hf", "a/b:Q5_K_M"], 1);
    assert_eq!(line, format!("spec-run: a/b: there is no GGUF model of Q5_K_M; {list}"));
    let line = user.error(&["-hf", "a/b", "-hff", "other.gguf"], 1);
    assert_eq!(line, format!("spec-run: a/b: there is no file other.gguf; {list}"));
}

/// A model in two files, the second of which has the one tensor.
fn shards() -> [Vec<u8>; 2] {
    [0_u16, 1].map(|no| {
        let mut writer = Writer::new();
        if no == 0 {
            writer.set("general.architecture", "llama");
            writer.set("general.name", "in two");
        }
        writer.set("split.no", no);
        writer.set("split.count", 2_u16);
        writer.set("split.tensors.count", 1_i32);
        if no == 1 {
            writer.tensor("output_norm.weight", GgmlType::F32, &[8]);
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, out| out.write(&[0; 32])).unwrap();
        bytes
    })
}

#[test]
fn all_shards_are_fetched() {
    let [first, second] = shards();
    let (one, two) = ("d/m-Q4_0-00001-of-00002.gguf", "d/m-Q4_0-00002-of-00002.gguf");
    let server = Repo::new(&[(two, &second), ("d/m-Q8_0.gguf", TINY), (one, &first)]).serve();
    let user = User::of(&server);
    assert_eq!(user.name(&["-hf", "a/b:Q4_0"]), "in two");
    assert_eq!(fs::read(user.snapshot(two)).unwrap(), second);
    assert_eq!(server.files_asked().len(), 2);
    // And all must be there offline.
    assert_eq!(user.name(&["-hf", "a/b:Q4_0", "--offline"]), "in two");
    fs::remove_file(user.snapshot(two)).unwrap();
    assert!(user.error(&["-hf", "a/b:Q4_0", "--offline"], 1).contains("00002-of-00002.gguf is missing"));

    let user = User::of(&Repo::new(&[(one, &first)]).serve());
    assert!(user.error(&["-hf", "a/b"], 1).contains("00002-of-00002.gguf is missing"));
    assert_eq!(files(&user.cache()), NOTHING);
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let server = at_first(1, |request| Reply::bytes(TINY, request).cut(30_000, Duration::ZERO));
    let user = User::of(&server);
    user.inspect(&["-hf", "a/b"]);
    let starts: Vec<_> = server.files_asked().iter().map(Request::start).collect();
    assert_eq!(starts, [0, 30_000]);
    assert_eq!(fs::read(user.snapshot("tiny-Q8_0.gguf")).unwrap(), TINY);
}

#[test]
fn another_process_goes_on_with_a_kept_part() {
    let busy = || Reply::status("503 Service Unavailable").with("Retry-After", "0");
    let times = AtomicUsize::new(0);
    let server = odd(tiny(), move |request| match times.fetch_add(1, Ordering::Relaxed) {
        0 => Some(Reply::bytes(TINY, request).cut(30_000, Duration::ZERO)),
        1..=3 => Some(busy()),
        _ => None,
    });
    let user = User::of(&server);
    let line = user.error(&["-hf", "a/b"], 1);
    assert!(line.contains("503") && line.contains("30000 of 80256 bytes are kept"), "{line}");
    assert_eq!(files(&user.cache()), [user.part(TINY)]);
    assert_eq!(fs::read(user.part(TINY)).unwrap(), TINY[..30_000]);
    server.asked();
    user.inspect(&["-hf", "a/b"]);
    let starts: Vec<_> = server.files_asked().iter().map(Request::start).collect();
    assert_eq!(starts, [30_000]);
    assert!(!user.part(TINY).exists());
}

#[test]
fn a_part_of_something_else_is_fetched_anew() {
    let server = tiny().serve();
    for part in [&[7; 5000][..], &[7; 80_256], &[7; 100_000]] {
        let user = User::of(&server);
        fs::create_dir_all(user.repo().join("blobs")).unwrap();
        fs::write(user.part(TINY), part).unwrap();
        user.inspect(&["-hf", "a/b"]);
        assert_eq!(fs::read(user.snapshot("tiny-Q8_0.gguf")).unwrap(), TINY);
    }
}

#[test]
fn a_server_that_knows_no_ranges_is_asked_for_the_whole() {
    let server = odd(tiny(), |_| Some(Reply { body: TINY.into(), ..Reply::status("200 OK") }));
    let user = User::of(&server);
    fs::create_dir_all(user.repo().join("blobs")).unwrap();
    fs::write(user.part(TINY), &TINY[..1000]).unwrap();
    user.inspect(&["-hf", "a/b"]);
    assert_eq!(server.files_asked().len(), 1);
    assert_eq!(fs::read(user.snapshot("tiny-Q8_0.gguf")).unwrap(), TINY);
}

#[test]
fn a_silent_connection_is_left_and_taken_up_again() {
    let server = at_first(1, |request| Reply::bytes(TINY, request).cut(40_000, Duration::from_secs(20)));
    let user = User::of(&server);
    let started = std::time::Instant::now();
    user.inspect(&["-hf", "a/b"]);
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(server.files_asked().last().unwrap().start(), 40_000);
}

#[test]
fn busy_servers_are_asked_again() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let server = at_first(2, move |_| Reply::status(status).with("Retry-After", "0"));
        User::of(&server).inspect(&["-hf", "a/b"]);
        assert_eq!(server.files_asked().len(), 3);
    }
}

#[test]
fn the_token_goes_to_no_other_host() {
    let elsewhere = std::sync::Arc::new(Server::new(|request| Reply::bytes(TINY, request)));
    // Another name, another port of the same name; and back to the hub by way of another host.
    for host in ["localhost", "127.0.0.1"] {
        let to = format!("http://{host}:{}/cdn/x?token=1", elsewhere.port);
        let server = odd(tiny(), move |_| Some(Reply::redirect(to.clone())));
        let user = User::of(&server);
        user.inspect(&["-hf", "a/b"]);
        assert_eq!(server.files_asked()[0].header("authorization"), Some("Bearer hf_secret"));
        let asked = elsewhere.asked();
        assert_eq!((asked.len(), asked[0].path.as_str()), (1, "/cdn/x?token=1"));
        assert_eq!(asked[0].header("authorization"), None);
    }
    // A redirect within the hub keeps it.
    let server = odd(tiny(), |request| {
        request
            .path
            .starts_with("/a/b/")
            .then(|| Reply::redirect("/moved".into()))
            .or_else(|| (request.path == "/moved").then(|| Reply::bytes(TINY, request)))
    });
    User::of(&server).inspect(&["-hf", "a/b"]);
    assert_eq!(server.asked().last().unwrap().header("authorization"), Some("Bearer hf_secret"));
}

#[test]
fn two_processes_download_once() {
    let server = odd(tiny(), |request| {
        std::thread::sleep(Duration::from_millis(700));
        Some(Reply::bytes(TINY, request))
    });
    let user = User::of(&server);
    let started: Vec<_> = (0..3)
        .map(|_| {
            user.command(&["inspect", "-hf", "a/b"]).stdout(Stdio::piped()).stderr(Stdio::piped()).start()
        })
        .collect();
    let outputs: Vec<_> = started.into_iter().map(|child| child.output().done()).collect();
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    assert_eq!(server.files_asked().len(), 1);
}

#[test]
fn offline_takes_what_is_there() {
    let server = tiny().serve();
    let user = User::of(&server);
    let line = user.error(&["-hf", "a/b", "--offline"], 1);
    assert!(line.contains("a/b: not in the cache") && line.contains("offline"), "{line}");
    assert_eq!(server.asked().len(), 0);
    let online = user.inspect(&["-hf", "a/b"]);
    server.asked();
    assert_eq!(user.inspect(&["-hf", "a/b", "--offline"]), online);
    let output = user.command(&["inspect", "--json", "-hf", "a/b"]).env("HF_HUB_OFFLINE", "1").ended();
    assert_eq!(described(&output), online);
    assert_eq!(server.asked().len(), 0);
    let line = user.error(&["-hf", "a/b:Q4_0", "--offline"], 1);
    assert!(line.contains("it has tiny-Q8_0.gguf"), "{line}");

    // A hub that is not there any more.
    let gone = User { endpoint: "http://127.0.0.1:1".into(), ..user };
    let output = gone.run(&["inspect", "--json", "-hf", "a/b"]);
    assert_eq!(described(&output), online);
    assert!(output.said().contains("taking what is in the cache"), "{}", output.said());
}

#[test]
fn a_newer_commit_is_fetched() {
    static COMMITS: Mutex<char> = Mutex::new('1');
    let server = Server::new(|request| {
        let now = *COMMITS.lock().unwrap();
        let repo = Repo::new(&[("m.gguf", if now == '1' { TINY } else { OTHER })]);
        let commit = now.to_string().repeat(40);
        if request.path.ends_with("/refs") {
            return Reply::json(&serde_json::json!({"branches": [{"name": "main", "targetCommit": commit}]}));
        }
        if request.path.contains("/tree/") {
            return Reply::json(&repo.listing());
        }
        Reply::bytes(&repo.files[0].1, request)
    });
    let user = User::of(&server);
    let old = user.inspect(&["-hf", "a/b"]);
    *COMMITS.lock().unwrap() = '2';
    let new = user.inspect(&["-hf", "a/b"]);
    assert_ne!(old, new);
    assert_eq!(user.inspect(&["-hf", "a/b", "--offline"]), new);
    assert_eq!(fs::read(user.repo().join("snapshots").join("1".repeat(40)).join("m.gguf")).unwrap(), TINY);
}
