//! What can go wrong: one line each, and nothing half there but the part that is gone on with.

use super::*;

#[test]
fn wrong_bytes_are_not_kept() {
    let mut bad = TINY.to_vec();
    bad[50_000] ^= 1;
    let server = odd(tiny(), move |request| Some(Reply::bytes(&bad, request)));
    let user = User::of(&server);
    let line = user.error(&["-hf", "a/b"], 1);
    assert!(line.contains("tiny-Q8_0.gguf") && line.contains("hash"), "{line}");
    assert_eq!(files(&user.cache()), NOTHING);
    assert_eq!(server.files_asked().len(), 1);
}

#[test]
fn wrong_lengths_are_refused() {
    let server = odd(tiny(), |_| Some(Reply { body: TINY[1..].into(), ..Reply::status("200 OK") }));
    let user = User::of(&server);
    let line = user.error(&["-hf", "a/b"], 1);
    assert!(line.contains("the server offers 80255 bytes of 80256"), "{line}");
}

#[test]
fn refusals_say_what_to_do() {
    let everywhere = |status: &'static str, header: Option<(&'static str, &'static str)>| {
        Server::new(move |_| {
            let reply = Reply::status(status);
            match header {
                Some((name, value)) => reply.with(name, value),
                None => reply,
            }
        })
    };
    let line = |server: &Server, token: &str| {
        let user = User::of(server);
        let output = user.command(&["inspect", "-hf", "a/b"]).env("HF_TOKEN", token).ended();
        output.refused(1, &["a/b: "]);
        output.said()
    };
    let none = line(&everywhere("404 Not Found", None), "");
    assert!(none.contains("no such repository; check the name"), "{none}");
    let none = line(&everywhere("401 Unauthorized", None), "");
    assert!(
        none.contains("no such repository, or it is gated or private") && none.contains("set HF_TOKEN"),
        "{none}"
    );
    let none = line(&everywhere("401 Unauthorized", None), "hf_x");
    assert!(none.contains("not for the owner of this token"), "{none}");
    let gated = everywhere("403 Forbidden", Some(("X-Error-Code", "GatedRepo")));
    let text = line(&gated, "");
    assert!(text.contains("gated: accept its terms on http://127.0.0.1"), "{text}");
    assert!(text.contains("/a/b and set HF_TOKEN"), "{text}");

    // Lists are public, the file is not.
    let server = odd(tiny(), |_| Some(Reply::status("401 Unauthorized").with("X-Error-Code", "GatedRepo")));
    let text = line(&server, "");
    assert!(text.contains("gated"), "{text}");
}

#[test]
fn what_is_no_hub_is_said() {
    let server = Server::new(|_| Reply { body: b"<html>".into(), ..Reply::status("200 OK") });
    let line = User::of(&server).error(&["-hf", "a/b"], 1);
    assert!(line.contains("does not answer as a hub does; see HF_ENDPOINT"), "{line}");
    let nobody = User { endpoint: "http://127.0.0.1:1".into(), ..User::of(&server) };
    let line = nobody.error(&["-hf", "a/b"], 1);
    assert!(line.contains("127.0.0.1: ") && line.contains("refused"), "{line}");
    let wrong = User { endpoint: "ftp://example".into(), ..User::of(&server) };
    assert!(wrong.error(&["-hf", "a/b"], 1).contains("not an address of the form https://HOST/PATH"));
}

#[test]
fn redirects_without_end_are_left() {
    let server = odd(tiny(), |_| Some(Reply::redirect("/a/b/resolve/again".into())));
    let line = User::of(&server).error(&["-hf", "a/b"], 1);
    assert!(line.contains("more than 10 redirects"), "{line}");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let server = tiny().serve();
    let user = User::of(&server);
    for name in
        ["", "a", "../..", "/etc/passwd", "a/../b", "a b/c", "a/b\n", "a/b/c", "a/b:", "a/b:../x", "C:\\a/b"]
    {
        let line = user.error(&["--hf-repo", name], 1);
        assert!(line.contains("USER/NAME") || line.contains("quantization"), "{line}");
    }
    for file in ["", "../m.gguf", "/etc/passwd", "a/../../m.gguf", "a\\b", "a\nb", "C:m.gguf"] {
        let line = user.error(&["-hf", "a/b", "-hff", file], 1);
        assert!(line.contains("a file of a repository is named as in"), "{line}");
    }
    assert_eq!(server.asked().len(), 0);
    let line = user.error(&["-hf", "a/b", "-m", "x.gguf"], 2);
    assert!(line.contains("leave one of them out"), "{line}");
    let output = user.command(&["inspect", "-hf", "a/b"]).env("HF_TOKEN", "a b").ended();
    output.failed(1, &["see HF_TOKEN"]);
}

#[test]
fn a_list_cannot_lead_out_of_the_cache() {
    for path in ["../../../evil-Q8_0.gguf", "/tmp/evil-Q8_0.gguf", "a\\..\\evil-Q8_0.gguf"] {
        let user = User::of(&Repo::new(&[(path, TINY)]).serve());
        assert!(user.error(&["-hf", "a/b"], 1).contains("it has no GGUF model"));
        assert_eq!(files(user.home.path()), NOTHING);
    }
}

/// As on a full disk: the system refuses to write on.
#[cfg(unix)]
#[test]
fn what_cannot_be_written_is_said_and_the_part_kept() {
    let server = tiny().serve();
    let user = User::of(&server);
    // dash counts in blocks of 512 bytes, others of 1024.
    let limited = "trap '' XFSZ; ulimit -f 20; exec \"$0\" inspect -hf a/b";
    let mut command = user.command(&[]);
    let program = command.get_program().to_owned();
    let variables: Vec<_> =
        command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    let output = Command::new("sh").arg("-c").arg(limited).arg(program).envs(variables).ended();
    output.failed(1, &[".incomplete: ", "are kept"]);
    let kept = fs::read(user.part(TINY)).unwrap();
    assert!(!kept.is_empty() && TINY.starts_with(&kept));
    command.args(["inspect", "-hf", "a/b"]);
    command.ended().done();
    assert_eq!(server.files_asked().last().unwrap().start(), kept.len());
}

/// Ctrl-C.
#[cfg(unix)]
#[test]
fn an_interrupted_download_is_gone_on_with() {
    let server = at_first(1, |request| Reply::bytes(TINY, request).cut(30_000, Duration::from_secs(20)));
    let user = User::of(&server);
    let mut child = user
        .command(&["inspect", "-hf", "a/b"])
        .env("HF_HUB_DOWNLOAD_TIMEOUT", "60")
        .stderr(Stdio::null())
        .start();
    let there = || fs::metadata(user.part(TINY)).is_ok_and(|part| part.len() == 30_000);
    let started = std::time::Instant::now();
    while !there() {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    child.signal("-INT");
    assert!(!child.wait().success());
    assert_eq!(files(&user.cache()), [user.part(TINY)]);
    user.inspect(&["-hf", "a/b"]);
    assert_eq!(server.files_asked().last().unwrap().start(), 30_000);
}
