//! A process of this very binary that charges a budget or a limit of concurrency over Redis, and
//! says what it does.

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tower_sluice::Pool;

use super::streams;

use crate::*;

/// The work of a process.
pub(crate) struct Role {
    pub(crate) name: &'static str,
    pub(crate) quota: Quota,
    pub(crate) max_hold: Duration,
    pub(crate) seconds: u64,
}

/// A process, which is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    pub(crate) fn start(role: &Role, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["budget::process::process", "--exact", "--ignored", "--nocapture", "--quiet"])
            .env("BUDGET_ROLE", role.name)
            .env("BUDGET_URL", url)
            .env("BUDGET_LIMIT", role.quota.limit().to_string())
            .env("BUDGET_PERIOD", role.quota.period().as_micros().to_string())
            .env("BUDGET_HOLD", role.max_hold.as_micros().to_string())
            .env("BUDGET_SECONDS", role.seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (orders, said) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, orders, lines: Some(BufReader::new(said).lines()) }
    }

    /// Waits until it says this line.
    pub(crate) fn says(&mut self, line: &str) {
        let lines = self.lines.as_mut().expect("not taken");
        assert!(lines.map_while(Result::ok).any(|said| said == line), "it ended without {line}");
    }

    /// Takes out the lines that it writes.
    pub(crate) fn lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        self.lines.take().expect("taken once")
    }

    /// Tells it to go on.
    pub(crate) fn tell(&mut self) {
        writeln!(self.orders.as_mut().expect("a pipe"), "go").expect("it listens");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("a status");
    }

    /// In a process: waits for a sign to go on. If no sign can come any more, it ends.
    pub(crate) async fn told() {
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
    let Ok(role) = std::env::var("BUDGET_ROLE") else { return };
    let number =
        |name: &str| -> u64 { std::env::var(name).expect("a variable").parse().expect("a number") };
    let micros = |name| Duration::from_micros(number(name));
    let quota = Quota::new(number("BUDGET_LIMIT"), micros("BUDGET_PERIOD"));
    let budget = Budget::new(quota).max_hold(micros("BUDGET_HOLD"));
    let url = std::env::var("BUDGET_URL").expect("a server");
    let pool = Pool::builder(&url).expect("an address");
    let pool = pool.connect_timeout(LONG).response_timeout(LONG).build().expect("a pool");
    let over = pool.clone();
    let limiter = Redis::new("tokens", budget, pool).decision_timeout(LONG);
    match &*role {
        "stream" => streams::stream(limiter).await,
        "holds" => {
            let max_hold = micros("BUDGET_HOLD");
            let limit = Concurrency::of(quota).max_hold(max_hold);
            let limiter = Redis::new("at once", limit, over).decision_timeout(LONG);
            let time = Duration::from_secs(number("BUDGET_SECONDS"));
            crate::concurrency::storm::work(limiter, max_hold, time).await;
        }
        other => panic!("no role is called {other}"),
    }
}
