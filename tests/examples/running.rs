//! An example as a process that listens on a port of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A running example, ended when it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped());
        Self(command.spawn().expect("the example is built"))
    }

    /// Returns the address at which it listens, once it does.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let out = BufReader::new(self.0.stdout.take().expect("its output"));
        let line = out.lines().next().expect("a line").expect("a text");
        line.rsplit('/').next().expect("an address").parse().expect("an address")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
