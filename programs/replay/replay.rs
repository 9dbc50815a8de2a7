//! The traffic, decided line by line, each at its own time.

use std::io::{self, BufRead, BufWriter, StdoutLock, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

use tower_sluice::algorithm::{
    Algorithm, FixedWindow, InLua, SlidingCounter, SlidingLog, TokenBucket,
};
use tower_sluice::future::{Renewal, Settlement};
use tower_sluice::limiter::{BanAfter, Operation, Reservation};
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Memory, Pool, Quota, Redis,
};

use crate::options::{Name, Options};
use crate::summary::Summary;
use crate::traffic::{Line, Op, Told};
use command::Stop;

/// Replays standard input under the options' policy.
pub(crate) async fn run(options: &Options) -> Result<(), Stop> {
    options.check()?;
    let (quota, horizon) = (options.quota()?, options.horizon);
    // After this time a bucket, a window or a log is full again.
    let bucket = |ratio| {
        let units = quota.burst_size() as f64 / quota.limit().max(1) as f64;
        Duration::try_from_secs_f64(quota.period().as_secs_f64() * units * ratio)
            .unwrap_or_default()
    };
    match options.algorithm {
        Name::TokenBucket => {
            decide(options, TokenBucket::new(quota).horizon(horizon), options.max_wait(bucket))
                .await
        }
        Name::Budget => decide(options, options.budget(quota), options.max_wait(bucket)).await,
        Name::Concurrency => {
            decide(options, options.concurrency(quota), options.max_wait(bucket)).await
        }
        Name::FixedWindow => {
            decide(options, options.fixed_window(quota)?, options.max_wait(bucket)).await
        }
        Name::SlidingLog => {
            let log = SlidingLog::new(quota).horizon(horizon).max_limit(u64::MAX);
            decide(options, log, options.max_wait(bucket)).await
        }
        Name::SlidingWindow => {
            decide(options, options.sliding_window(quota), options.max_wait(bucket)).await
        }
        Name::SlidingCounter => {
            decide(options, SlidingCounter::new(quota).horizon(horizon), options.max_wait(bucket))
                .await
        }
        Name::SmoothBursty => {
            let pace = options.smooth_bursty(quota);
            decide(options, pace, options.max_wait(|ratio| pace.cache(ratio))).await
        }
        Name::Redisson => crate::redisson::run(options).await,
        Name::SmoothWarmingUp => {
            let pace = options.smooth_warming_up(quota)?;
            decide(options, pace, options.max_wait(|ratio| pace.cache(ratio))).await
        }
    }
}

/// More keys than a replay should meet: nothing is forgotten before then.
pub(crate) const KEYS: usize = 1 << 32;

async fn decide<A: InLua>(options: &Options, algorithm: A, max_wait: Duration) -> Result<(), Stop> {
    let quota = options.quota()?;
    algorithm.rule(quota).map_err(|error| Stop::Asked(format!("this quota: {error}")))?;
    let now = Arc::new(AtomicU64::new(0));
    let clock = {
        let now = Arc::clone(&now);
        move || Duration::from_micros(now.load(Relaxed))
    };
    let Some(url) = &options.redis else {
        let memory = Memory::new("replay", algorithm).max_keys(KEYS).clock(clock.clone());
        return banned(InProcess(memory), clock, now, quota, max_wait, options).await;
    };
    let redis = Redis::new(unique(), algorithm, pool(url).await?);
    let redis = redis.decision_timeout(Duration::from_secs(5)).clock(clock.clone());
    banned(redis, clock, now, quota, max_wait, options).await
}

/// Replays, and bans keys if an option says so.
async fn banned<G: Gate + Clone>(
    gate: G,
    clock: impl Fn() -> Duration + Send + Sync + 'static,
    now: Arc<AtomicU64>,
    quota: Quota,
    max_wait: Duration,
    options: &Options,
) -> Result<(), Stop> {
    let Some((refusals, time)) = options.ban()? else {
        return Replay::new(gate, now, quota, max_wait).run(options).await;
    };
    let count = Memory::new("refusals", FixedWindow::new(refusals).anchored());
    let count = count.max_keys(KEYS).clock(clock);
    let gate = gate.ban_after(refusals.limit(), refusals.period(), time).count_by(count);
    Replay::new(gate, now, quota, max_wait).run(options).await
}

