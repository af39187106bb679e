//! A hub on the loopback device: answers what it is told to, and remembers what it was asked.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use ring::digest;
use serde_json::json;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first byte that is asked for.
    pub fn start(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        range.map_or(0, |start| start.parse().unwrap())
    }
}

pub struct Reply {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// How much of the body is sent before the line goes dead, and how long it is dead before it is closed.
    pub cut: Option<(usize, Duration)>,
}

impl Reply {
    pub fn status(status: &'static str) -> Self {
        Reply { status, headers: Vec::new(), body: Vec::new(), cut: None }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut(mut self, after: usize, silence: Duration) -> Self {
        self.cut = Some((after, silence));
        self
    }

    pub fn redirect(to: String) -> Self {
        Reply::status("302 Found").with("Location", to)
    }

    /// The bytes that were asked for.
    pub fn bytes(bytes: &[u8], request: &Request) -> Self {
        let start = request.start();
        if start == 0 {
            return Reply { body: bytes.into(), ..Reply::status("200 OK") };
        }
        if start >= bytes.len() {
            return Reply::status("416 Range Not Satisfiable");
        }
        let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
        Reply { body: bytes[start..].into(), ..Reply::status("206 Partial Content") }
            .with("Content-Range", range)
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Reply { body: value.to_string().into(), ..Reply::status("200 OK") }
    }
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers until the test process ends.
    pub fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { port: listener.local_addr().unwrap().port(), asked: Arc::default() };
        let (asked, answer): (_, Arc<Answer>) = (server.asked.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, answer) = (asked.clone(), answer.clone());
                thread::spawn(move || drop(serve(stream, &asked, &*answer)));
            }
        });
        server
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What was asked since the last call.
    pub fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// The same, of files alone.
    pub fn files_asked(&self) -> Vec<Request> {
        self.asked().into_iter().filter(|request| request.path.contains("/resolve/")).collect()
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<Request>>, answer: &Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_string();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_string());
    }
    let request = Request { path, headers };
    asked.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let mut out = &stream;
    write!(
        out,
        "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: {}\r\n",
        reply.status,
        reply.body.len()
    )?;
    reply.headers.iter().try_for_each(|(name, value)| write!(out, "{name}: {value}\r\n"))?;
    write!(out, "\r\n")?;
    match reply.cut {
        None => out.write_all(&reply.body),
        Some((after, silence)) => {
            out.write_all(&reply.body[..after])?;
            thread::sleep(silence);
            Ok(())
        }
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files of the repository `a/b`.
#[derive(Clone)]
pub struct Repo {
    pub files: Vec<(String, Vec<u8>)>,
}

impl Repo {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        Repo { files: files.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect() }
    }

    pub fn listing(&self) -> serde_json::Value {
        let file = |(path, bytes): &(String, Vec<u8>)| {
            let lfs = json!({"oid": sha256(bytes), "size": bytes.len(), "pointerSize": 134});
            json!({"type": "file", "path": path, "size": bytes.len(), "oid": "f".repeat(40), "lfs": lfs})
        };
        self.files.iter().map(file).collect()
    }

    /// What is asked of the lists; `None` for a file.
    pub fn list(&self, request: &Request) -> Option<Reply> {
        let refs = json!({"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}]});
        if request.path == "/api/models/a/b/refs" {
            Some(Reply::json(&refs))
        } else if request.path.starts_with(&format!("/api/models/a/b/tree/{COMMIT}")) {
            Some(Reply::json(&self.listing()))
        } else {
            None
        }
    }

    pub fn file(&self, request: &Request) -> Reply {
        let path = request.path.strip_prefix(&format!("/a/b/resolve/{COMMIT}/"));
        let file = self.files.iter().find(|(name, _)| Some(name.as_str()) == path);
        file.map_or(Reply::status("404 Not Found"), |(_, bytes)| Reply::bytes(bytes, request))
    }

    pub fn serve(self) -> Server {
        Server::new(move |request| self.list(request).unwrap_or_else(|| self.file(request)))
    }
}
