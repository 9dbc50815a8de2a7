//! Helpers that the tests share: the built service as a process, and its clients.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod ask;
pub mod peer;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use support::PATIENCE;
use support::files::Files;
use support::process::Process;

/// A running service, ended when it is dropped.
pub struct Service {
    pub process: Process,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub folder: Files,
}

impl Service {
    /// One whose folder holds these rules.
    pub fn start(rules: &str, variables: &[(&str, &str)]) -> Self {
        let folder = Files::new();
        folder.write("rules.yaml", rules);
        Self::run(folder, variables).unwrap_or_else(|why| panic!("it did not start: {why}"))
    }

    /// One whose `CONFIG` is this folder, unless a variable says otherwise. Returns what it wrote
    /// to stderr if it does not start.
    pub fn run(folder: Files, variables: &[(&str, &str)]) -> Result<Self, String> {
        Self::run_as(Command::new(env!("CARGO_BIN_EXE_envoy-ratelimit")), folder, variables)
    }

    /// The same, with so many open files at most.
    pub fn with_files(files: usize, rules: &str, variables: &[(&str, &str)]) -> Self {
        let folder = Files::new();
        folder.write("rules.yaml", rules);
        let mut shell = Command::new("/bin/sh");
        let limited = format!("ulimit -n {files} && exec \"$0\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_envoy-ratelimit")]);
        Self::run_as(shell, folder, variables).unwrap_or_else(|why| panic!("not started: {why}"))
    }

    fn run_as(
        mut command: Command,
        folder: Files,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        command.current_dir(&*folder).env_clear().env("CONFIG", &*folder);
        command.env("LISTEN", "127.0.0.1:0").env("HTTP", "127.0.0.1:0");
        let (process, [grpc, http]) = Process::listening(command.envs(variables.iter().copied()))?;
        Ok(Self { process, grpc, http, folder })
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        request(self.http, "GET", path, "")
    }

    pub fn json(&self, body: &str) -> (u16, String) {
        request(self.http, "POST", "/json", body)
    }

    /// The value of a line of `/metrics`; 0 if there is none.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.get("/metrics").1;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect(series))
    }
}

/// One request over a connection of its own: the status and the body.
pub fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, _, body) = exchange(address, method, path, &[], body);
    (status, body)
}

/// The same, with headers: the status, the lines of the head, and the body.
pub fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status: {answer}")),
        head.to_ascii_lowercase(),
        body.to_owned(),
    )
}
