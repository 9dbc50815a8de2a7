//! Faults of the network, by a proxy between the crate and each server: connections that are cut,
//! silence, delays.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_sluice::{Charge, Decision, Error, Limiter, Pool};

use support::faults::Yearly;
use support::proxy::{Fault, Proxy};

use crate::access::{Form, LONG, is_of_network};
use crate::check::Shared;
use crate::faults::{Done, Stop, counting, promise, run, settled, taken};
use crate::table::Row;

/// A proxy before each server that the crate connects to.
#[derive(Clone, Default)]
struct Proxies(Arc<Mutex<HashMap<(String, u16), Proxy>>>);

impl Proxies {
    async fn dial(self, host: String, port: u16) -> io::Result<TcpStream> {
        let own = {
            let mut proxies = self.0.lock().await;
            let address = (host.clone(), port);
            if !proxies.contains_key(&address) {
                let fault = proxies.values().next().map_or(Fault::None, Proxy::fault);
                let proxy = Proxy::before_host(host, port).await;
                proxy.set(fault);
                proxies.insert(address.clone(), proxy);
            }
            proxies[&address].port()
        };
        let stream = TcpStream::connect(("127.0.0.1", own)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn set(&self, fault: Fault) {
        self.0.lock().await.values().for_each(|proxy| proxy.set(fault));
    }
}

/// What a check of the network has: a limiter through proxies, and one past them.
struct Way {
    proxies: Proxies,
    through: Yearly,
    past: Yearly,
    /// A deadline that this server meets, unless something is wrong.
    deadline: Duration,
}

impl Way {
    async fn new(proof: &Shared, name: &str, pool: &Pool) -> Result<Self, Stop> {
        let proxies = Proxies::default();
        let dialer = proxies.clone();
        let builder = proof.access.builder().map_err(Stop::NotChecked)?;
        let dialed = builder.dial(move |host, port| dialer.clone().dial(host, port)).build();
        let dialed = dialed?.prefix(proof.prefix_of(name));
        let deadline = Duration::from_millis(100) + 5 * proof.met.round_trip;
        let through = counting(proof, &dialed).decision_timeout(deadline);
        let way = Self { proxies, through, past: counting(proof, pool), deadline };
        way.until_decided().await?;
        Ok(way)
    }

    async fn ask(&self) -> Result<Decision, Error> {
        self.through.check(&Charge::new("key")).await
    }

    /// Asks until it is decided. Returns how many were admitted, and how many errors came before.
    async fn until_decided(&self) -> Result<(u64, u64), Stop> {
        let (begun, mut errors) = (Instant::now(), 0);
        loop {
            match self.ask().await {
                Ok(_) => return Ok((1, errors)),
                Err(error) if is_of_network(error.kind()) => errors += 1,
                Err(error) => return Err(error.into()),
            }
            promise(begun.elapsed() < LONG, || String::from("it never decides again"))?;
            sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) async fn all(proof: &Shared) {
    let checks =
        ["connections are cut", "the server is silent", "answers are late", "a bad network"];
    let why = match proof.access.form {
        Form::Socket => Some("a Unix socket: the proxy is one of TCP"),
        _ if proof.access.uses_tls => Some("TLS: the proxy has no certificate"),
        _ => None,
    };
    if let Some(why) = why {
        return checks.into_iter().for_each(|name| proof.add(Row::not_checked(name, why)));
    }
    run(proof, checks[0], cuts).await;
    run(proof, checks[1], silence).await;
    run(proof, checks[2], delays).await;
    run(proof, checks[3], bad_networks).await;
}

/// Calls over connections that are reset while calls are on their way.
async fn cuts(proof: Shared, pool: Pool) -> Done {
    let way = Arc::new(Way::new(&proof, "connections are cut", &pool).await?);
    let before = taken(&way.past).await?;
    let (mut admitted, mut errors, mut cuts) = (0, 0, 0);
    let end = Instant::now() + proof.options.share(3);
    while cuts < 50 && (cuts < 5 || Instant::now() < end) {
        way.proxies.set(Fault::ResetNext).await;
        cuts += 1;
        let mut calls = JoinSet::new();
        for _ in 0..10 {
            let way = Arc::clone(&way);
            calls.spawn(async move { way.ask().await });
        }
        for answer in calls.join_all().await {
            match answer {
                Ok(_) => admitted += 1,
                Err(error) => {
                    promise(is_of_network(error.kind()), || format!("{error:#}"))?;
                    errors += 1;
                }
            }
        }
        way.proxies.set(Fault::None).await;
        let (more, failed) = way.until_decided().await?;
        (admitted, errors) = (admitted + more, errors + failed);
    }
    let taken = settled(&way.past, before + admitted).await? - before;
    promise(taken >= admitted && taken <= admitted + errors, || {
        format!("{taken} units are taken: {admitted} were admitted, with {errors} errors")
    })?;
    Ok(format!(
        "{cuts} cuts: {admitted} admitted, {errors} errors, {taken} units taken, none twice"
    ))
}

/// Calls that nobody answers.
async fn silence(proof: Shared, pool: Pool) -> Done {
    let way = Way::new(&proof, "the server is silent", &pool).await?;
    let mut longest = Duration::ZERO;
    for fault in [Fault::BlackHole, Fault::Hold] {
        way.proxies.set(fault).await;
        for _ in 0..5 {
            let begun = Instant::now();
            let answer = way.ask().await;
            longest = longest.max(begun.elapsed());
            let is_error = answer.as_ref().is_err_and(|error| is_of_network(error.kind()));
            promise(is_error, || format!("it is decided without an answer: {answer:?}"))?;
        }
        way.proxies.set(Fault::None).await;
        way.until_decided().await?;
    }
    let deadline = way.deadline;
    promise(longest < deadline + Duration::from_secs(2), || {
        format!("an error came after {longest:?}, with a deadline of {deadline:?}")
    })?;
    let [longest, deadline] = [longest, deadline].map(|time| time.as_millis());
    Ok(format!("10 errors within {longest} ms of {deadline} ms; then decided again"))
}

/// Answers that come in time although they are slow, and answers that are too late.
async fn delays(proof: Shared, pool: Pool) -> Done {
    let way = Way::new(&proof, "answers are late", &pool).await?;
    way.proxies.set(Fault::Delay(Duration::from_millis(20))).await;
    let patient = way.through.clone().decision_timeout(LONG);
    for _ in 0..10 {
        let _ = patient.check(&Charge::new("key")).await?;
    }
    let before = taken(&way.past).await?;
    way.proxies.set(Fault::Delay(2 * way.deadline)).await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let limiter = way.through.clone();
        calls.spawn(async move { limiter.check(&Charge::new("key")).await });
    }
    for answer in calls.join_all().await {
        let is_error = answer.as_ref().is_err_and(|error| is_of_network(error.kind()));
        promise(is_error, || format!("it is decided without an answer: {answer:?}"))?;
    }
    way.proxies.set(Fault::None).await;
    let (admitted, errors) = way.until_decided().await?;
    let taken = settled(&way.past, before + admitted).await?;
    promise((before + admitted..=before + admitted + errors + 20).contains(&taken), || {
        format!("{} units are taken, and {admitted} was admitted", taken - before)
    })?;
    let kept = taken - before - admitted;
    Ok(format!("10 slow ones decided; of 20 late ones {} units came back", 20 - kept.min(20)))
}

/// Each other fault of the network, and the recovery.
async fn bad_networks(proof: Shared, pool: Pool) -> Done {
    let way = Way::new(&proof, "a bad network", &pool).await?;
    let faults = [
        Fault::Trickle(LONG),
        Fault::CutAfter(0),
        Fault::CutAfter(12),
        Fault::Reset,
        Fault::HalfClose,
    ];
    for fault in faults {
        way.proxies.set(fault).await;
        for _ in 0..5 {
            let answer = way.ask().await;
            let is_error = answer.as_ref().is_err_and(|error| is_of_network(error.kind()));
            promise(is_error, || format!("{fault:?}: {answer:?}"))?;
        }
        way.proxies.set(Fault::None).await;
        way.until_decided().await?;
    }
    Ok(format!("{} kinds: errors of the network only, then decided again", faults.len()))
}
