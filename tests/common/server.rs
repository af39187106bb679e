//! The program as a server, for one test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{
    child::{Limited, Start},
    program::program,
};

pub struct Server {
    pub child: Limited,
    /// Host and port.
    at: String,
    /// What it said before it was there.
    pub said: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn start(args: &[&str]) -> Self {
        Self::start_in(&[], args)
    }

    /// With variables in its environment.
    pub fn start_in(variables: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = program();
        command.args(["serve", "--port", "0", "--no-learn"]).args(args);
        if !args.contains(&"-c") {
            command.args(["-c", "512"]);
        }
        command.envs(variables.iter().copied());
        Self::of(command)
    }

    /// Any program that says at which address it listens.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).start();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let at = lines.find_map(|line| {
            said.push(line.unwrap());
            said.last()?.split_once("http://").map(|(_, at)| at.to_owned())
        });
        let at = at.unwrap_or_else(|| panic!("the server did not start: {said:?}"));
        // Nobody reads what else it says, and it is not to wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, at, said }
    }

    /// The body of a reply, as it is.
    pub fn post(&self, path: &str, body: &Value) -> String {
        self.send("POST", path, body)
    }

    pub fn get(&self, path: &str) -> Value {
        value(path, &self.send("GET", path, &Value::Null))
    }

    pub fn json(&self, path: &str, body: &Value) -> Value {
        value(path, &self.post(path, body))
    }

    /// The text that a completion gives.
    pub fn text(&self, body: &Value) -> Value {
        self.json("/completion", body)["content"].clone()
    }

    /// The texts of several completions that are asked for at once.
    pub fn texts(&self, bodies: &[Value]) -> Vec<Value> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = bodies.iter().map(|body| scope.spawn(|| self.text(body))).collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The answer is an error of this code, which says these words in one line.
    #[track_caller]
    pub fn refuses(&self, path: &str, body: &Value, code: u16, words: &str) {
        let said = self.json(path, body);
        let message = said["error"]["message"].as_str().unwrap_or_else(|| panic!("{path}: {body}: {said}"));
        assert_eq!(said["error"]["code"], code, "{path}: {body}: {said}");
        assert!(message.contains(words) && !message.contains('\n'), "{path}: {body}: {said}");
    }

    pub fn send(&self, method: &str, path: &str, body: &Value) -> String {
        let mut socket = TcpStream::connect(&self.at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        write!(socket, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        reply.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

fn value(path: &str, reply: &str) -> Value {
    serde_json::from_str(reply).unwrap_or_else(|e| panic!("{path}: {e}: {reply}"))
}
