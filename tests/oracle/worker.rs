//! A worker: one process, many tasks, one workload; it writes down every call.

use std::future::Future;
use std::io::stdin;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tower_sluice::algorithm::Algorithm;
use tower_sluice::{Charge, Decision, Limiter, Outcome, Pool, Quota, Redis};

use crate::support::Server;
use crate::trace::{self, Row};

/// Longer than any machine needs: speed decides nothing here.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// All tasks ask for two keys without pause.
    Saturating,
    /// A task with a key of its own asks within 2 ms of each instant that it was told.
    Sparse,
    /// All tasks ask for two keys, on and off.
    Bursty,
    /// A task with a key of its own asks for all costs, waits, peeks, and gives back.
    Mixed,
}

impl Workload {
    pub const ALL: [Workload; 4] =
        [Workload::Saturating, Workload::Sparse, Workload::Bursty, Workload::Mixed];

    pub fn name(self) -> &'static str {
        match self {
            Workload::Saturating => "saturating",
            Workload::Sparse => "sparse",
            Workload::Bursty => "bursty",
            Workload::Mixed => "mixed",
        }
    }

    pub fn quota(self) -> Quota {
        match self {
            // Periods that their limit does not divide, and so little that a slow machine exhausts it too.
            Workload::Saturating => Quota::new(140, Duration::from_millis(110)),
            Workload::Sparse => Quota::new(20, Duration::from_millis(100)),
            Workload::Bursty => Quota::new(70, Duration::from_millis(110)),
            Workload::Mixed => Quota::new(7, Duration::from_millis(10)),
        }
    }
}

/// Who a worker is, as it is told through its environment.
pub struct Role {
    pub algorithm: String,
    pub workload: Workload,
    pub url: String,
    pub process: usize,
    pub tasks: usize,
    pub millis: usize,
}

impl Role {
    pub fn quota(&self) -> Quota {
        self.workload.quota()
    }

    pub fn to_env(&self, command: &mut Command) {
        let Self { algorithm, workload, url, process, tasks, millis } = self;
        let workload = workload.name();
        command
            .env("ORACLE_ROLE", format!("{algorithm} {workload} {url} {process} {tasks} {millis}"));
    }

    pub fn from_env() -> Option<Self> {
        let role = std::env::var("ORACLE_ROLE").ok()?;
        let words: Vec<_> = role.split(' ').collect();
        let [algorithm, workload, url, process, tasks, millis] = words[..] else { return None };
        let workload = Workload::ALL.into_iter().find(|known| known.name() == workload)?;
        Some(Self {
            algorithm: algorithm.to_owned(),
            workload,
            url: url.to_owned(),
            process: process.parse().ok()?,
            tasks: tasks.parse().ok()?,
            millis: millis.parse().ok()?,
        })
    }