/// Connections to the server that the options name.
pub(crate) async fn pool(url: &str) -> Result<Pool, Stop> {
    let invalid = |error| Stop::Asked(format!("--redis: {error:#}"));
    let mut builder = Pool::builder(url).map_err(invalid)?;
    if url.starts_with("rediss") || url.starts_with("valkeys") {
        // TLS needs a crypto provider, which an application chooses.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(path) = env::var_os("REDIS_CA") {
            let pem = fs::read(path).map_err(|error| Stop::Asked(format!("REDIS_CA: {error}")))?;
            builder = builder.root_certificate(pem);
        }
    }
    let pool = builder.build().map_err(invalid)?;
    pool.ready().await?;
    Ok(pool)
}

/// A name for keys that no other user of the server and no other replay has.
pub(crate) fn unique() -> String {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("replay-{}-{}", began.as_micros(), process::id())
}

/// A limiter of one algorithm.
pub(crate) trait Gate: Limiter {
    /// Releases permits, whichever line took them.
    async fn release(&self, _key: &str, _permits: u64) -> Result<u64, Error> {
        Err(Error::new(ErrorKind::Configuration, "only redisson releases"))
    }
}

/// In this process, by the algorithms that reserve waits.
#[derive(Clone)]
struct InProcess<A: Algorithm>(Memory<A>);

impl<A: Algorithm> Limiter for InProcess<A> {
    type Future = <Memory<A> as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.0.check(charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle(reservation, actual)
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        self.0.renew(reservation)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.0.operate(operation, charge)
    }
}

impl<A: Algorithm> Gate for InProcess<A> {}

impl<A: InLua> Gate for Redis<A> {}

impl<L: Limiter, C: Limiter> Gate for BanAfter<L, C> {}

pub(crate) struct Replay<G> {
    gate: G,
    now: Arc<AtomicU64>,
    quota: Quota,
    max_wait: Duration,
    /// Every line so far: the key and the quota that it charged, and what can still be refunded.
    past: Vec<Past>,
    summary: Summary,
}

struct Past {
    key: Arc<str>,
    quota: Option<Quota>,
    reservation: Option<Box<Reservation>>,
}

impl<G: Gate> Replay<G> {
    pub(crate) fn new(gate: G, now: Arc<AtomicU64>, quota: Quota, max_wait: Duration) -> Self {
        Self { gate, now, quota, max_wait, past: Vec::new(), summary: Summary::default() }
    }

    pub(crate) async fn run(mut self, options: &Options) -> Result<(), Stop> {
        let mut input = io::stdin().lock();
        let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let progress = crate::summary::progress(&input);
        let mut text = String::new();
        let ended = loop {
            text.clear();
            match input.read_line(&mut text) {
                Ok(0) => break Ok(()),
                Ok(bytes) => progress.inc(bytes as u64),
                Err(error) => break Err(self.wrong(&error.to_string())),
            }
            let told = match self.follow(text.trim_end(), options).await {
                Ok(told) => told,
                Err(stop) => break Err(stop),
            };
            if let Err(error) = write(&mut output, &told) {
                break Err(unwritten(error));
            }
        };
        progress.finish_and_clear();
        output.flush().map_err(unwritten)?;
        ended?;
        self.summary.print();
        Ok(())
    }

