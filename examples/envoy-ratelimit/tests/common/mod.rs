//! Helpers that the tests share: the built service as a process, and its clients.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod ask;
pub mod peer;
#[path = "../../../gateway/tests/common/redis.rs"]
pub mod redis;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes that is not promised to be quick, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of the test's own, empty.
pub fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("envoy-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Waits until `happened`, and fails with `what` if it never does.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A running service, ended when it is dropped.
pub struct Service {
    child: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub folder: PathBuf,
    stderr: Arc<Mutex<String>>,
}

impl Service {
    /// One whose folder holds these rules.
    pub fn start(rules: &str, variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        std::fs::write(folder.join("rules.yaml"), rules).expect("rules");
        Self::run(folder, variables).unwrap_or_else(|why| panic!("it did not start: {why}"))
    }

    /// One whose `CONFIG` is this folder, unless a variable says otherwise. Returns what it wrote
    /// to stderr if it does not start.
    pub fn run(folder: PathBuf, variables: &[(&str, &str)]) -> Result<Self, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_envoy-ratelimit"))
            .current_dir(&folder)
            .env_clear()
            .env("LISTEN", "127.0.0.1:0")
            .env("HTTP", "127.0.0.1:0")
            .env("CONFIG", &folder)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let stderr = Arc::new(Mutex::new(String::new()));
        let (into, mut from) = (Arc::clone(&stderr), child.stderr.take().expect("stderr"));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("a line");
        let addresses: Vec<SocketAddr> = line
            .split("://")
            .skip(1)
            .filter_map(|rest| rest.split([',', '\n']).next()?.parse().ok())
            .collect();
        let [grpc, http] = addresses[..] else {
            assert!(!child.wait().expect("ended").success(), "it ended well: {line}");
            reader.join().expect("read");
            return Err(stderr.lock().unwrap().clone());
        };
        Ok(Self { child, grpc, http, folder, stderr })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Sends it a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("the kill command").success(), "signalled");
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("ended")
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

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
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
