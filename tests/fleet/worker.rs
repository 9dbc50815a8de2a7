//! A process that charges a fleet of servers, and writes down each answer.
//!
//! Each key is charged under a bucket and a counter in one call. The counter never fills, so what
//! it holds in the end is what the servers kept. The bucket is what must not go over.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::limiter::AllAtOnce;
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, Redis};

use support::faults::{MILLION, eventually};

const PROCESSES: usize = 4;
const TASKS: usize = 64;
pub(crate) const KEYS: usize = 300;

/// Units per second of each key, and as many at once.
pub(crate) const RATE: u64 = 8;
pub(crate) const BURST: u64 = 16;

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) key: usize,
    /// The instant at which it came, in µs since the Unix epoch.
    pub(crate) at: u64,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Admitted by the server at this instant, in µs since the Unix epoch.
    Admitted(u64),
    Refused,
    Infrastructure,
    Saturation,
    Other,
}

pub(crate) fn key(number: usize) -> String {
    format!("fleet-{number}")
}

pub(crate) fn counter(pool: Pool) -> Redis<FixedWindow> {
    let year = Duration::from_secs(365 * 86_400);
    Redis::new("counter", FixedWindow::new(Quota::new(MILLION * MILLION, year)), pool)
}

/// A process that was started.
pub(crate) struct Process {
    child: Child,
    trace: PathBuf,
}

impl Process {
    /// Starts all processes, and waits until they charge.
    pub(crate) fn start_all(url: &str, seconds: u64) -> Vec<Self> {
        let start = |number| Self::start(number, url, seconds);
        let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
        processes.iter_mut().for_each(Self::until_ready);
        processes
    }

    fn start(number: usize, url: &str, seconds: u64) -> Self {
        let name = format!("fleet-{}-{number}.trace", std::process::id());
        let trace = support::scratch().join(name);
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["process", "--exact", "--nocapture", "--quiet"])
            .env("FLEET_URL", url)
            .env("FLEET_TRACE", &trace)
            .env("FLEET_SECONDS", seconds.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        Self { child, trace }
    }

    /// Waits until it charges.
    fn until_ready(&mut self) {
        let said = BufReader::new(self.child.stdout.as_mut().expect("a pipe"));
        assert!(said.lines().map_while(Result::ok).any(|line| line == "ready"), "it ended early");
    }

    /// Its answers, once it has ended.
    pub(crate) fn finish(mut self) -> Vec<Answer> {
        let _ = std::io::copy(self.child.stdout.as_mut().expect("a pipe"), &mut std::io::sink());
        assert!(self.child.wait().expect("a status").success(), "a process failed");
        let text = std::fs::read_to_string(&self.trace).expect("a trace");
        text.lines().map(read).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.trace);
    }
}

/// Charges until its time is over, if this process was started to do so.
pub(crate) fn run() {
    let Ok(url) = std::env::var("FLEET_URL") else { return };
    let var = |name| std::env::var(name).expect("a variable of a process");
    let seconds = Duration::from_secs(var("FLEET_SECONDS").parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answers = runtime.expect("a runtime").block_on(charge(&url, seconds));
    let mut text = String::new();
    for Answer { key, at, kind } in answers {
        let (kind, decided) = match kind {
            Kind::Admitted(decided) => ("admitted", decided),
            Kind::Refused => ("refused", 0),
            Kind::Infrastructure => ("infrastructure", 0),
            Kind::Saturation => ("saturation", 0),
            Kind::Other => ("other", 0),
        };
        writeln!(text, "{key} {at} {kind} {decided}").expect("a string takes all");
    }
    std::fs::write(var("FLEET_TRACE"), text).expect("written");
}

fn read(line: &str) -> Answer {
    let mut fields = line.split(' ');
    let mut field = || fields.next().expect("a field");
    let key = field().parse().expect("a key");
    let at = field().parse().expect("an instant");
    let (kind, decided) = (field(), field().parse().expect("an instant"));
    let kind = match kind {
        "admitted" => Kind::Admitted(decided),
        "refused" => Kind::Refused,
        "infrastructure" => Kind::Infrastructure,
        "saturation" => Kind::Saturation,
        _ => Kind::Other,
    };
    Answer { key, at, kind }
}

async fn charge(url: &str, time: Duration) -> Vec<Answer> {
    let pool = Pool::connect(url).expect("an address");
    let bucket = TokenBucket::new(Quota::per_second(RATE).burst(BURST));
    let bucket = Redis::new("bucket", bucket, pool.clone());
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let limiter = AllAtOnce::new((bucket, counter(pool)), both);
    // The first connections are there before anything is counted.
    eventually("a first decision", async || limiter.peek("begin").await.is_ok()).await;
    println!("ready");
    std::io::stdout().flush().expect("said");
    let (answers, end) = (Arc::new(Mutex::new(Vec::new())), Instant::now() + time);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, answers) = (limiter.clone(), Arc::clone(&answers));
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task as u64 ^ u64::from(std::process::id()));
            while Instant::now() < end {
                let number = random.usize(..KEYS);
                let decision = limiter.check(&Charge::new(key(number))).await;
                let kind = match decision {
                    Ok(decision) if decision.is_admitted() => {
                        let decided = decision.decided_at().expect("the server's clock");
                        Kind::Admitted(decided.as_micros() as u64)
                    }
                    Ok(_) => Kind::Refused,
                    Err(error) => match error.kind() {
                        tower_sluice::ErrorKind::Infrastructure => Kind::Infrastructure,
                        tower_sluice::ErrorKind::Saturation => Kind::Saturation,
                        _ => {
                            eprintln!("{error:?}");
                            Kind::Other
                        }
                    },
                };
                answers.lock().expect("no panic").push(Answer { key: number, at: now(), kind });
                sleep(Duration::from_millis(random.u64(5..25))).await;
            }
        });
    }
    tasks.join_all().await;
    Arc::into_inner(answers).expect("all have ended").into_inner().expect("no panic")
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}
