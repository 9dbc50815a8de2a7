//! The primary that sentinels name: found, followed through failovers under load, and left for
//! good.

mod left;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::*;

use support::faults::*;
use support::sentinel::Replicated;

/// Callers that ask all the time, and what became of their calls.
struct Load {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    callers: JoinSet<()>,
}

/// The outcomes of calls.
#[derive(Clone, Default)]
struct Seen {
    admitted: u64,
    refused: u64,
    errors: BTreeMap<String, u64>,
    decided: Vec<Instant>,
}

impl Load {
    fn on(limiter: &Yearly, callers: usize) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let ask = |limiter: Yearly| {
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            async move {
                while !stop.load(Relaxed) {
                    let answer = limiter.check(&one()).await;
                    Seen::record(&mut seen.lock().unwrap(), answer);
                    sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let callers = (0..callers).map(|_| ask(limiter.clone())).collect();
        Self { stop, seen, callers }
    }

    fn admitted(&self) -> u64 {
        self.seen.lock().unwrap().admitted
    }

    fn refused(&self) -> u64 {
        self.seen.lock().unwrap().refused
    }

    /// Returns the instant at which a call was decided first after `instant`.
    async fn decided_after(&self, instant: Instant) -> Instant {
        loop {
            let next =
                self.seen.lock().unwrap().decided.iter().find(|one| **one > instant).copied();
            if let Some(next) = next {
                return next;
            }
            assert!(instant.elapsed() < LONG, "nothing is decided");
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stop(self) -> Seen {
        self.stop.store(true, Relaxed);
        self.callers.join_all().await;
        self.seen.lock().unwrap().clone()
    }
}

impl Seen {
    fn record(&mut self, answer: Result<Decision, Error>) {
        match answer {
            Ok(decision) => {
                let count =
                    if decision.is_admitted() { &mut self.admitted } else { &mut self.refused };
                *count += 1;
                self.decided.push(Instant::now());
            }
            Err(error) => *self.errors.entry(format!("{:?}", error.kind())).or_default() += 1,
        }
    }

    fn admitted(&self) -> u64 {
        self.admitted
    }

    fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// The longest time without a decision.
    fn gap(&self) -> Duration {
        let gaps = self.decided.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }
}

/// Waits until all sentinels name the server at `port`. Returns when the first did.
async fn until_named(replicated: &Replicated, port: u16) -> Instant {
    let named = format!(" port {port} ");
    replicated.sentinels[0].until(|fields| fields.contains(&named)).await;
    let first = Instant::now();
    for sentinel in &replicated.sentinels {
        sentinel.until(|fields| fields.contains(&named)).await;
    }
    first
}

// Case 46.
#[tokio::test]
async fn a_primary_without_sentinels_decides_on() {
    let mut replicated = Replicated::start().await;
    let limiter = yearly(&replicated.url());
    until_well(&limiter).await;
    replicated.sentinels.iter_mut().for_each(Sentinel::kill);
    let patient = limiter.clone().decision_timeout(LONG);
    let mut connection = replicated.servers[0].connection().await;
    for _ in 0..3 {
        cut(&mut connection).await;
        until_well(&limiter).await;
        let (begun, mut errors) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(500) {
            errors += u64::from(patient.check(&one()).await.is_err());
            sleep(Duration::from_millis(5)).await;
        }
        assert!(errors <= 2, "{errors} errors over two connections");
        assert!(!others(&mut connection).await.is_empty(), "it is not connected");
    }
}

// Case 46.
#[tokio::test]
async fn a_killed_primary_is_replaced_and_only_lost_writes_are_admitted_twice() {
    const LIMIT: u64 = 4_000;
    let mut replicated = Replicated::start_impatient().await;
    let pool = Pool::connect(&replicated.url()).unwrap();
    let quota = Quota::new(LIMIT, Duration::from_secs(365 * 86_400));
    let counted = Redis::new("counted", FixedWindow::new(quota), pool.clone());
    let counted = counted.decision_timeout(D);
    let limiter = over(pool);
    until_well(&limiter).await;
    let (load, counting) = (Load::on(&limiter, 8), Load::on(&counted, 64));
    let half = async || counting.admitted() >= LIMIT / 2;
    eventually("half of the units are used", half).await;
    replicated.servers[0].kill();
    let killed = Instant::now();
    let admitted = counting.stop().await.admitted();
    let switched = until_named(&replicated, replicated.servers[1].port()).await;
    let back = load.decided_after(switched).await;
    // What the promoted replica has.
    let kept = loop {
        match counted.peek("key").await {
            Ok(decision) => break LIMIT - decision.remaining().expect("known"),
            Err(error) => assert!(killed.elapsed() < LONG, "{error:?}"),
        }
    };
    let lost = admitted.saturating_sub(kept);
    let (again, begun) = (Load::on(&counted, 64), Instant::now());
    while again.refused() < 100 {
        let seen = again.seen.lock().unwrap().errors.clone();
        assert!(begun.elapsed() < LONG, "never used up: {} refused, {seen:?}", again.refused());
        sleep(Duration::from_millis(1)).await;
    }
    let total = admitted + again.stop().await.admitted();
    let over = total.saturating_sub(LIMIT + lost);
    let seen = load.stop().await;
    println!(
        "sentinel case=killed gap_ms={} back_after_switch_ms={} lost={lost} over={over} errors={:?}",
        seen.gap().as_millis(),
        (back - switched).as_millis(),
        seen.errors(),
    );
    assert_eq!(over, 0);
    assert!(back - switched < Duration::from_secs(2) + SLACK, "{:?}", back - switched);
}
