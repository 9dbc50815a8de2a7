//! A server that shows all three verdicts with nothing but curl.
//!
//! Start `cargo run --example quickstart`, and run the line that it prints. It sends ten requests
//! at once: 5 are admitted at once, 2 after 200 and 400 ms, and 3 are refused.
//!
//! | variable | default | |
//! |---|---|---|
//! | `LISTEN` | `127.0.0.1:3000` | |
//! | `REDIS_URL` | absent: in memory | an address that `Pool::connect` takes |
//! | `REDIS_CA` | absent: the system's | a PEM file with the authority for `rediss` addresses |
//! | `ALGORITHM` | `token_bucket` | see below |
//! | `LIMIT`, `PERIOD_MS` | 5, 1000 | |
//! | `BURST` | `LIMIT` | of the token bucket and the budget; the others have none |
//! | `CELLS` | 10 | of the sliding window |
//! | `WARMUP_MS` | 1000 | of smooth warming up |
//! | `MAX_WAIT_MS` | 500 | 0: never delay |
//! | `DEADLINE_MS` | 100 | for one decision in Redis; then 503 |
//!
//! `ALGORITHM` is `token_bucket`, `budget`, `concurrency`, `fixed_window`, `sliding_log`,
//! `sliding_window`, `sliding_counter`, `smooth_bursty` or `smooth_warming_up`.

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use std::{env, fs, io};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Request, Response};
use tokio::net::TcpListener;
use tower_sluice::algorithm::{
    Budget, Concurrency, FixedWindow, InLua, SlidingCounter, SlidingLog, SlidingWindow,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use tower_sluice::key::Head;
use tower_sluice::limiter::Boxed;
use tower_sluice::respond::Respond;
use tower_sluice::{
    Decision, ErrorKind, HttpResponder, LimiterExt, Memory, Pool, Quota, RateLimitLayer, Redis,
    Refusal, by_head,
};

#[tokio::main]
async fn main() -> ExitCode {
    let settings = match Settings::read().await {
        Ok(settings) => settings,
        Err(reason) => {
            eprintln!("quickstart: {reason}");
            return ExitCode::from(2);
        }
    };
    match serve(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(settings: Settings) -> Result<(), Box<dyn Error>> {
    let limit = RateLimitLayer::new(settings.limiter, by_head(key))
        .max_wait(settings.max_wait)
        .respond(ShowWait);
    let app = Router::new().route("/", get(async || "admitted at once\n")).layer(limit);

    let listener = TcpListener::bind(settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = listener.local_addr()?;
    let asked_to_end = asked_to_end()?;
    println!("listening on http://{address}, decided in {}", settings.store);
    println!("try: seq 10 | xargs -P10 -I{{}} curl -s -w '%{{http_code}}\\n' http://{address}/");

    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(asked_to_end).await?;
    Ok(())
}

/// The key of a request: its API key, else the IP address of its peer.
fn key(head: Head<'_>) -> Option<String> {
    let peer = head.extensions().get::<ConnectInfo<SocketAddr>>();
    head.header("x-api-key").or_else(|| Some(peer?.0.ip().to_string()))
}

/// Answers refusals as `HttpResponder` does, and says to an admitted caller how long it waited.
#[derive(Clone)]
struct ShowWait;

impl<B, E> Respond<Request<B>, Response<Body>, E> for ShowWait {
    type Error = E;

    fn reject(&self, request: Request<B>, refusal: Refusal) -> Result<Response<Body>, E> {
        Respond::reject(&HttpResponder::new(), request, refusal)
    }

    fn annotate(&self, decision: &mut Decision, response: &mut Response<Body>) {
        if !decision.waited().is_zero() {
            let text = format!("admitted after {} ms\n", decision.waited().as_millis());
            response.headers_mut().remove("content-length");
            *response.body_mut() = Body::from(text);
        }
    }
}

/// Ends with the first signal. From the call on, signals no longer kill the process.
#[cfg(unix)]
fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Ends with Ctrl-C.
#[cfg(not(unix))]
fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

// Settings.

struct Settings {
    listen: SocketAddr,
    limiter: Boxed,
    store: &'static str,
    max_wait: Duration,
}

impl Settings {
    async fn read() -> Result<Self, String> {
        let store = Store {
            pool: match env::var("REDIS_URL") {
                Ok(url) => Some(pool(&url).await?),
                Err(_) => None,
            },
            deadline: millis("DEADLINE_MS", 100)?,
        };
        let limit = variable("LIMIT", NonZeroU64::MIN.saturating_add(4))?.get();
        let quota = Quota::try_new(limit, millis("PERIOD_MS", 1_000)?)
            .map_err(|error| invalid("LIMIT, PERIOD_MS", &error))?
            .try_burst(variable("BURST", limit)?)
            .map_err(|error| invalid("BURST", &error))?;
        let limiter = match variable("ALGORITHM", String::from("token_bucket"))?.as_str() {
            "token_bucket" => store.limiter(TokenBucket::new(quota)),
            "budget" => store.limiter(Budget::new(quota)),
            "concurrency" => store.limiter(Concurrency::of(quota)),
            "fixed_window" => store.limiter(FixedWindow::new(quota)),
            "sliding_log" => store.limiter(SlidingLog::new(quota)),
            "sliding_window" => match variable("CELLS", 10)? {
                cells @ 1..=60 => store.limiter(SlidingWindow::new(quota).cells(cells)),
                cells => Err(format!("CELLS: {cells} is not from 1 to 60")),
            },
            "sliding_counter" => store.limiter(SlidingCounter::new(quota)),
            "smooth_bursty" => store.limiter(SmoothBursty::new(quota)),
            "smooth_warming_up" => {
                store.limiter(SmoothWarmingUp::new(quota, millis("WARMUP_MS", 1_000)?))
            }
            other => Err(format!("ALGORITHM: {other:?} is none that is listed in the example")),
        }?;
        Ok(Self {
            listen: variable("LISTEN", SocketAddr::from(([127, 0, 0, 1], 3_000)))?,
            limiter,
            store: if store.pool.is_some() { "Redis" } else { "memory" },
            max_wait: millis("MAX_WAIT_MS", 500)?,
        })
    }
}

/// Connections to Redis. A server that is away may come later; one that is set up wrongly may not.
async fn pool(url: &str) -> Result<Pool, String> {
    let mut builder = Pool::builder(url).map_err(|error| invalid("REDIS_URL", &error))?;
    if url.starts_with("rediss") || url.starts_with("valkeys") {
        // TLS needs a crypto provider, which an application chooses.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(path) = env::var_os("REDIS_CA") {
            let pem = fs::read(path).map_err(|error| invalid("REDIS_CA", &error))?;
            builder = builder.root_certificate(pem);
        }
    }
    let pool = builder.build().map_err(|error| invalid("REDIS_URL", &error))?;
    match pool.ready().await {
        Err(error) if error.kind() == ErrorKind::Configuration => Err(invalid("REDIS_URL", &error)),
        _ => Ok(pool),
    }
}

/// The place where decisions are made, whatever the algorithm.
struct Store {
    pool: Option<Pool>,
    deadline: Duration,
}

impl Store {
    fn limiter(&self, algorithm: impl InLua) -> Result<Boxed, String> {
        algorithm
            .rule(algorithm.quota())
            .map_err(|error| invalid("LIMIT, PERIOD_MS, BURST, WARMUP_MS", &error))?;
        Ok(match &self.pool {
            Some(pool) => Redis::new("quickstart", algorithm, pool.clone())
                .decision_timeout(self.deadline)
                .boxed(),
            None => Memory::new("quickstart", algorithm).boxed(),
        })
    }
}

/// The variable called `name`, or its default.
fn variable<T>(name: &str, default: T) -> Result<T, String>
where
    T: FromStr<Err: Display>,
{
    match env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name}: {text:?}: {error}")),
        Err(env::VarError::NotPresent) => Ok(default),
        Err(error) => Err(invalid(name, &error)),
    }
}

fn millis(name: &str, default: u64) -> Result<Duration, String> {
    variable(name, default).map(Duration::from_millis)
}

fn invalid(name: &str, error: &dyn Error) -> String {
    // With its causes, where it is an error of the crate.
    format!("{name}: {error:#}")
}
