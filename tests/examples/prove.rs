//! The proof, as an operator runs it: a table and an exit code; and it finds what is broken.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use redis::cmd;
use tokio::runtime::Builder;
use tokio::time::{Duration, sleep};

use support::Server;
use support::faults::eventually;
use support::process::Process;
use support::tls::{Authority, TlsServer};
use support::trial::stock;

static BUILT: LazyLock<PathBuf> = LazyLock::new(|| support::example::built("prove"));

/// A short run on a few algorithms.
fn short(url: &str, only: &str) -> Command {
    lasting("0.05", url, only)
}

fn lasting(minutes: &str, url: &str, only: &str) -> Command {
    let mut command = Command::new(&*BUILT);
    command.env_remove("REDIS_CA").args([url, "--minutes", minutes, "--processes", "2"]);
    command.args(["--tasks", "8", "--only", only]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("the example");
    (output.status.code(), told(&output))
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).join("\n")
}

/// The row that begins so.
fn row<'a>(told: &'a str, name: &str) -> &'a str {
    told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {told}"))
}

/// The names of all keys, but those of others.
async fn left(server: &Server) -> Vec<String> {
    let mut connection = server.connection().await;
    cmd("KEYS").arg("*prove-*").query_async(&mut connection).await.expect("names")
}

/// The values of the keys that are left and hold more than that they were reset.
async fn not_reset(server: &Server) -> Vec<String> {
    let mut connection = server.connection().await;
    let mut values = Vec::new();
    for name in left(server).await {
        let value = stock::value(&mut connection, &name).await.expect("a value");
        values.extend(value.filter(|value| {
            let rest = value.strip_prefix("reset:").map(|rest| rest.trim_end_matches("@inf"));
            rest.is_none_or(|birth| birth.trim_end_matches(':').contains([':', ' ']))
        }));
    }
    values
}

#[test]
fn it_explains_itself() {
    support::installed::assert_explained(&*BUILT, &["<ADDRESS>", "Signals:", "REDIS_CA"]);
}

#[test]
fn without_an_address_or_a_server_it_refuses() {
    let mut command = Command::new(&*BUILT);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, told) = run(command);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("Usage: prove"), "{told}");

    let nowhere = format!("redis://me:hush@127.0.0.1:{}", support::NOWHERE);
    let (code, told) = run(short(&nowhere, ""));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("refused") && !told.contains("hush"), "{told}");
    assert_eq!(run(short("http://127.0.0.1", "")).0, Some(2));
    let (code, told) = run(short(&nowhere, "typo"));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("no name begins so"), "{told}");
}

/// A replica, scripts without a clock, and a server without memory prove nothing.
#[tokio::test]
async fn a_server_that_can_prove_nothing_is_named_at_once() {
    let primary = Server::with(&[]);
    let port = primary.port().to_string();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
    let (code, told) = run(lasting("4", &replica.url(), ""));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("a replica"), "{told}");

    let mut connection = primary.connection().await;
    let set = |words: &[&str]| cmd(words[0]).arg(&words[1..]).to_owned();
    let full = set(&["CONFIG", "SET", "maxmemory", "1"]);
    full.query_async::<()>(&mut connection).await.expect("it is full");
    let (code, told) = run(lasting("4", &primary.url(), ""));
    assert_eq!(code, Some(4), "{told}");
    assert!(row(&told, "all").contains("not checked: the server has no memory left"), "{told}");
    let free = set(&["CONFIG", "SET", "maxmemory", "0"]);
    free.query_async::<()>(&mut connection).await.expect("it has room");

    let no_clock = set(&["ACL", "SETUSER", "default", "-time"]);
    no_clock.query_async::<()>(&mut connection).await.expect("rights");
    let (code, told) = run(lasting("4", &primary.url(), ""));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("scripts may not read the clock"), "{told}");
}

