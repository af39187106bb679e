//! Models by their address.

use super::*;

#[test]
fn a_model_is_fetched_by_its_address_once() {
    let server = Server::new(|request| Reply::bytes(TINY, request).with("ETag", "\"x1\""));
    let user = User { endpoint: "http://127.0.0.1:1".into(), ..User::of(&server) };
    let address = format!("{}/some/m.gguf?download=true", server.address());
    let first = user.inspect(&["-mu", &address]);
    assert_eq!(user.inspect(&["--model-url", &address]), first);
    let asked = server.asked();
    assert_eq!((asked.len(), asked[0].path.as_str()), (1, "/some/m.gguf?download=true"));
    // The hub's token is not for this server.
    assert_eq!(asked[0].header("authorization"), None);
    let there = files(&user.home.path().join(".cache/spec-run/models"));
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].file_name().unwrap(), "m.gguf");
    assert_eq!(fs::read(&there[0]).unwrap(), TINY);
    assert_eq!(user.inspect(&["-mu", &address, "--offline"]), first);

    // The same name elsewhere is another model.
    let other = format!("{}/other/m.gguf", server.address());
    assert!(user.error(&["-mu", &other, "--offline"], 1).contains("not in the cache"));
    // Or to a file of one's own.
    let place = user.home.path().join("mine/model.gguf");
    let place = place.to_str().unwrap();
    let kept = user.inspect(&["-mu", &other, "-m", place]);
    assert_eq!((&kept["file"], &kept["tensors"]), (&place.into(), &first["tensors"]));
    assert_eq!(user.inspect(&["-m", place]), kept);
}

#[test]
fn a_model_that_was_fetched_is_not_written_over() {
    let server = tiny().serve();
    let user = User::of(&server);
    user.inspect(&["-hf", "a/b"]);
    let (link, blob) = (user.snapshot("tiny-Q8_0.gguf"), user.repo().join("blobs").join(TINY_SHA256));
    let hub = format!("{}/a/b/resolve/main/tiny-Q8_0.gguf", server.address());
    let plain = Server::new(|request| Reply::bytes(TINY, request));
    let address = format!("{}/some/m.gguf", plain.address());
    user.inspect(&["-mu", &address]);
    let fetched = files(&user.home.path().join(".cache/spec-run/models")).remove(0);
    // Not there yet, and it would be there before the result.
    let mine = user.home.path().join("mine.gguf");
    let mine_flag = mine.to_str().unwrap();
    // Where links do not work the blob was moved to the link's place.
    let blob = if super::links_work() { &blob } else { &link };
    for (model, output) in [
        (&["-hf", "a/b"][..], &link),
        (&["-hf", "a/b"], blob),
        (&["-mu", &hub], blob),
        (&["-mu", &address], &fetched),
        (&["-mu", &address, "-m", mine_flag], &mine),
    ] {
        let before = fs::read(output).ok();
        let search = ["search", "--force", "-o", output.to_str().unwrap()];
        user.run(&[&search, model].concat()).refused(1, &["is the input too"]);
        assert_eq!(fs::read(output).ok(), before, "{model:?}");
    }
}

#[test]
fn the_hubs_own_addresses_go_into_its_cache() {
    let server = tiny().serve();
    let user = User::of(&server);
    user.inspect(&["-mu", &format!("{}/a/b/resolve/main/tiny-Q8_0.gguf?download=true", server.address())]);
    assert_eq!(fs::read(user.snapshot("tiny-Q8_0.gguf")).unwrap(), TINY);
    user.inspect(&["-hf", "a/b", "--offline"]);
}

#[test]
fn a_part_is_gone_on_with_if_the_file_is_the_same() {
    for (etag, starts) in [("\"x1\"", [0, 30_000]), ("\"x2\"", [0, 30_000])] {
        let times = AtomicUsize::new(0);
        let server = Server::new(move |request| match times.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::bytes(OTHER, request).with("ETag", "\"x1\"").cut(30_000, Duration::ZERO),
            // Another file by now: the whole of it.
            _ if etag == "\"x2\"" => {
                assert_eq!(request.header("if-range"), Some("\"x1\""));
                Reply { body: TINY.into(), ..Reply::status("200 OK") }.with("ETag", etag)
            }
            _ => Reply::bytes(OTHER, request).with("ETag", etag),
        });
        let user = User::of(&server);
        let place = user.home.path().join("m.gguf");
        user.inspect(&["-mu", &format!("{}/m.gguf", server.address()), "-m", place.to_str().unwrap()]);
        assert_eq!(server.asked().iter().map(Request::start).collect::<Vec<_>>(), starts);
        assert!(fs::read(&place).unwrap() == if etag == "\"x1\"" { OTHER } else { TINY });
    }
}

#[test]
fn shards_follow_the_first() {
    let server = Server::new(|request| {
        let [first, second] = shards();
        Reply::bytes(if request.path.contains("00001") { &first } else { &second }, request)
    });
    let user = User::of(&server);
    let address = format!("{}/x/m-00001-of-00002.gguf", server.address());
    assert_eq!(user.name(&["-mu", &address]), "in two");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a_page_is_no_model() {
    let server = Server::new(|request| Reply::bytes(b"<html>Sign in</html>", request));
    let user = User::of(&server);
    let line = user.error(&["-mu", &format!("{}/m.gguf", server.address())], 1);
    assert!(line.contains("/m.gguf: what came is not a GGUF file"), "{line}");
    assert_eq!(files(user.home.path()), NOTHING);
    for address in
        ["m.gguf", "http://", "file:///etc/passwd", "https://host/", "https://host/..", "http://a b/m.gguf"]
    {
        assert!(user.error(&["-mu", address], 1).contains("not "), "{address}");
    }
    let gone = Server::new(|_| Reply::status("404 Not Found"));
    let line = user.error(&["-mu", &format!("{}/m.gguf", gone.address())], 1);
    assert!(line.contains("/m.gguf: the server says 404 Not Found"), "{line}");
}
