//! The built gateway as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Answer, PATIENCE, TOKEN, client, folder, until};

/// A running gateway, ended when it is dropped.
pub struct Gateway {
    child: Child,
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    stderr: Arc<Mutex<String>>,
    folder: PathBuf,
}

impl Gateway {
    /// One in memory with these policies and the token of the tests.
    pub fn with_policies(policies: &str) -> Self {
        Self::start(policies, &[])
    }

    /// The same, with further variables.
    pub fn start(policies: &str, variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        let file = folder.join("policies.toml");
        std::fs::write(&file, policies).expect("a policy file");
        let file = file.to_str().expect("text");
        let mut all = vec![("POLICIES", file), ("ADMIN_TOKEN", TOKEN)];
        all.extend(variables);
        Self::run(folder.clone(), &all)
            .unwrap_or_else(|stderr| panic!("it did not start: {stderr}"))
    }

    /// One with these variables alone. Returns what it wrote to stderr if it does not start.
    pub fn run(folder: PathBuf, variables: &[(&str, &str)]) -> Result<Self, String> {
        Self::run_as(Command::new(env!("CARGO_BIN_EXE_gateway")), folder, variables)
    }

    /// The same, with so many open files at most.
    pub fn run_with_files(
        files: usize,
        folder: PathBuf,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut shell = Command::new("/bin/sh");
        let limited = format!("ulimit -n {files} && exec \"$0\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_gateway")]);
        Self::run_as(shell, folder, variables)
    }

    fn run_as(
        mut command: Command,
        folder: PathBuf,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut child = command
            .current_dir(&folder)
            .env_clear()
            .env("LISTEN", "127.0.0.1:0")
            .env("ADMIN", "127.0.0.1:0")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let stderr = Arc::new(Mutex::new(String::new()));
        let reader = follow(child.stderr.take().expect("stderr"), &stderr);
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("a line");
        // "listening on http://127.0.0.1:1, admin on http://127.0.0.1:2"
        let addresses: Vec<SocketAddr> = line
            .split("http://")
            .skip(1)
            .filter_map(|rest| rest.split([',', '\n']).next()?.parse().ok())
            .collect();
        let [listen, admin] = addresses[..] else {
            assert!(!child.wait().expect("ended").success(), "it ended well: {line}");
            reader.join().expect("read");
            return Err(stderr.lock().unwrap().clone());
        };
        Ok(Self { child, listen, admin, stderr, folder })
    }

    /// Its policy file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("policies.toml")
    }

    /// Writes its policy file in place.
    pub fn rewrite(&self, policies: &str) {
        std::fs::write(self.file(), policies).expect("written");
    }

    /// Renames another file over its policy file.
    pub fn replace(&self, policies: &str) {
        let other = self.folder.join("new.toml");
        std::fs::write(&other, policies).expect("written");
        std::fs::rename(other, self.file()).expect("renamed");
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn get(&self, path: &str) -> Answer {
        client::get(self.listen, path)
    }

    pub fn get_as(&self, key: &str, path: &str) -> Answer {
        client::request(self.listen, "GET", path, &[("x-api-key", key)], b"")
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        client::request(self.listen, method, path, headers, body)
    }

    /// Asks the admin port with the token.
    pub fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = format!("Bearer {TOKEN}");
        client::request(self.admin, method, path, &[("authorization", &token)], body.as_bytes())
    }

    pub fn health(&self) -> Answer {
        client::get(self.admin, "/health")
    }

    /// The value of a counter, over all series whose labels hold each of `labels`.
    pub fn counter(&self, name: &str, labels: &[&str]) -> u64 {
        let text = client::get(self.admin, "/metrics").text();
        let series = text.lines().filter(|line| line.starts_with(name));
        let series = series.filter(|line| labels.iter().all(|label| line.contains(label)));
        series
            .map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>().expect("a count"))
            .sum()
    }

    /// Returns what it has written to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Returns the number of files that it has open.
    pub fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).expect("a process").count()
    }

    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("the kill command").success(), "signalled");
    }

    /// The processor time that it has used.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("a running process");
        let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
        // In hundredths of a second: those of the program, and those of the system for it.
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// The bytes of memory that it has.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// Returns its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a status")
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = std::time::Instant::now();
        loop {
            match self.ended() {
                Some(status) => return status,
                None => assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.stderr()),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Waits until `path` of the admin port answers with `status`.
    pub fn until_health(&self, status: u16) {
        until(&format!("health {status}"), || self.health().status == status);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("its stderr:\n{}", self.stderr());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Keeps what a pipe says.
fn follow(
    mut pipe: impl Read + Send + 'static,
    text: &Arc<Mutex<String>>,
) -> std::thread::JoinHandle<()> {
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            text.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    })
}
