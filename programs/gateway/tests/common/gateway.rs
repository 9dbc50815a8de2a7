//! The built gateway as a process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use support::files::Files;
use support::process::Process;
use support::until;

use super::{Answer, TOKEN, client};

/// A running gateway, ended when it is dropped.
pub struct Gateway {
    pub process: Process,
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub folder: Files,
}

impl Gateway {
    /// One in memory with these policies and the token of the tests.
    pub fn with_policies(policies: &str) -> Self {
        Self::start(policies, &[])
    }

    /// The same, with further variables.
    pub fn start(policies: &str, variables: &[(&str, &str)]) -> Self {
        let folder = Files::new();
        let file = folder.write("policies.toml", policies);
        let mut all = vec![("POLICIES", &*file), ("ADMIN_TOKEN", TOKEN)];
        all.extend(variables);
        Self::run(folder, &all).unwrap_or_else(|stderr| panic!("it did not start: {stderr}"))
    }

    /// One with these variables alone. Returns what it wrote to stderr if it does not start.
    pub fn run(folder: Files, variables: &[(&str, &str)]) -> Result<Self, String> {
        Self::run_as(Command::new(env!("CARGO_BIN_EXE_gateway")), folder, variables)
    }

    /// The same, with so many open files at most.
    pub fn run_with_files(
        files: usize,
        folder: Files,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut shell = Command::new("/bin/sh");
        let limited = format!("ulimit -n {files} && exec \"$0\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_gateway")]);
        Self::run_as(shell, folder, variables)
    }

    fn run_as(
        mut command: Command,
        folder: Files,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        command.current_dir(&*folder).env_clear();
        command.env("LISTEN", "127.0.0.1:0").env("ADMIN", "127.0.0.1:0");
        let (process, [listen, admin]) =
            Process::listening(command.envs(variables.iter().copied()))?;
        Ok(Self { process, listen, admin, folder })
    }

    /// Its policy file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("policies.toml")
    }

    /// Writes its policy file in place.
    pub fn rewrite(&self, policies: &str) {
        self.folder.write("policies.toml", policies);
    }

    /// Renames another file over its policy file.
    pub fn replace(&self, policies: &str) {
        let other = self.folder.write("new.toml", policies);
        std::fs::rename(other, self.file()).expect("renamed");
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

    /// Waits until `path` of the admin port answers with `status`.
    pub fn until_health(&self, status: u16) {
        until(&format!("health {status}"), || self.health().status == status);
    }
}