    /// Decides one line.
    async fn follow(&mut self, text: &str, options: &Options) -> Result<Told, Stop> {
        let line: Line<'_> =
            serde_json::from_str(text).map_err(|error| self.wrong(&error.to_string()))?;
        if line.t < self.now.load(Relaxed) && !options.allow_clock_steps {
            return Err(self.wrong("its time lies before that of the line before"));
        }
        self.now.store(line.t, Relaxed);
        // Without its operation, a settlement would be a charge.
        if line.of.is_some() && !matches!(line.op, Op::Refund | Op::Settle | Op::Renew) {
            return Err(self.wrong("\"of\" is of a refund, a settlement and a renewal"));
        }
        if line.used.is_some() && line.op != Op::Settle {
            return Err(self.wrong("\"used\" is of a settlement"));
        }
        match line.op {
            Op::Refund => return self.settle(&line, 0).await,
            Op::Settle => {
                let Some(used) = line.used else {
                    return Err(self.wrong("a settlement without \"used\""));
                };
                return self.settle(&line, used).await;
            }
            Op::Renew => return self.renew(&line).await,
            _ => {}
        }
        let time = line.time.map(Duration::from_micros);
        if time.is_some() != matches!(line.op, Op::Block | Op::Pause) {
            return Err(self.wrong("\"time\" is of a block and of a pause, and they need it"));
        }
        let time = time.unwrap_or_default();
        let Some(key) = &line.key else { return Err(self.wrong("it has no key")) };
        let key = self.summary.name(key);
        let number = self.past.len() + 1;
        let quota = match line.quota(self.quota) {
            Ok(quota) => quota,
            Err(error) => {
                self.past.push(Past { key: Arc::clone(&key), quota: None, reservation: None });
                let told = Told::error(number, error.to_string());
                self.summary.count(&key, &told);
                return Ok(told);
            }
        };
        if let Some(reason) = foreign(&line, quota.is_some(), options.algorithm) {
            self.past.push(Past { key, quota: None, reservation: None });
            return Ok(Told::error(number, reason.to_owned()));
        }
        if line.op == Op::Release {
            let freed = self.gate.release(&key, line.cost.unwrap_or(1)).await;
            return self.given_back(key, None, freed, Told::refunded).await;
        }
        let wait = line.max_wait.map_or(self.max_wait, Duration::from_micros);
        let charge = charge(&key, quota).cost(line.cost.unwrap_or(1)).max_wait(wait);
        let charge = charge.keep_free(line.keep_free);
        let answer = match line.op {
            Op::Peek | Op::Available => self.gate.peek(charge).await,
            Op::Penalize => self.gate.penalize(charge).await.map(|done| done.0),
            Op::Grant => self.gate.grant(charge, line.cost.unwrap_or(1)).await.map(|done| done.0),
            Op::Reset => self.gate.reset(charge).await.map(|done| done.0),
            Op::Block => self.gate.block(charge, time).await.map(|done| done.0),
            Op::Pause => self.gate.pause(charge, time).await.map(|done| done.0),
            Op::Unblock => self.gate.unblock(charge).await.map(|done| done.0),
            _ => self.gate.check(&charge).await,
        };
        let (told, reservation) = match answer {
            Ok(since) if !matches!(line.op, Op::Check | Op::Peek) => {
                (Told::done(number, &since), None)
            }
            Ok(mut decision) => {
                (Told::decided(number, &decision), decision.take_reservation().map(Box::new))
            }
            Err(error) => (self.told(number, error)?, None),
        };
        if line.op == Op::Check {
            self.summary.count(&key, &told);
        }
        self.past.push(Past { key, quota, reservation });
        Ok(told)
    }

    /// Returns the place of the line before that a line is about.
    fn of(&self, line: &Line<'_>) -> Result<usize, Stop> {
        let Some(of) = line.of else { return Err(self.wrong("it has no \"of\"")) };
        let place = of.checked_sub(1).filter(|of| *of < self.past.len());
        place.ok_or_else(|| self.wrong("\"of\" names no line before it"))
    }

    async fn renew(&mut self, line: &Line<'_>) -> Result<Told, Stop> {
        let place = self.of(line)?;
        let number = self.past.len() + 1;
        let past = &mut self.past[place];
        let (key, quota) = (Arc::clone(&past.key), past.quota);
        let renewed = match past.reservation.as_mut().map(|one| self.gate.renew(one)) {
            Some(Some(renewal)) => renewal.await,
            Some(None) => Err(Error::new(ErrorKind::Request, "this algorithm holds nothing")),
            None => Ok(false),
        };
        let told = match (renewed, self.gate.check(&charge(&key, quota).cost(0)).await) {
            (Ok(is_held), Ok(since)) => Told::renewed(number, is_held, &since),
            (Err(error), _) | (_, Err(error)) => self.told(number, error)?,
        };
        self.past.push(Past { key, quota, reservation: None });
        Ok(told)
    }

