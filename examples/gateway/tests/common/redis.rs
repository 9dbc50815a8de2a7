//! A `redis-server` of the test's own.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::folder;

/// A running server, ended when it is dropped.
pub struct Redis {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Redis {
    pub fn start() -> Self {
        let folder = folder();
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(port, &folder) {
                return Self { child, port, folder };
            }
        }
        panic!("no redis-server came up on any of 20 free ports");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Starts it again on the same port, after `kill`.
    pub fn restart(&mut self) {
        super::until("redis-server comes back on its port", || {
            spawn(self.port, &self.folder).map(|child| self.child = child).is_some()
        });
    }

    /// Sends it a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("the kill command").success(), "signalled");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn spawn(port: u16, folder: &PathBuf) -> Option<Child> {
    let program = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let mut child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .arg("--dir")
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server: run ./check.sh, which installs it");
    let mut log = BufReader::new(child.stdout.take().expect("its log"));
    let mut line = String::new();
    while !line.contains("Ready to accept connections") {
        line.clear();
        if log.read_line(&mut line).is_ok_and(|read| read == 0) {
            child.wait().expect("ended");
            return None;
        }
    }
    // Its log is read on, or it would stop at a full pipe.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Some(child)
}
