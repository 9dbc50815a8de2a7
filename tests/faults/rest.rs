//! The first charge after a rest: of a thread, of the process, or of the machine. Its connection
//! may have died meanwhile, and the process has not noticed.

use std::thread;

use tokio::runtime::Runtime;

use super::*;

use support::faults::*;
use support::files::Files;
use support::in_a_process_with_files;
use support::process::{Process, of_this_binary, told};

const ROUNDS: usize = 40;

fn runtimes() -> [(&'static str, Runtime); 2] {
    let one_thread = Builder::new_current_thread().enable_all().build();
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [("current_thread", one_thread), ("multi_thread", threads)]
        .map(|(name, runtime)| (name, runtime.expect("a runtime")))
}

/// Ends the connections of all others. It needs no runtime, and returns when it is done.
fn kill_connections(server: &Server) {
    let client = redis::Client::open(server.admin_url()).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
    redis::cmd("CLIENT").arg(&kill[..]).exec(&mut connection).expect("a reply");
}

/// Kills all connections while the thread of a task stands still, which then charges. Returns how
/// many charges failed in a way for which `FailOpen` admits.
fn unasked_after_kills(runtime: &Runtime, server: &Arc<Server>, pool: &Pool) -> usize {
    let limiter = over(pool.clone()).decision_timeout(LONG);
    let mut unasked = 0;
    for _ in 0..ROUNDS {
        let (limiter, server) = (limiter.clone(), Arc::clone(server));
        let round = async move {
            until_well(&limiter).await;
            kill_connections(&server);
            thread::sleep(Duration::from_millis(25));
            limiter.check(&one()).await.err().map(|error| error.kind())
        };
        let kind = runtime.block_on(async { tokio::spawn(round).await.expect("no panic") });
        unasked += usize::from(kind == Some(ErrorKind::Infrastructure));
    }
    unasked
}

/// The system knows that the connection is closed, and the runtime has had no turn to notice.
// Cases 15 and 16.
#[test]
fn a_connection_that_is_killed_while_its_thread_stands_still_is_replaced_before_it_is_used() {
    let folder = Files::new();
    let path = folder.join("redis.sock");
    let socket = path.to_str().expect("a path");
    let server = Arc::new(Server::with(&["--unixsocket", socket]));
    for url in [server.url(), format!("redis+unix://{socket}")] {
        let scheme = url.split(':').next().unwrap_or_default();
        for (name, runtime) in runtimes() {
            let pool = Pool::connect(&url).expect("an address");
            let unasked = unasked_after_kills(&runtime, &server, &pool);
            println!("fault case=16 scheme={scheme} runtime={name} unasked={unasked} of={ROUNDS}");
            assert_eq!(unasked, 0, "{scheme} {name}");
        }
    }
}

/// A server with TLS says that it closes before it does.
// Cases 15 and 16.
#[cfg(feature = "rustls")]
#[test]
fn with_tls_too() {
    use support::tls::{Authority, TlsServer, install_crypto_provider};
    install_crypto_provider();
    let authority = Authority::new();
    let server = TlsServer::start(&authority.identity(&["localhost"]));
    let (url, plain) = (server.url(), Arc::new(server.plain));
    for (name, runtime) in runtimes() {
        let pool =
            Pool::builder(&url).and_then(|pool| pool.root_certificate(authority.pem()).build());
        let unasked = unasked_after_kills(&runtime, &plain, &pool.expect("a pool"));
        println!("fault case=16 scheme=rediss runtime={name} unasked={unasked} of={ROUNDS}");
        assert_eq!(unasked, 0, "{name}");
    }
}

/// As on AWS Lambda between two requests. The server closes what is idle in the meantime.
// Cases 15 and 16.
#[test]
fn a_process_that_was_frozen_asks_over_a_new_connection() {
    let server = Server::start();
    for runtime in ["current_thread", "multi_thread"] {
        let mut command = of_this_binary("rest::process");
        let command = command.envs([("REST_URL", server.url()), ("REST_RUNTIME", runtime.into())]);
        let mut frozen = Process::start(command).expect("a process");
        let mut unasked = 0;
        for _ in 0..ROUNDS {
            frozen.tell("charge");
            while !frozen.says("outcome").expect("it runs").contains("Decided") {
                frozen.tell("charge");
            }
            frozen.signal("STOP");
            kill_connections(&server);
            frozen.tell("charge");
            frozen.signal("CONT");
            let outcome = frozen.says("outcome").expect("it runs");
            unasked += usize::from(outcome.contains("Infrastructure"));
        }
        println!("fault case=16 frozen runtime={runtime} unasked={unasked} of={ROUNDS}");
        assert_eq!(unasked, 0, "{runtime}");
    }
}

#[test]
#[ignore = "the processes of other tests run it"]
fn process() {
    let Ok(url) = std::env::var("REST_URL") else { return };
    let name = std::env::var("REST_RUNTIME").expect("a variable");
    let (_, runtime) = runtimes().into_iter().find(|one| one.0 == name).expect("a runtime");
    let limiter = yearly(&url).decision_timeout(LONG);
    runtime.block_on(async {
        loop {
            told().await;
            match limiter.check(&one()).await {
                Ok(_) => println!("outcome Decided"),
                Err(error) => println!("outcome {:?}", error.kind()),
            }
        }
    });
}

/// The lost connection cannot be made again: that is load of this process.
// Case 174.
#[test]
fn a_process_without_files_admits_nobody_unasked() {
    let test = "rest::a_process_without_files_admits_nobody_unasked";
    if in_a_process_with_files(64, test).is_some() {
        return;
    }
    let (server, [(_, runtime), _]) = (Server::start(), runtimes());
    let pool = Pool::builder(&server.url()).and_then(|pool| pool.size(1).build());
    let limiter = over(pool.expect("a pool"));
    runtime.block_on(async {
        until_well(&limiter).await;
        let mut connection = server.connection().await;
        let open = || std::fs::File::open("/dev/null").ok();
        let mut files: Vec<_> = std::iter::from_fn(open).collect();
        cut(&mut connection).await;
        let before = files.len();
        eventually("its file is free", async || {
            files.extend(open());
            files.len() > before
        })
        .await;
        for _ in 0..ROUNDS {
            let error = limiter.check(&one()).await.expect_err("no files");
            assert_eq!(error.kind(), ErrorKind::Saturation, "{}", chain(&error));
        }
        drop(files);
        until_well(&limiter).await;
    });
}
