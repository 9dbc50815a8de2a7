//! The quickstart, as a newcomer starts it: a process, its variables, and requests
//! over real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::LazyLock;

use tokio::task::JoinSet;

use support::algorithms;
use support::files::Files;
use support::http::{Answer, get};
use support::process::Process;
use support::tls::{Authority, TlsServer};
use support::{NOWHERE, Server};

/// The example, built like this test and beside it.
fn quickstart() -> Command {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| support::example::built("quickstart"));
    let mut command = Command::new(&*BUILT);
    for name in
        ["REDIS_URL", "REDIS_CA", "ALGORITHM", "LIMIT", "PERIOD_MS", "BURST", "CELLS", "WARMUP_MS"]
    {
        command.env_remove(name);
    }
    command.env_remove("MAX_WAIT_MS").env_remove("DEADLINE_MS");
    command.env("LISTEN", "127.0.0.1:0");
    command
}

/// A running quickstart, ended when it is dropped.
struct Running {
    process: Process,
    address: SocketAddr,
    hint: String,
    store: String,
}

impl Running {
    fn start(variables: &[(&str, &str)]) -> Self {
        let process = Process::start(quickstart().envs(variables.iter().copied()));
        let process = process.expect("the example is built");
        let [first, hint] = [", ", ""].map(|word| process.says(word).expect("a line"));
        let (address, store) = first.split_once(", ").expect("where and what");
        let address = address.rsplit('/').next().expect("an address").parse().expect("an address");
        Self { process, address, hint, store: store.trim().to_owned() }
    }

    /// So many requests at once.
    fn asking(&self, requests: usize, headers: &'static [(&str, &str)]) -> JoinSet<Answer> {
        let address = self.address;
        let ask = move |_| async move { get(address, "/", headers).await };
        (0..requests).map(ask).collect()
    }

    async fn ten_at_once(&self, headers: &'static [(&str, &str)]) -> Vec<Answer> {
        self.asking(10, headers).join_all().await
    }

    fn end(mut self, signal: &str) -> ExitStatus {
        self.process.signal(signal);
        self.process.wait()
    }
}

fn count(answers: &[Answer], status: u16, body: &str) -> usize {
    answers.iter().filter(|answer| answer.status == status && answer.body.contains(body)).count()
}

/// Five minutes a unit, so that nothing comes back while a test runs, and waits that
/// are never slept.
const SLOW: [(&str, &str); 2] = [("PERIOD_MS", "1500000"), ("MAX_WAIT_MS", "0")];

#[tokio::test]
async fn out_of_the_box_every_request_gets_a_verdict() {
    let running = Running::start(&[]);
    assert_eq!(running.store, "decided in memory");
    assert!(running.hint.contains(&format!("http://{}/", running.address)), "{}", running.hint);
    let answers = running.ten_at_once(&[]).await;
    let at_once = count(&answers, 200, "admitted at once");
    let delayed: Vec<_> =
        answers.iter().filter(|answer| answer.body.starts_with("admitted after")).collect();
    // How many wait depends on how fast the ten arrive. The next test counts them exactly.
    assert!(at_once >= 5, "{answers:?}");
    assert_eq!(at_once + delayed.len() + count(&answers, 429, ""), 10, "{answers:?}");
    for Answer { body, .. } in delayed {
        let wait = body.split(' ').nth(2).and_then(|wait| wait.parse::<u64>().ok());
        assert!(wait.is_some_and(|wait| wait <= 500), "{body}");
    }
    for answer in &answers {
        assert_eq!(answer.status == 429, answer.header("retry-after").is_some(), "{answer:?}");
    }
}

