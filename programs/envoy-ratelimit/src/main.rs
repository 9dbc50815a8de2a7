//! Envoy's rate limit service, by the YAML of envoyproxy/ratelimit. `README.md` beside it starts it
//! with Envoy in five minutes.
//!
//! A request comes by gRPC (`grpc.rs`) or by HTTP (`http.rs`), and `calls.rs` bounds those that
//! run. `decide.rs` finds the rules that its descriptors meet (`rules.rs`) in the table in force
//! (`table.rs`), and asks the counters of those (`counters.rs`). Files become tables by `yaml.rs`,
//! `stated.rs` and `rules.rs`, at the start and when they change.

mod calls;
mod counters;
mod decide;
mod descriptors;
mod grpc;
mod http;
mod limit;
mod rules;
mod settings;
mod stated;
mod stats;
mod table;
mod yaml;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use command::Stop;
use serving::metrics::Metrics;
use serving::port::{Port, Running};
use serving::reload::Reload;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::calls::Calls;
use self::counters::Counters;
use self::decide::Decider;
use self::http::Http;
use self::settings::{OnError, Settings};
use self::stats::Stats;
use self::table::RuleTable;

/// The time for what runs when the process is told to end.
const END: Duration = Duration::from_secs(10);

/// The configuration that `--print-config` prints.
const EXAMPLE: &str = include_str!("../rules.yaml");

fn main() -> ExitCode {
    serving::run("envoy-ratelimit", run(command::parse(Some(EXAMPLE))))
}

/// Runs until SIGTERM or SIGINT, and then until what runs has ended, or until a second signal.
async fn run(settings: Settings) -> Result<(), Stop> {
    let bounds = settings.bounds().map_err(Stop::Asked)?;
    rustls::crypto::ring::default_provider().install_default().expect("installed once");
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let metrics = Metrics::install()?;
    let decider = Decider {
        table: Arc::new(ArcSwap::from_pointee(RuleTable::default())),
        counters: match &settings.redis_url {
            Some(url) => {
                let falls_back = settings.on_error == OnError::Local;
                let prefix = &settings.redis_prefix;
                Counters::in_redis(url, prefix, settings.redis_timeout, falls_back)
                    .map_err(Stop::Asked)?
            }
            None => Counters::in_memory(),
        },
        // One call, and the most of another one.
        time: settings.redis_timeout * 3 / 2,
        stats: Arc::new(Stats::new()),
        in_shadow: settings.shadow_mode,
        with_headers: settings.response_headers,
    };
    let (table, stats) = (Arc::clone(&decider.table), Arc::clone(&decider.stats));
    let files = Reload::new("envoy-ratelimit", &[".yaml", ".yml"], move |files| {
        let read = RuleTable::read(files);
        let count = if read.is_ok() { &stats.loaded } else { &stats.not_loaded };
        count.increment(1);
        table.store(Arc::new(read?));
        Ok(())
    });
    tokio::select! {
        opened = files.open(settings.config.clone()) => opened.map_err(Stop::Config)?,
        _ = term.recv() => return Ok(()),
        _ = int.recv() => return Ok(()),
    }

    let running = Running::default();
    // The time of a message, and then that of a decision.
    let time = bounds.timeouts.body_timeout + decider.time;
    let of_http = bounds.with_connections(settings::http_connections());
    let listen = Port::bind("LISTEN", &settings.listen, bounds, running.clone()).await?;
    let http = Port::bind("HTTP", &settings.http, of_http, running).await?;
    println!("listening on grpc://{}, on http://{}", listen.address()?, http.address()?);
    let (end, ending) = watch::channel(false);
    let ended = |mut ending: watch::Receiver<bool>| async move {
        let _ = ending.wait_for(|is_ending| *is_ending).await;
    };
    let (services, health) = grpc::services(decider.clone()).await?;
    let services = Calls::new(services, time, |status| status.clone().into_http());
    let routes = services.beside(Http { decider, files, metrics }.router(), http::problem);
    let of_services = ended(ending.clone());
    let grpc = tokio::spawn(listen.serve(services, async move {
        of_services.await;
        grpc::end(&health).await;
    }));
    let http = tokio::spawn(http.serve(routes, ended(ending)));
    let both = async {
        grpc.await??;
        http.await??;
        Ok(())
    };
    tokio::pin!(both);
    tokio::select! {
        ended = &mut both => return ended,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    let _ = end.send(true);
    tokio::select! {
        ended = both => ended,
        _ = term.recv() => Err("a second signal ended it while requests ran".into()),
        _ = int.recv() => Err("a second signal ended it while requests ran".into()),
        // Clients whose connections stay open forever wait for nothing.
        () = tokio::time::sleep(END) => Ok(()),
    }
}