#[tokio::test]
async fn every_promise_is_kept_and_nothing_is_left() {
    let server = Server::with(&[]);
    let url = server.url();
    let (code, told) = run(short(&url, "token_bucket"));
    assert_eq!(code, Some(0), "{told}");
    assert!(row(&told, "oracle token_bucket").contains("over=0 unjustified=0"), "{told}");
    assert!(
        told.contains("standalone") && told.contains(" 0 not checked, 0 lost, 0 broken"),
        "{told}"
    );
    assert_eq!(left(&server).await, Vec::<String>::new());
}

/// It needs no rights beyond those that are documented, and names each that it lacks.
#[tokio::test]
#[ignore = "a minute of work: CONTRIBUTING.md has the command"]
async fn the_documented_rights_suffice() {
    let server = Server::start();
    let (code, told) = run(short(&server.url(), "fixed_window"));
    assert_eq!(code, Some(0), "{told}");
    assert!(row(&told, "stored states").contains("not checked: NOPERM on SCAN"), "{told}");
    assert_eq!(not_reset(&server).await, Vec::<String>::new());
}

/// A server that forgets keys, as one does that evicts them, admits too much, and states wrong
/// numbers. A run on a busy machine may make too few calls to show it: then it is run again.
#[test]
fn a_server_that_forgets_is_found() {
    let (server, ends) = (Server::with(&[]), AtomicBool::new(false));
    // A row may be missing. A panic in the scope would wait for its thread, which goes on.
    let broken = |(code, told): &(Option<i32>, String), name: &str| {
        let row = told.lines().find(|line| line.starts_with(name)).filter(|_| *code == Some(1));
        row.filter(|row| row.contains("BROKEN")).map(str::to_owned)
    };
    let goes_over = |run: &(Option<i32>, String)| {
        broken(run, "oracle fixed_window ").is_some_and(|row| !row.contains("over=0 "))
    };
    let differs = |run: &(Option<i32>, String)| broken(run, "twins fixed_window ").is_some();
    let shows_all =
        |runs: &[(Option<i32>, String)]| runs.iter().any(goes_over) && runs.iter().any(differs);
    let runs = thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = server.connection().await;
                while !ends.load(Relaxed) {
                    let key: Option<String> =
                        cmd("RANDOMKEY").query_async(&mut connection).await.expect("a name");
                    if let Some(key) = key {
                        let mut delete = cmd("DEL");
                        delete.arg(key).exec_async(&mut connection).await.expect("deleted");
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            });
        });
        let mut runs = Vec::new();
        while runs.len() < 5 && !shows_all(&runs) {
            runs.push(run(short(&server.url(), "fixed_window")));
        }
        ends.store(true, Relaxed);
        runs
    });
    assert!(shows_all(&runs), "{runs:?}");
}

#[tokio::test]
async fn interrupted_it_deletes_its_keys() {
    let server = Server::with(&[]);
    // So long that it is still under way, however late this test looks.
    let mut command = lasting("4", &server.url(), "sliding");
    let mut running = Process::start(&mut command).expect("the example");
    let mut connection = server.connection().await;
    eventually("it has keys", async || {
        let keys: u64 = cmd("DBSIZE").query_async(&mut connection).await.expect("a number");
        keys > 8
    })
    .await;
    running.signal("INT");
    let (status, stderr) = (running.wait(), running.stderr());
    assert_eq!(status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("not complete"), "{stderr}");
    assert_eq!(left(&server).await, Vec::<String>::new());
}

#[test]
#[ignore = "a minute of work: CONTRIBUTING.md has the command"]
fn over_tls_the_network_is_not_checked() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority.identity(&["localhost"]));
    let files = support::files::Files::new();
    let mut command = short(&server.url(), "fixed_window");
    command.env("REDIS_CA", files.write("ca.pem", &authority.pem()));
    let (code, told) = run(command);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("with TLS"), "{told}");
    assert!(row(&told, "the server is silent").contains("not checked: TLS"), "{told}");
}