/// The proportions out of the box, at 24 s a unit, so that nothing comes back meanwhile and
/// both reservations are within the 60 s that an algorithm reserves ahead. A request that waits is
/// one without an answer.
#[tokio::test]
async fn of_ten_at_once_five_go_two_wait_and_three_are_refused() {
    let server = Server::start();
    let url = server.url();
    for redis in [false, true] {
        let mut variables = vec![("PERIOD_MS", "120000"), ("MAX_WAIT_MS", "59000")];
        variables.extend([("DEADLINE_MS", "20000")]);
        variables.extend(redis.then_some(("REDIS_URL", url.as_str())));
        let running = Running::start(&variables);

        let mut asking = running.asking(10, &[]);
        let mut answers = Vec::new();
        while answers.len() < 8 {
            answers.push(asking.join_next().await.expect("asked").expect("answered"));
        }
        assert_eq!(count(&answers, 200, "admitted at once"), 5, "{answers:?}");
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(refused.status, 429);
            // Three units from now there is one to be had at once.
            let wait = refused.header("retry-after").and_then(|wait| wait.parse().ok());
            assert!(wait.is_some_and(|wait: u64| (49..=72).contains(&wait)), "{refused:?}");
        }
        assert!(asking.try_join_next().is_none(), "two wait");

        // All ten were charged to their peer; a request with a key is another caller.
        let keyed = get(running.address, "/", &[("x-api-key", "alice")]).await;
        assert_eq!(keyed.body, "admitted at once\n");
    }
}

#[tokio::test]
async fn either_store_and_algorithm_admits_the_limit() {
    let server = Server::with(&[]);
    let url = server.url();
    // At five a year the smooth ones store nothing: one is admitted, and the next one
    // would have to pay for it.
    for algorithm in algorithms::names() {
        let limit = if algorithm.starts_with("smooth") { 1 } else { 5 };
        for redis in [false, true] {
            let mut variables = vec![("ALGORITHM", algorithm), ("DEADLINE_MS", "20000")];
            variables.extend([("PERIOD_MS", "31536000000"), ("MAX_WAIT_MS", "0")]);
            variables.extend(redis.then_some(("REDIS_URL", url.as_str())));
            let running = Running::start(&variables);
            assert_eq!(running.store.ends_with("Redis"), redis);
            let answers = running.ten_at_once(&[("x-api-key", "alice")]).await;
            let admitted = count(&answers, 200, "admitted at once");
            // Its units are free again when a request is answered.
            let is_right = admitted == limit || algorithm == "concurrency" && admitted > limit;
            assert!(is_right, "{algorithm}: {admitted}");
            assert_eq!(count(&answers, 429, ""), 10 - admitted, "{algorithm}");
            assert_eq!(get(running.address, "/", &[("x-api-key", "bob")]).await.status, 200);
        }
    }
}

#[tokio::test]
async fn two_processes_share_one_limit() {
    let server = Server::start();
    let url = server.url();
    let variables = [SLOW[0], SLOW[1], ("REDIS_URL", url.as_str()), ("DEADLINE_MS", "20000")];
    let pair = [Running::start(&variables), Running::start(&variables)];
    let mut answers = pair[0].ten_at_once(&[]).await;
    answers.extend(pair[1].ten_at_once(&[]).await);
    assert_eq!(count(&answers, 200, ""), 5);
}

