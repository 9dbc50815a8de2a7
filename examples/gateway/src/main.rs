//! A reverse proxy that limits what passes, by policies from a file. Driven with curl alone:
//! `README.md` beside it takes five minutes.
//!
//! A request runs through `serve.rs`, which knows what is still running, then through `gate.rs`,
//! which decides, to `origin.rs`, which forwards or answers it. `policy_file.rs` hands tables to
//! the gate, and `admin.rs` shows and changes what the gate knows.

mod admin;
mod bounded;
mod built_in;
mod causes;
mod client;
mod connections;
mod descriptors;
mod exchange;
mod forwarded;
mod gate;
mod head;
mod health;
mod hop_by_hop;
mod http2;
mod lingering;
mod log;
mod meters;
mod metrics;
mod minute;
mod origin;
mod policy_file;
mod proxy;
#[cfg(test)]
mod readme;
mod running;
mod sent;
mod serve;
mod settings;
mod tunnel;

use std::env;
use std::error::Error;
use std::future::pending;
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
use self::serve::Port;
use self::settings::Settings;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let ended = runtime.block_on(run());
    // Without waiting for what blocks a thread, such as a file system that hangs.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gateway: {}", causes::causes(&*error));
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
    let gate = Gate::new(&settings, &metrics)?;
    let file = tokio::select! {
        file = PolicyFile::open(settings.policies.clone(), gate.clone()) => file?,
        _ = term.recv() => return Ok(()),
        _ = int.recv() => return Ok(()),
    };
    let (minute, health) = (Minute::start(gate.meters().clone()), Health::start(&gate));

    let listen = bind("LISTEN", &settings.listen).await?;
    let admin = bind("ADMIN", &settings.admin).await?;
    println!(
        "listening on http://{}, admin on http://{}",
        listen.local_addr()?,
        admin.local_addr()?
    );

    let admin_routes =
        Admin { gate: gate.clone(), file, health, metrics, minute, token: settings.token.clone() };
    let admin = Port {
        name: "ADMIN",
        listener: admin,
        max_connections: descriptors::ADMIN,
        timeouts: settings.timeouts,
    };
    tokio::spawn(admin.serve(admin_routes.router(), Running::new(), pending()));

    let running = Running::new();
    let listen = Port {
        name: "LISTEN",
        listener: listen,
        max_connections: settings.max_connections,
        timeouts: settings.timeouts,
    };
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
        () = listen.serve(gate.around(origin), running, ended.cancelled_owned()) => Ok(()),
        () = again.cancelled() => Err("a second signal ended it while requests ran".into()),
    }
}

async fn bind(name: &str, address: &str) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| format!("{name} {address:?} cannot be bound: {error}"))
}
