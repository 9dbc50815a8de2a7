//! A process of this very binary that holds units of a limit of concurrency over Redis, and says
//! what it does.

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tower_sluice::Pool;

use super::storm;

use crate::*;

/// A process, which is killed when it is dropped.
pub(super) struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    /// Starts one that holds and releases for so long.
    pub(super) fn start(units: u64, max_hold: Duration, seconds: u64, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "concurrency::process::process",
                "--exact",
                "--ignored",
                "--nocapture",
                "--quiet",
            ])
            .env("HOLDS_URL", url)
            .env("HOLDS_UNITS", units.to_string())
            .env("HOLDS_MILLIS", max_hold.as_millis().to_string())
            .env("HOLDS_SECONDS", seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (orders, said) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, orders, lines: Some(BufReader::new(said).lines()) }
    }

    /// Waits until it says this line.
    pub(super) fn says(&mut self, line: &str) {
        let lines = self.lines.as_mut().expect("not taken");
        assert!(lines.map_while(Result::ok).any(|said| said == line), "it ended without {line}");
    }

    /// Takes out the lines that it writes.
    pub(super) fn lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        self.lines.take().expect("taken once")
    }

    /// Tells it to go on.
    pub(super) fn tell(&mut self) {
        writeln!(self.orders.as_mut().expect("a pipe"), "go").expect("it listens");
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("a status");
    }

    /// In a process: waits for a sign to go on. If no sign can come any more, it ends.
    pub(super) async fn told() {
        let heard = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("a pipe")
        });
        if heard.await.expect("heard") == 0 {
            std::process::exit(1);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
#[ignore = "the processes of other tests run it"]
async fn process() {
    let Ok(url) = std::env::var("HOLDS_URL") else { return };
    let number =
        |name: &str| -> u64 { std::env::var(name).expect("a variable").parse().expect("a number") };
    let max_hold = Duration::from_millis(number("HOLDS_MILLIS"));
    let pool = Pool::builder(&url).expect("an address");
    let pool = pool.connect_timeout(LONG).response_timeout(LONG).build().expect("a pool");
    let limit = Concurrency::new(number("HOLDS_UNITS")).max_hold(max_hold);
    let limiter = Redis::new("at once", limit, pool).decision_timeout(LONG);
    storm::work(limiter, max_hold, Duration::from_secs(number("HOLDS_SECONDS"))).await;
}