#[tokio::test]
async fn without_its_redis_it_answers_503() {
    let url = format!("redis://127.0.0.1:{NOWHERE}");
    let running = Running::start(&[("REDIS_URL", &url)]);
    let answer = get(running.address, "/", &[]).await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn signals_end_it_gracefully() {
    for signal in ["INT", "TERM"] {
        // Also before the first request.
        assert!(Running::start(&SLOW).end(signal).success(), "{signal} at once");
        let running = Running::start(&SLOW);
        assert_eq!(get(running.address, "/", &[]).await.status, 200);
        assert!(running.end(signal).success(), "{signal}");
    }
}

#[tokio::test]
async fn whoever_waits_when_it_is_asked_to_end_is_still_answered() {
    let variables = [("LIMIT", "1"), ("PERIOD_MS", "1000"), ("MAX_WAIT_MS", "1000")];
    let running = Running::start(&variables);
    let mut asking = running.asking(3, &[]);
    let mut answers = Vec::new();
    // A refusal shows that all three have arrived: one was admitted, one refused, and one waits.
    while !asking.is_empty() && count(&answers, 429, "") == 0 {
        answers.push(asking.join_next().await.expect("asked").expect("answered"));
    }
    assert!(running.end("TERM").success());
    answers.extend(asking.join_all().await);
    assert_eq!(count(&answers, 200, "admitted") + count(&answers, 429, ""), 3, "{answers:?}");
}

#[test]
fn a_wrong_variable_is_named_in_one_line() {
    let of = |algorithm| ("ALGORITHM", algorithm);
    let (window, sliding) = (of("fixed_window"), of("sliding_window"));
    let any = of("token_bucket");
    let wrong = [
        (any, ("LIMIT", "many")),
        (any, ("LIMIT", "0")),
        (any, ("LIMIT", "-1")),
        (any, ("PERIOD_MS", "0")),
        (any, ("PERIOD_MS", "18446744073709551615")),
        (any, ("BURST", "0")),
        (any, ("MAX_WAIT_MS", "soon")),
        (any, ("DEADLINE_MS", "")),
        (any, ("LISTEN", "here")),
        (any, ("REDIS_URL", "localhost")),
        (of("leaky"), of("leaky")),
        // What an algorithm cannot follow.
        (window, ("BURST", "9")),
        (sliding, ("CELLS", "0")),
        (sliding, ("CELLS", "61")),
        (sliding, ("CELLS", "many")),
        (of("smooth_warming_up"), ("WARMUP_MS", "0")),
    ];
    for (algorithm, (name, value)) in wrong {
        let said = refused_at_start(&[algorithm, (name, value)]);
        assert!(said.contains(name), "{name}={value}: {said}");
        assert!(algorithm != window || said.contains("window"), "{said}");
    }
}

// Cases 2 and 155.
#[tokio::test]
async fn a_server_that_is_set_up_wrongly_ends_it_at_once() {
    let server = Server::with(&["--requirepass", "hush"]);
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let said = refused_at_start(&[("REDIS_URL", &url)]);
    assert!(said.contains("REDIS_URL") && said.contains("WRONGPASS"), "{said}");
    assert!(!said.contains("wrong@"), "{said}");
    let node = Server::with(&["--cluster-enabled", "yes"]);
    let said = refused_at_start(&[("REDIS_URL", &node.url())]);
    assert!(said.contains("write redis-cluster://"), "{said}");
}

#[tokio::test]
async fn with_tls_the_authority_is_a_file() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = TlsServer::start(&authority.identity(&["localhost"]));
    let own = files.write("own.pem", &authority.pem());
    let other = files.write("other.pem", &Authority::new().pem());
    let url = server.url();
    let deadline = ("DEADLINE_MS", "20000");
    let running = Running::start(&[SLOW[0], deadline, ("REDIS_URL", &url), ("REDIS_CA", &own)]);
    assert_eq!(running.store, "decided in Redis");
    assert_eq!(get(running.address, "/", &[]).await.status, 200);
    let said = refused_at_start(&[("REDIS_URL", &url), ("REDIS_CA", &other)]);
    assert!(said.contains("UnknownIssuer"), "{said}");
    let said = refused_at_start(&[("REDIS_URL", &url), ("REDIS_CA", "/nowhere")]);
    assert!(said.contains("REDIS_CA"), "{said}");
    // It is no matter of a plain address.
    let plain = server.plain.url();
    Running::start(&[("REDIS_URL", &plain), ("REDIS_CA", "/nowhere")]);
}

/// The one line that it ends with, exit code 2.
fn refused_at_start(variables: &[(&str, &str)]) -> String {
    let output = quickstart().envs(variables.iter().copied()).output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{variables:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{variables:?}: {said}");
    said
}