    pub fn file(&self) -> PathBuf {
        let port = self.url.rsplit(':').next().expect("a port");
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{port}-{}", self.process))
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().expect("a runtime").block_on(future)
}

/// Works until the time is up, and writes the trace.
pub fn work<A: Algorithm>(algorithm: A, role: Role) {
    block_on(async {
        let pool = Pool::connect(&role.url).expect("an address");
        let limiter = Redis::new("oracle", algorithm, pool).deadline(DEADLINE);
        limiter.check(&Charge::new("warm").cost(0)).await.expect("a first decision");
        println!("ready");
        stdin().read_line(&mut String::new()).expect("the word");

        let end = Instant::now() + Duration::from_millis(role.millis as u64);
        let tasks: Vec<_> = (0..role.tasks)
            .map(|task| {
                let number = role.process * role.tasks + task;
                let own = matches!(role.workload, Workload::Sparse | Workload::Mixed);
                let asker = Asker {
                    limiter: limiter.clone(),
                    key: if own { number } else { number % 2 },
                    task: number,
                    dice: Dice(number as u64 * 0x9E37_79B9 + 1),
                    quota: role.quota(),
                    rows: Vec::new(),
                };
                tokio::spawn(asker.run(role.workload, end))
            })
            .collect();
        let mut rows = Vec::new();
        for task in tasks {
            rows.extend(task.await.expect("a task"));
        }
        trace::write(&role.file(), &rows);
    });
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Asker<A: Algorithm> {
    limiter: Redis<A>,
    key: usize,
    task: usize,
    dice: Dice,
    quota: Quota,
    rows: Vec<Row>,
}

impl<A: Algorithm> Asker<A> {
    async fn run(mut self, workload: Workload, end: Instant) -> Vec<Row> {
        while Instant::now() < end {
            match workload {
                Workload::Saturating => {
                    let (cost, patience) = (1 + self.dice.below(3), self.dice.below(2) * 5_000);
                    self.ask(cost, patience).await;
                }
                Workload::Sparse => self.sparse().await,
                Workload::Bursty => {
                    for _ in 0..1 + self.dice.below(20) {
                        let (cost, patience) =
                            (1 + self.dice.below(3), self.dice.below(3) * 10_000);
                        self.ask(cost, patience).await;
                    }
                    // Gaps with an exponential tail.
                    let gap = (0..12).find(|_| self.dice.below(2) == 0).unwrap_or(12);
                    tokio::time::sleep(Duration::from_millis(1 << gap.min(7))).await;
                }
                Workload::Mixed => self.mixed().await,
            }
        }
        self.rows
    }

    /// Exhausts the key, then asks within 2 ms of the instants that matter.
    async fn sparse(&mut self) {
        let row = loop {
            self.ask(1, 0).await;
            match self.rows.last().expect("asked") {
                row if row.wait > 0 || row.outcome == trace::Outcome::Failed => break *row,
                _ => {}
            }
        };
        let target = if self.dice.below(3) == 0 { row.reset_after } else { row.wait };
        let offset = self.dice.below(5) as i64 * 1_000 - 2_000;
        let pause = Duration::from_micros((target + offset).max(0) as u64);
        tokio::time::sleep(pause.saturating_sub(Duration::from_millis(1))).await;
        let cost = 1 + self.dice.below(2);
        self.ask(cost, 0).await;
        self.ask(0, 0).await;
    }

    async fn mixed(&mut self) {
        let capacity = self.quota.capacity();
        let cost = match self.dice.below(8) {
            0 => 0,
            1 => capacity + 1,
            2 => capacity,
            _ => 1 + self.dice.below(capacity),
        };
        let patience = self.dice.below(4) * 10_000;
        let booking = self.ask(cost, patience).await.and_then(|mut decision| decision.booking());
        let Some(booking) = booking else { return };
        let decided = *self.rows.last().expect("asked");
        if self.dice.below(2) == 0 {
            return;
        }
        if self.dice.below(2) == 0 {
            // Something in between, after which a refund may no longer be safe.
            self.ask(1, 0).await;
        }
        let sent = clock();
        let units = self.limiter.give_back(booking).await.expect("given back");
        self.rows.push(Row {
            outcome: trace::Outcome::Refunded,
            cost: units as i64,
            sent,
            received: clock(),
            ..decided
        });
    }

    async fn ask(&mut self, cost: u64, patience: u64) -> Option<Decision> {
        let charge = Charge::new(format!("key {}", self.key))
            .cost(cost)
            .max_wait(Duration::from_micros(patience));
        let sent = clock();
        let answer = self.limiter.check(&charge).await;
        let mut row = Row {
            outcome: trace::Outcome::Failed,
            key: self.key as i64,
            task: self.task as i64,
            cost: cost as i64,
            patience: patience as i64,
            wait: 0,
            now: 0,
            place: 0,
            remaining: 0,
            reset_after: 0,
            sent,
            received: clock(),
        };
        if let Ok(decision) = &answer {
            (row.outcome, row.wait) = match decision.outcome() {
                Outcome::Allow => (trace::Outcome::Allowed, 0),
                Outcome::Wait(wait) => (trace::Outcome::Waited, micros(wait)),
                Outcome::Deny { retry_after: Some(wait) } => (trace::Outcome::Denied, micros(wait)),
                Outcome::Deny { retry_after: None } => (trace::Outcome::Never, 0),
                other => panic!("no algorithm answers {other:?}"),
            };
            row.now = micros(decision.decided_at().expect("told"));
            row.place = decision.place().into();
            row.remaining = decision.remaining().expect("told") as i64;
            row.reset_after = micros(decision.reset_after().expect("told"));
        }
        self.rows.push(row);
        answer.ok()
    }
}

fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

/// This host's clock, which is the server's too.
fn clock() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970"))
}

/// How often the server wrote, by its own count.
pub fn written(server: &Server) -> u64 {
    block_on(async {
        let mut connection = server.connection().await;
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await
            .expect("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
        line.map_or(0, |line| line.split(',').next().expect("a count").parse().expect("a count"))
    })
}

/// After a refusal with wait w: refused at w - 1 us, admitted at w. Returns how many of `probes` were exact.
pub fn probe<A: Algorithm>(new: fn(Quota) -> A, url: &str, probes: usize) -> usize {
    block_on(async {
        let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
        let clock = Arc::clone(&now);
        let limiter =
            Redis::new("probe", new(Quota::per_second(1)), Pool::connect(url).expect("an address"))
                .deadline(DEADLINE)
                .clock(move || Duration::from_micros(clock.load(Relaxed)));
        let mut dice = Dice(0x2545_F491_4F6C_DD1D);
        let mut exact = 0;
        for probe in 0..probes {
            let limit = 1 + dice.below(50);
            // Slower than the probe, or it would never be refused.
            let quota = Quota::new(limit, Duration::from_micros(10_000 + dice.below(1_000_000)));
            let cost = 1 + dice.below(limit);
            let charge = Charge::new(format!("probe {probe}")).quota(quota).cost(cost);
            let wait = loop {
                now.fetch_add(dice.below(100), Relaxed);
                let decision = limiter.check(&charge).await.expect("decided");
                if let Some(wait) = decision.retry_after() {
                    break micros(wait) as u64;
                }
            };
            now.fetch_add(wait - 1, Relaxed);
            let early = limiter.check(&charge).await.expect("decided").is_admitted();
            now.fetch_add(1, Relaxed);
            let due = limiter.check(&charge).await.expect("decided").is_admitted();
            exact += usize::from(due && !early);
        }
        exact
    })
}
