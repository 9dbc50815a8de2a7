//! The first charge after a rest: of a thread, of the process, or of the machine. Its connection
//! may have died meanwhile, and the process has not noticed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use tokio::runtime::Runtime;

use super::*;

use support::faults::*;
use support::files::Files;
use support::process::signal;
use support::{ADMIN, in_a_process_with_files};

const ROUNDS: usize = 40;

fn runtimes() -> [(&'static str, Runtime); 2] {
    let one_thread = Builder::new_current_thread().enable_all().build();
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [("current_thread", one_thread), ("multi_thread", threads)]
        .map(|(name, runtime)| (name, runtime.expect("a runtime")))
}

/// Ends the connections of all others. It needs no runtime, and returns when it is done.
fn kill_connections(server: &Server) {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    let login =
        if server.admin_url().contains(ADMIN) { "AUTH tests tests\r\n" } else { "PING\r\n" };
    let kill = format!("{login}CLIENT KILL TYPE normal SKIPME yes\r\n");
    socket.write_all(kill.as_bytes()).expect("sent");
    let mut said = String::new();
    while said.lines().count() < 2 || !said.ends_with("\r\n") {
        let mut bytes = [0; 64];
        let count = socket.read(&mut bytes).expect("an answer");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(said.contains("\n:"), "{said}");
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

/// A process of this binary that charges whenever it is asked to.
struct Frozen {
    child: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Frozen {
    fn start(server: &Server, runtime: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["rest::process", "--exact", "--ignored", "--nocapture", "--quiet"])
            .envs([("REST_URL", server.url()), ("REST_RUNTIME", runtime.to_owned())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (orders, lines) = (child.stdin.take().expect("a pipe"), child.stdout.take());
        Self { child, orders, lines: BufReader::new(lines.expect("a pipe")) }
    }

    fn order(&mut self) {
        writeln!(self.orders, "charge").expect("it listens");
    }

    /// What became of a charge.
    fn outcome(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("a pipe") > 0, "it ended");
            if let Some(outcome) = line.trim().strip_prefix("outcome ") {
                return outcome.to_owned();
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// As on AWS Lambda between two requests. The server closes what is idle in the meantime.
// Cases 15 and 16.
#[test]
fn a_process_that_was_frozen_asks_over_a_new_connection() {
    let server = Server::start();
    for runtime in ["current_thread", "multi_thread"] {
        let mut frozen = Frozen::start(&server, runtime);
        let mut unasked = 0;
        for _ in 0..ROUNDS {
            frozen.order();
            while frozen.outcome() != "Decided" {
                frozen.order();
            }
            signal(frozen.child.id(), "STOP");
            kill_connections(&server);
            frozen.order();
            signal(frozen.child.id(), "CONT");
            unasked += usize::from(frozen.outcome() == "Infrastructure");
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
            let heard = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).expect("a pipe")
            });
            if heard.await.expect("heard") == 0 {
                return;
            }
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