    async fn settle(&mut self, line: &Line<'_>, used: u64) -> Result<Told, Stop> {
        let place = self.of(line)?;
        let past = &mut self.past[place];
        let (key, quota, reservation) =
            (Arc::clone(&past.key), past.quota, past.reservation.take());
        let units = match reservation {
            Some(reservation) => match self.gate.settle(*reservation, used) {
                Ok(settlement) => settlement.await.map(|settled| settled.given_back),
                Err(_) => Err(Error::new(ErrorKind::Request, "it cannot take more")),
            },
            None => Ok(0),
        };
        let told = if line.op == Op::Refund { Told::refunded } else { Told::settled };
        self.given_back(key, quota, units, told).await
    }

    /// Returns the line about what was refunded to a key, and its state afterwards.
    async fn given_back(
        &mut self,
        key: Arc<str>,
        quota: Option<Quota>,
        units: Result<u64, Error>,
        told: fn(usize, u64, &Decision) -> Told,
    ) -> Result<Told, Stop> {
        let number = self.past.len() + 1;
        let told = match units {
            Ok(units) => match self.gate.check(&charge(&key, quota).cost(0)).await {
                Ok(since) => told(number, units, &since),
                Err(error) => self.told(number, error)?,
            },
            Err(error) => self.told(number, error)?,
        };
        self.summary.count_refund(&told);
        self.past.push(Past { key, quota, reservation: None });
        Ok(told)
    }

    /// The output for a line that is invalid. Any other error ends the replay.
    fn told(&self, number: usize, error: Error) -> Result<Told, Stop> {
        match error.kind() {
            ErrorKind::Infrastructure | ErrorKind::Saturation | ErrorKind::Capacity => {
                Err(error.into())
            }
            _ => Ok(Told::error(number, format!("{error:#}"))),
        }
    }

    /// The error of an invalid line.
    fn wrong(&self, reason: &str) -> Stop {
        Stop::Asked(format!("line {}: {reason}", self.past.len() + 1))
    }
}

/// Returns why a line does not suit the algorithm, if it does not.
fn foreign(line: &Line<'_>, has_quota: bool, algorithm: Name) -> Option<&'static str> {
    if algorithm == Name::Concurrency && line.period.or(line.burst).is_some() {
        return Some("a limit of concurrency has no period and no burst");
    }
    match (algorithm == Name::Redisson, line.op) {
        (true, Op::Penalize) => Some("redisson takes nothing without asking"),
        (true, Op::Block | Op::Pause | Op::Unblock) => Some("redisson blocks no key"),
        (true, Op::Grant) => Some("redisson gives permits back by a release"),
        (true, _) if has_quota => Some("a limiter of redisson has a rate of its own"),
        (true, _) if line.keep_free > 0 => Some("redisson leaves no units free"),
        (true, _) if line.cost.is_some_and(|cost| u32::try_from(cost).is_err()) => {
            Some("more than 4,294,967,295 permits at once")
        }
        (false, Op::Release | Op::Available) => {
            Some("only redisson releases, and tells what is available")
        }
        _ => None,
    }
}

fn charge(key: &Arc<str>, quota: Option<Quota>) -> Charge {
    let charge = Charge::new(Arc::clone(key));
    quota.map_or(charge.clone(), |quota| charge.quota(quota))
}

fn write(output: &mut BufWriter<StdoutLock<'_>>, told: &Told) -> io::Result<()> {
    serde_json::to_writer(&mut *output, told)?;
    output.write_all(b"\n")
}

fn unwritten(error: io::Error) -> Stop {
    if error.kind() == io::ErrorKind::BrokenPipe { Stop::Unread } else { error.into() }
}
