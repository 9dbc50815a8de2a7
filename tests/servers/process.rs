//! A program as a process of the test's own, and what Linux counts of a process.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{PATIENCE, until};

/// A process, killed when it is dropped. A test that fails shows what it wrote to stderr.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Mutex<Receiver<String>>,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts it. Both its outputs are read to the end, or it would stop at a full pipe.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (sender, lines) = mpsc::channel();
        follow(child.stdout.take().expect("a pipe"), move |line| _ = sender.send(line));
        let stderr = Arc::<Mutex<String>>::default();
        let text = Arc::clone(&stderr);
        let keep = move |line: String| text.lock().unwrap().push_str(&line);
        let reader = Some(follow(child.stderr.take().expect("a pipe"), keep));
        Ok(Self { child, lines: Mutex::new(lines), stderr, reader })
    }

    /// Starts a server that says in one line at which addresses it listens. Returns what it wrote
    /// to stderr if it fails instead.
    pub fn listening<const N: usize>(
        command: &mut Command,
    ) -> Result<(Self, [SocketAddr; N]), String> {
        let mut this = Self::start(command).expect("a process");
        let Some(line) = this.says("://") else {
            assert!(!this.wait().success(), "it ended well");
            return Err(this.stderr());
        };
        let address = |rest: &str| rest.split([',', '\n']).next()?.parse().ok();
        let addresses: Vec<_> = line.split("://").skip(1).filter_map(address).collect();
        Ok((this, addresses.try_into().expect("its addresses")))
    }

    /// Writes a line to its stdin, if that is a pipe.
    pub fn tell(&mut self, line: &str) {
        let orders = self.child.stdin.as_mut().expect("a pipe");
        writeln!(orders, "{line}").expect("it listens");
    }

    /// The lines of its stdout until one is `last`, or until it ends.
    pub fn lines_until(&self, last: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let lines = lines.iter().map(|line| line.trim_end().to_owned());
        lines.take_while(|line| line != last).collect()
    }

    /// Waits for a line of its stdout that contains `word`. `None` if it closes stdout before.
    pub fn says(&self, word: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(word) => return Some(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("never said: {word}"),
            }
        }
    }

    /// What it has written to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Its number in the system.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Returns its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a status")
    }

    /// Waits until it ends by itself. Then its stderr is complete.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.ended();
            status.is_some()
        });
        self.reader.take().map(JoinHandle::join);
        status.expect("ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            self.reader.take().map(JoinHandle::join);
            eprint!("{}", self.stderr());
        }
    }
}

/// Hands over each line of a pipe.
fn follow(
    pipe: impl Read + Send + 'static,
    mut keep: impl FnMut(String) + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            keep(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    })
}

/// A command that runs an ignored test of this very binary, with a pipe to its stdin.
pub fn of_this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([test, "--exact", "--ignored", "--nocapture", "--quiet"]).stdin(Stdio::piped());
    command
}

/// In such a process: awaits a line of stdin. If none can come any more, it ends.
pub async fn told() {
    let heard = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).expect("a pipe")
    });
    if heard.await.expect("heard") == 0 {
        std::process::exit(0);
    }
}

/// Sends a process a signal by name.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
    assert!(status.expect("the kill command").success(), "signalled");
}

/// The bytes of memory that a process has.
pub fn memory(process: u32) -> u64 {
    bytes(process, "VmRSS:")
}

/// The most bytes of memory that a process had.
pub fn peak_memory(process: u32) -> u64 {
    bytes(process, "VmHWM:")
}

fn bytes(process: u32, name: &str) -> u64 {
    let status = read(process, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// The number of files that a process has open.
pub fn open_files(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).expect("a process").count()
}

/// The processor time that a process has used, threads that have ended included.
pub fn processor_time(process: u32) -> Duration {
    let stat = read(process, "stat");
    let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
    // In hundredths of a second: those of the program, and those of the system for it.
    let ticks = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

fn read(process: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{name}")).expect("a running process")
}
