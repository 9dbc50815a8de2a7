//! A reverse proxy that limits what passes, by policies from a file. Driven with curl alone:
//! `README.md` beside it takes five minutes.
//!
//! A request comes from a port of `serving`, which knows what is still running. It runs through
//! `gate.rs`, which decides, to `origin.rs`, which forwards or answers it. `policy_file.rs` hands
//! tables to the gate, and `admin.rs` shows and changes what the gate knows.
//!
//! Callers are served by a thread for each core. Each has its own runtime, and its own client of
//! the upstream. All else runs beside them.

mod admin;
mod bill;
mod body;
mod bounded;
mod built_in;
mod client;
mod forwarded;
mod gate;
mod health;
mod hop_by_hop;
mod http1;
mod http2;
mod json_numbers;
mod meters;
mod minute;
mod origin;
mod policy_file;
mod proxy;
#[cfg(test)]
mod readme;
mod settings;
mod tunnel;

use std::future::pending;
use std::process::ExitCode;

use command::Stop;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Layer;

use self::admin::Admin;
use self::gate::Gate;
use self::health::Health;
use self::minute::Minute;
use self::origin::OriginService;
use self::policy_file::PolicyFile;
use self::settings::Settings;
use serving::metrics::Metrics;
use serving::open_files;
use serving::port::Port;
use serving::port::Running;

fn main() -> ExitCode {
    serving::run("gateway", run(command::parse(Some(policy_file::DEFAULT))))
}

/// Runs until SIGTERM or SIGINT, and then until what runs has ended, or until a second signal.
async fn run(settings: Settings) -> Result<(), Stop> {
    let bounds = settings.bounds().map_err(Stop::Asked)?;
    rustls::crypto::ring::default_provider().install_default().expect("installed once");
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let metrics = Metrics::install()?;
    let gate = Gate::new(&settings, &metrics).map_err(Stop::Asked)?;
    let opening = PolicyFile::open(settings.policies.clone(), gate.clone());
    let file = tokio::select! {
        file = opening => file.map_err(Stop::Config)?,
        _ = term.recv() => return Ok(()),
        _ = int.recv() => return Ok(()),
    };
    let (minute, health) = (Minute::start(gate.meters().clone()), Health::start(&gate));

    let running = Running::default();
    let (connections, of_admin) = (bounds.connections, bounds.with_connections(open_files::ADMIN));
    let listen = Port::bind("LISTEN", &settings.listen, bounds, running.clone()).await?;
    let admin = Port::bind("ADMIN", &settings.admin, of_admin, Running::default()).await?;
    println!("listening on http://{}, admin on http://{}", listen.address()?, admin.address()?);

    let admin_routes = Admin {
        gate: gate.clone(),
        file,
        health,
        metrics,
        minute,
        token: settings.admin_token.clone(),
    };
    tokio::spawn(admin.serve(admin_routes.routes(), pending()));

    let origins =
        OriginService::of_workers(&settings, connections, &running, open_files::workers())?;
    let (ended, again) = (CancellationToken::new(), CancellationToken::new());
    let signals = [ended.clone(), again.clone()];
    tokio::spawn(async move {
        for signal in signals {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            signal.cancel();
        }
    });
    let limits = gate.limits();
    let mut workers = JoinSet::new();
    for origin in origins {
        let (port, service, ended) = (listen.clone(), limits.layer(origin), ended.clone());
        // A thread of its own, whose requests need no other one.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        workers.spawn_blocking(move || {
            let served = runtime.block_on(port.serve(service, ended.cancelled_owned()));
            // Without waiting for what blocks a thread, such as a name server that is silent.
            runtime.shutdown_background();
            served
        });
    }
    drop(listen);
    let all_ended = async {
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(())
    };
    tokio::select! {
        ended = all_ended => ended,
        () = again.cancelled() => Err("a second signal ended it while requests ran".into()),
    }
}
