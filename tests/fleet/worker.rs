//! A process that charges a fleet of servers, and writes down each answer.
//!
//! Each key is charged under a bucket and a counter in one call. The counter never fills, so what
//! it holds in the end is what the servers kept. The bucket is what must not go over.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, Redis};

use support::faults::{MILLION, eventually};

const PROCESSES: usize = 4;

/// The tasks of a process that nobody asks: those of its connections.
const MOST_TASKS: usize = 16;

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

/// How much each process asks.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: u64,
    /// The longest pause of a task between two charges. The shortest is a fifth of it.
    pub(crate) pause_ms: u64,
}

impl Load {
    pub(crate) const BUSY: Self = Self { tasks: 64, pause_ms: 25 };
}

/// A process that was started.
pub(crate) struct Process {
    child: Child,
    trace: PathBuf,
}

impl Process {
    /// Starts all processes, and waits until they charge.
    pub(crate) fn start_all(url: &str, seconds: u64, load: Load) -> Vec<Self> {
        let start = |number| Self::start(number, url, seconds, load);
        let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
        processes.iter_mut().for_each(Self::until_ready);
        processes
    }

    fn start(number: usize, url: &str, seconds: u64, load: Load) -> Self {
        let name = format!("fleet-{}-{number}.trace", std::process::id());
        let trace = support::scratch().join(name);
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["process", "--exact", "--nocapture", "--quiet"])
            .env("FLEET_URL", url)
            .env("FLEET_TRACE", &trace)
            .env("FLEET_SECONDS", seconds.to_string())
            .env("FLEET_TASKS", load.tasks.to_string())
            .env("FLEET_PAUSE_MS", load.pause_ms.to_string())
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

    /// Its number in the system.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
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
    let number = |name| var(name).parse().expect("a number");
    let load = Load { tasks: number("FLEET_TASKS"), pause_ms: number("FLEET_PAUSE_MS") };
    let trace = BufWriter::new(File::create(var("FLEET_TRACE")).expect("a file"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let time = Duration::from_secs(number("FLEET_SECONDS"));
    runtime.expect("a runtime").block_on(charge(&url, time, load, trace));
}

fn write(trace: &mut impl Write, answer: Answer) {
    let Answer { key, at, kind } = answer;
    let (kind, decided) = match kind {
        Kind::Admitted(decided) => ("admitted", decided),
        Kind::Refused => ("refused", 0),
        Kind::Infrastructure => ("infrastructure", 0),
        Kind::Saturation => ("saturation", 0),
        Kind::Other => ("other", 0),
    };
    writeln!(trace, "{key} {at} {kind} {decided}").expect("written");
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

/// Each answer is written as it comes, so that an hour of them takes no memory.
async fn charge(url: &str, time: Duration, load: Load, trace: BufWriter<File>) {
    let pool = Pool::connect(url).expect("an address");
    let bucket = TokenBucket::new(Quota::per_second(RATE).burst(BURST));
    let bucket = Redis::new("bucket", bucket, pool.clone());
    let both = |charge: &Charge| [charge.clone(), charge.clone()];
    let limiter = AllAtOnce::new((bucket, counter(pool)), both);
    // The first connections are there before anything is counted.
    eventually("a first decision", async || limiter.peek("begin").await.is_ok()).await;
    println!("ready");
    std::io::stdout().flush().expect("said");
    let (trace, end) = (Arc::new(Mutex::new(trace)), Instant::now() + time);
    let mut tasks = JoinSet::new();
    for task in 0..load.tasks {
        let (limiter, trace) = (limiter.clone(), Arc::clone(&trace));
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task ^ u64::from(std::process::id()));
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
                let answer = Answer { key: number, at: now(), kind };
                write(&mut *trace.lock().expect("no panic"), answer);
                let pause = random.u64(load.pause_ms / 5..load.pause_ms);
                sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    tasks.join_all().await;
    let left = Handle::current().metrics().num_alive_tasks();
    assert!(left <= MOST_TASKS, "{left} tasks are left");
    trace.lock().expect("no panic").flush().expect("written");
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}
