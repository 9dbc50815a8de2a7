//! A reverse proxy that limits what passes, by policies from a file. Driven with curl alone:
//! `README.md` beside it takes five minutes.
//!
//! A request runs through `serve.rs`, which knows what is still running, then through `gate.rs`,
//! which decides, to `origin.rs`, which forwards or answers it. `policy_file.rs` hands tables to
//! the gate, and `admin.rs` shows and changes what the gate knows.

mod admin;
mod built_in;
mod client;
mod forwarded;
mod gate;
mod head;
mod health;
mod hop_by_hop;
mod http2;
mod lingering;
mod meters;
mod metrics;
mod minute;
mod origin;
mod policy_file;
mod proxy;
mod running;
mod sent;
mod serve;
mod settings;
mod stalled;
mod tunnel;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::admin::Admin;
use self::gate::Gate;
use self::health::Health;
use self::metrics::Metrics;
use self::minute::Minute;
use self::origin::Origin;
use self::policy_file::PolicyFile;
use self::running::Running;
use self::settings::Settings;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until SIGTERM or SIGINT, and then until what runs has ended, or until a second signal.
async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::read(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))?;
    rustls::crypto::ring::default_provider().install_default().expect("installed once");
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let metrics = Metrics::install()?;
    let gate = Gate::new(&settings)?;
    let file = PolicyFile::open(settings.policies.clone(), gate.clone())?;
    let (minute, health) = (Minute::start(&metrics), Health::start(&gate));

    let listen = bind("LISTEN", &settings.listen).await?;
    let admin = bind("ADMIN", &settings.admin).await?;
    println!(
        "listening on http://{}, admin on http://{}",
        listen.local_addr()?,
        admin.local_addr()?
    );

    let admin_routes =
        Admin { gate: gate.clone(), file, health, metrics, minute, token: settings.token.clone() };
    tokio::spawn(async move { axum::serve(admin, admin_routes.router()).await });

    let running = Running::new();
    let origin = Origin::new(&settings, running.clone())?;
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
    tokio::select! {
        () = serve::serve(listen, gate.around(origin), running, ended.cancelled_owned()) => Ok(()),
        () = again.cancelled() => Err("a second signal ended it while requests ran".into()),
    }
}

async fn bind(name: &str, address: &str) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| format!("{name} {address:?} cannot be bound: {error}"))
}
