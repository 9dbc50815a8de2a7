//! The program as an operator runs it, over real servers.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use redis::cmd;
use support::cluster::Cluster;
use support::files::Files;
use support::process::Process;
use support::sentinel::Replicated;
use support::{ADMIN, NOWHERE, Server};
use tower_sluice::algorithm::{
    AnyAlgorithm, Budget, Calendar, Concurrency, FixedWindow, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, Redis};
use tower_sluice_policies::serde_json::{self, Value};

const PATIENT: Duration = Duration::from_secs(20);
const BUCKET: [&str; 6] = ["--algorithm", "token_bucket", "--limit", "5", "--period", "1h"];

fn command(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limits"));
    command.env_remove("REDIS_CA").env("REDIS_URL", url).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The exit code, and what was written.
fn run(url: &str, words: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(url, words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
    (status.code().expect("a code"), text(stdout), text(stderr))
}

/// What a command writes that succeeds.
#[track_caller]
fn told(url: &str, words: &[&str]) -> String {
    let (code, out, err) = run(url, words);
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}: {out}");
    out
}

/// The same in JSON.
#[track_caller]
fn json(url: &str, words: &[&str]) -> Value {
    let out = told(url, &[words, &["--json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// Words about a limiter that is such a bucket.
fn on_bucket<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &BUCKET].concat()
}

fn bucket(pool: &Pool) -> Redis<TokenBucket> {
    let bucket = TokenBucket::new(Quota::per_hour(5));
    Redis::new("api", bucket, pool.clone()).decision_timeout(PATIENT)
}

async fn take(limiter: &impl Limiter, key: &str, units: u64) {
    let decision = limiter.check(&Charge::new(key.to_owned()).cost(units)).await;
    assert!(decision.expect("a decision").is_admitted(), "{key}");
}

/// A server with keys of `api`: alice has none left, bob 3, and a digested key 4.
async fn served() -> (Server, String) {
    let server = Server::start();
    let api = bucket(&server.pool());
    for (key, units) in [("alice", 5), ("bob", 2), ("carol smith", 1)] {
        take(&api, key, units).await;
    }
    let url = server.admin_url();
    (server, url)
}

#[tokio::test]
async fn limiters_and_keys_are_listed() {
    let (server, url) = served().await;
    let other = FixedWindow::new(Quota::per_day(9));
    take(&Redis::new("eu:my api", other, server.pool()), "x", 1).await;
    let pair = (TokenBucket::new(Quota::per_day(9)), other);
    take(&Redis::new("pair", pair, server.pool()), "x", 1).await;
    cmd("SET").arg("sluice:other").arg(1).exec_async(&mut server.connection().await).await.unwrap();

    let out = told(&url, &["ls"]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["LIMITER", "ALGORITHM", "KEYS"]);
    assert_eq!(lines[1], ["api", "token_bucket", "3"]);
    assert_eq!(lines[2], ["eu:my", "api", "fixed_window", "1"]);
    assert_eq!(lines[3], ["pair", "fixed_window", "(quota", "2)", "1"]);
    assert_eq!(lines[4], ["pair", "token_bucket", "(quota", "1)", "1"]);
    assert_eq!(lines[5].join(" "), "1 keys are not of limiters");
    assert!(told(&url, &["ls", "nobody"]).contains("no keys: "));

    // Keys as they were written, but for the digest.
    let keys = told(&url, &["ls", "api"]);
    assert!(
        keys.contains("\nalice ") && keys.contains("\nbob ") && keys.contains("\nh:"),
        "{keys}"
    );
    assert!(!keys.contains("carol"), "{keys}");

    let all = json(&url, &[&["ls", "api"], &BUCKET[..]].concat());
    let all = all["keys"].as_array().expect("keys");
    let left: Vec<_> = all.iter().map(|key| (&key["digest"], &key["remaining"])).collect();
    assert_eq!(
        left,
        [(&false.into(), &0.into()), (&false.into(), &3.into()), (&true.into(), &4.into())]
    );

    let pair = ["ls", "pair", "--algorithm", "fixed_window", "--limit", "9", "--period", "1day"];
    assert!(told(&url, &pair).contains("2 keys are of other quotas"));
    let second = json(&url, &[&pair[..], &["--quota", "2"]].concat());
    assert_eq!(second["keys"][0]["remaining"], 8);
    assert_eq!(second["of_other_quotas"], 1);
}

/// The shown figures are those of a peek by the limiter.
#[tokio::test]
async fn each_algorithm_is_read_as_a_peek_reads_it() {
    let server = Server::start();
    let (quota, url) = (Quota::per_hour(5), server.admin_url());
    let second = Duration::from_secs(1);
    let billing = Calendar::month_from(3).time_zone("Europe/Berlin").expect("a zone");
    let each: [(AnyAlgorithm, &[&str]); 13] = [
        (TokenBucket::new(quota.burst(9)).into(), &["token_bucket", "--burst", "9"]),
        (Budget::new(quota).max_hold(2 * second).into(), &["budget", "--max-hold", "2s"]),
        (Concurrency::new(5).max_hold(600 * second).into(), &["concurrency", "--max-hold", "10m"]),
        (FixedWindow::new(quota).into(), &["fixed_window"]),
        (FixedWindow::new(quota).anchored().into(), &["fixed_window", "--anchored"]),
        (
            FixedWindow::calendar(5, billing).into(),
            &[
                "fixed_window",
                "--calendar",
                "month",
                "--month-begins",
                "3",
                "--time-zone",
                "Europe/Berlin",
            ],
        ),
        (SlidingLog::new(quota).into(), &["sliding_log"]),
        (SlidingWindow::new(quota).into(), &["sliding_window"]),
        (SlidingWindow::new(quota).cells(3).into(), &["sliding_window", "--cells", "3"]),
        (SlidingCounter::new(quota).into(), &["sliding_counter"]),
        (SmoothBursty::new(quota).into(), &["smooth_bursty"]),
        (
            SmoothBursty::new(quota).max_burst(3_600 * second).wait_for_own_cost().into(),
            &["smooth_bursty", "--max-burst", "1h", "--own-debt"],
        ),
        (
            SmoothWarmingUp::new(quota, 3_600 * second).cold_factor(2.0).into(),
            &["smooth_warming_up", "--warm-up", "1h", "--cold-factor", "2"],
        ),
    ];
    for (number, (algorithm, words)) in each.into_iter().enumerate() {
        let name = format!("limiter-{number}");
        let limiter = Redis::new(name.as_str(), algorithm, server.pool()).decision_timeout(PATIENT);
        take(&limiter, "alice", 1).await;
        let before = limiter.peek("alice").await.expect("a peek");
        let has_period = words[0] != "concurrency" && !words.contains(&"--calendar");
        let period: &[&str] = if has_period { &["--period", "1h"] } else { &[] };
        let words = [&["peek", &name, "alice", "--limit", "5", "--algorithm"], words, period];
        let shown = json(&url, &words.concat());
        let after = limiter.peek("alice").await.expect("a peek");
        assert_eq!(shown["algorithm"], words[1][0], "{words:?}");
        let remaining = shown["remaining"].as_u64();
        assert!(before.remaining() <= remaining && remaining <= after.remaining(), "{shown}");
        let reset = shown["reset_after_us"].as_u64().map(Duration::from_micros);
        assert!(before.reset_after() >= reset && reset >= after.reset_after(), "{shown}");
        assert_eq!(shown["limit"].as_u64(), before.quota().map(|quota| quota.burst_size()));
    }
}

#[tokio::test]
async fn the_least_left_comes_first() {
    let (server, url) = served().await;
    bucket(&server.pool()).block("dave", Duration::from_secs(600)).await.expect("blocked");
    let out =
        told(&url, &[&["top", "api", "--rounds", "2", "--interval", "1ms"], &BUCKET[..]].concat());
    let second = out.rsplit_once("keys read").expect("two rounds").1;
    let rows: Vec<&str> = second.lines().skip(2).collect();
    assert!(rows[0].contains("dave") && rows[0].contains("blocked for 9m"), "{second}");
    assert!(rows[1].contains("alice") && rows[1].contains("2/2"), "{second}");
    assert!(rows[2].contains("bob") && rows[2].contains("0/2"), "{second}");
    // Where nobody looks at a screen, one round is enough.
    let once = json(&url, &[&["top", "api", "--rows", "2"], &BUCKET[..]].concat());
    let keys: Vec<_> =
        once["keys"].as_array().expect("keys").iter().map(|key| &key["key"]).collect();
    assert_eq!(keys, ["dave", "alice"]);
    let (code, _, err) =
        run(&url, &["top", "--algorithm", "token_bucket", "--limit", "5", "--period", "1s"]);
    assert_eq!(code, 2, "{err}");
}

#[tokio::test]
async fn a_key_is_reset_blocked_and_unblocked() {
    let (server, url) = served().await;
    let api = bucket(&server.pool());
    let name = "sluice:api:tb1:{alice}";
    let out = told(&url, &on_bucket(&["reset", "api", "alice", "--dry-run"]));
    assert_eq!(out, format!("would reset {name}: 0 of 5 left\n"));
    assert_eq!(api.peek("alice").await.unwrap().remaining(), Some(0));
    assert_eq!(
        told(&url, &on_bucket(&["reset", "api", "alice"])),
        format!("reset {name}: 5 of 5 left\n")
    );
    assert_eq!(api.peek("alice").await.unwrap().remaining(), Some(5));

    let out = told(&url, &on_bucket(&["block", "api", "alice", "--for", "10m"]));
    assert!(out.starts_with(&format!("blocked {name}: 0 of 5 left, blocked for 9m 59s")), "{out}");
    assert!(!api.check(&Charge::new("alice")).await.unwrap().is_admitted());
    assert!(told(&url, &on_bucket(&["peek", "api", "alice"])).contains("blocked for 9m"));
    told(&url, &on_bucket(&["unblock", "api", "alice"]));
    assert!(api.check(&Charge::new("alice")).await.unwrap().is_admitted());

    assert_eq!(
        told(&url, &on_bucket(&["grant", "api", "alice", "--units", "1"])),
        format!("granted to {name}: 5 of 5 left\n")
    );
    assert!(api.check(&Charge::new("alice")).await.unwrap().is_admitted());

    // A typing error changes nothing, and says so.
    let typos: [&[&str]; 3] = [
        &["reset", "api", "alcie"],
        &["unblock", "apj", "alice"],
        &["grant", "api", "alcie", "--units", "2"],
    ];
    for typo in typos {
        let (code, out, err) = run(&url, &on_bucket(typo));
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("nothing is stored under sluice:"), "{err}");
    }
    // A digest can be read, but not charged.
    let keys = told(&url, &["ls", "api"]);
    let digest = keys.lines().find(|line| line.starts_with("h:")).expect("a digest");
    let digest = digest.split(' ').next().expect("a key");
    let stored = on_bucket(&["peek", "api", digest, "--stored"]);
    assert_eq!(json(&url, &stored)["remaining"], 4);
    assert_eq!(json(&url, &on_bucket(&["peek", "api", "carol smith"]))["remaining"], 4);
    let (code, _, err) = run(&url, &on_bucket(&["reset", "api", digest, "--stored"]));
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = run(&url, &["peek", "api", "alice"]);
    assert!(code == 2 && err.contains("a state needs its rule"), "{err}");
}

/// Rights to read suffice to look, and a missing right is named in one sentence.
#[tokio::test]
async fn rights_to_read_suffice_to_look() {
    let (server, admin) = served().await;
    let log = Redis::new("log", SlidingLog::new(Quota::per_hour(5)), server.pool());
    take(&log.decision_timeout(PATIENT), "alice", 2).await;
    let mut connection = server.connection().await;
    let mut user = async |name: &str, rights: &str| {
        let mut command = cmd("ACL");
        command.arg("SETUSER").arg(name).arg("on").arg(format!(">{name}"));
        command.arg(rights.split(' ').collect::<Vec<_>>());
        command.exec_async(&mut connection).await.expect("a user");
        admin.replace(&format!("{ADMIN}:{ADMIN}"), &format!("{name}:{name}"))
    };
    let reader = user("reader", "~sluice:* -@all +@read +hello").await;
    assert!(told(&reader, &["ls"]).contains("token_bucket"));
    let row = json(&reader, &on_bucket(&["peek", "api", "bob"]));
    assert_eq!((&row["remaining"], &row["local_clock"]), (&3.into(), &true.into()));
    assert!(told(&reader, &on_bucket(&["top", "api"])).contains("lacks the right +time"));
    let log = ["--algorithm", "sliding_log", "--limit", "5", "--period", "1h"];
    let row = json(&reader, &[&["peek", "log", "alice"], &log[..]].concat());
    assert_eq!(row["remaining"], 3);
    told(&reader, &on_bucket(&["watch", "api", "bob", "--rounds", "1"]));

    let lacks = |url: &str, words: &[&str], right: &str| {
        let (code, out, err) = run(url, words);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains(&format!("lacks the right {right} ")), "{words:?}: {err}");
    };
    lacks(&reader, &on_bucket(&["reset", "api", "bob"]), "+eval");
    let exact = user("exact", "~sluice:* -@all +scan +get +time +hello").await;
    told(&exact, &on_bucket(&["top", "api"]));
    lacks(&exact, &[&["peek", "log", "alice"], &log[..]].concat(), "+zrange");
    let blind = user("blind", "~sluice:* -@all +get +time +hello").await;
    lacks(&blind, &["ls"], "+scan");
    told(&blind, &on_bucket(&["peek", "api", "bob"]));
    let others = user("others", "~other:* -@all +@read +hello").await;
    lacks(&others, &on_bucket(&["peek", "api", "bob"]), "~ to this key");
}

#[tokio::test]
async fn values_of_others_are_rows_with_an_error() {
    let (server, url) = served().await;
    let mut connection = server.connection().await;
    cmd("SET").arg("sluice:api:tb1:{eve}").arg("0x10").exec_async(&mut connection).await.unwrap();
    cmd("RPUSH").arg("sluice:api:tb1:{mallory}").arg(1).exec_async(&mut connection).await.unwrap();
    cmd("SET").arg("sluice:api:tb1:{\x1b[2J}").arg(1).exec_async(&mut connection).await.unwrap();
    let list = json(&url, &[&["ls", "api"], &BUCKET[..]].concat());
    let keys = list["keys"].as_array().expect("keys").iter();
    let wrong: Vec<_> = keys.filter(|key| key["error"].is_string()).collect();
    assert_eq!(wrong.iter().map(|key| &key["key"]).collect::<Vec<_>>(), ["eve", "mallory"]);
    assert_eq!(list["not_of_limiters"], 1);
    let table = told(&url, &[&["top", "api"], &BUCKET[..]].concat());
    assert!(table.contains("WRONGTYPE") && !table.contains('\x1b'), "{table}");
    let (code, out, _) = run(&url, &[&["peek", "api", "eve"], &BUCKET[..]].concat());
    assert!(code == 1 && out.contains("not one that this limiter writes"), "{out}");
}

/// A hundred thousand keys, found and read within bounds.
#[tokio::test]
async fn many_keys_stay_within_the_bound() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let fill = "for i = 1, 100000 do \
        redis.call('SET', 'sluice:api:tb1:{user-' .. i .. '}', '9007199254740991') end";
    cmd("EVAL").arg(fill).arg(0).exec_async(&mut connection).await.unwrap();
    let url = server.admin_url();
    let begun = Instant::now();
    let all = json(&url, &["ls", "--time", "5m"]);
    assert_eq!((&all["limiters"][0]["keys"], &all["complete"]), (&100_000.into(), &true.into()));
    println!("100,000 keys listed in {} ms", begun.elapsed().as_millis());
    let some = json(&url, &["ls", "--most", "1000", "--time", "5m"]);
    assert_eq!(some["complete"], false);
    assert_eq!((&some["ended_by"], &some["keys_on_servers"]), (&"--most".into(), &100_000.into()));
    // The only one is found long before the last key is looked at.
    cmd("SET").arg("sluice:few:tb1:{alice}").arg(1).exec_async(&mut connection).await.unwrap();
    let few = json(&url, &["ls", "few", "--most", "1", "--time", "5m"]);
    assert_eq!((&few["keys"][0]["key"], &few["complete"]), (&"alice".into(), &true.into()));
    let none_of_it = json(&url, &["ls", "few", "--most", "0", "--time", "5m"]);
    assert_eq!(none_of_it["complete"], false);
    let none = told(&url, &["ls", "--time", "0s"]);
    assert!(none.contains("not complete: --time ended it at"), "{none}");
    let begun = Instant::now();
    let top = json(&url, &[&["top", "api", "--time", "5m"], &BUCKET[..]].concat());
    assert_eq!(
        (top["keys"].as_array().map(Vec::len), &top["ended_by"]),
        (Some(20), &"--most".into())
    );
    println!("10,000 keys found and read in {} ms", begun.elapsed().as_millis());
    // Each step is small: none took the server a millisecond.
    let slow: String = cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let scans = slow.lines().find(|line| line.starts_with("cmdstat_scan")).expect("scans");
    println!("{scans}");
}

#[tokio::test]
async fn every_master_of_a_cluster_is_asked() {
    let cluster = Cluster::start().await;
    let url = cluster.admin_url();
    let api = bucket(&Pool::connect(&url).expect("an address"));
    for number in 0..60 {
        take(&api, &format!("user-{number}"), 1 + number % 5).await;
    }
    assert_eq!(json(&url, &["ls"])["limiters"][0]["keys"], 60);
    let all = json(&url, &[&["ls", "api"], &BUCKET[..]].concat());
    let left = |left: u64| {
        all["keys"].as_array().expect("keys").iter().filter(|key| key["remaining"] == left).count()
    };
    assert_eq!([0, 1, 2, 3, 4].map(left), [12; 5]);
    for key in ["user-4", "user-9", "user-14"] {
        assert!(told(&url, &on_bucket(&["reset", "api", key])).contains("5 of 5 left"));
    }
}

#[tokio::test]
async fn sentinels_lead_to_the_primary_and_a_watch_outlives_a_failover() {
    let replicated = Replicated::start().await;
    let url = replicated.url().replace("://", &format!("://{ADMIN}:{ADMIN}@"));
    let api = bucket(&Pool::connect(&url).expect("an address"));
    take(&api, "alice", 2).await;
    assert_eq!(json(&url, &["ls"])["limiters"][0]["keys"], 1);
    let words = [&["watch", "api", "alice", "--interval", "20ms"], &BUCKET[..]].concat();
    let watch = Process::start(&mut command(&url, &words)).expect("a process");
    assert!(watch.says("3 of 5 left").is_some());
    take(&api, "alice", 1).await;
    assert!(watch.says("2 of 5 left").is_some());
    replicated.servers[1].until_info("master_link_status:up").await;
    replicated.sentinels[0].fail_over().await;
    replicated.servers[1].until_info("role:master").await;
    // Until then, the old primary takes a block that is lost when it follows the new one.
    replicated.servers[0].until_info("role:slave").await;
    let begun = Instant::now();
    while api.block("alice", Duration::from_secs(600)).await.is_err() {
        assert!(begun.elapsed() < 6 * PATIENT, "no primary");
        tokio::task::yield_now().await;
    }
    assert!(watch.says("blocked for 9m").is_some());
}

/// Policies have the algorithms of their rows, and keys as a client sends them.
#[tokio::test]
async fn a_file_of_policies_has_the_rules() {
    let server = Server::start();
    let files = Files::new();
    let table = r#"
        [[policy]]
        name = "api"
        limit = 5
        period = "1h"
        key = "header:x-api-key"

        [[policy]]
        name = "pages"
        algorithm = "fixed_window"
        limit = 9
        period = "1day"
        key = ["header:x-api-key", "path"]
    "#;
    let path = files.write("limits.toml", table);
    let rows = toml::from_str(table).expect("rows");
    let policies = tower_sluice_policies::Policies::builder().redis(server.pool());
    let policies = policies.decision_timeout(PATIENT).build(&rows).expect("a table");
    let handle = |name| policies.get(name).expect("a policy");
    handle("api").penalize(&["key-1"], 5).await.expect("taken");
    handle("pages").penalize(&["key-1", "/a"], 2).await.expect("taken");
    let url = server.admin_url();
    fn with<'a>(words: &[&'a str], path: &'a str) -> Vec<&'a str> {
        [words, &["--policies", path]].concat()
    }
    assert_eq!(json(&url, &with(&["peek", "api", "key-1"], &path))["remaining"], 0);
    assert_eq!(json(&url, &with(&["peek", "pages", "key-1", "/a"], &path))["remaining"], 7);
    let top = json(&url, &with(&["top"], &path));
    let first: Vec<_> =
        top["keys"].as_array().expect("keys").iter().map(|key| &key["limiter"]).collect();
    assert_eq!(first, ["api", "pages"]);
    // The hash that `top` shows leads to the same key.
    let hash = top["keys"][0]["key"].as_str().expect("a key");
    assert_eq!(json(&url, &with(&["peek", "api", hash, "--stored"], &path))["remaining"], 0);
    told(&url, &with(&["reset", "api", hash, "--stored"], &path));
    assert_eq!(handle("api").peek(&["key-1"]).await.expect("a peek").remaining(), Some(5));
    told(&url, &with(&["block", "pages", "key-1", "/a", "--for", "1m"], &path));
    assert!(!handle("pages").peek(&["key-1", "/a"]).await.expect("a peek").is_admitted());
    let (code, _, err) = run(&url, &with(&["peek", "other", "key-1"], &path));
    assert!(code == 2 && err.contains("no policy \"other\""), "{err}");
    let (code, _, err) = run(&url, &with(&["peek", "api", "key-1", "more"], &path));
    assert!(code == 2 && err.contains("not a key of this policy"), "{err}");
    for broken in ["no-such-file".to_owned(), files.write("broken.toml", "[[policy]]")] {
        let (code, _, err) = run(&url, &with(&["peek", "api", "key-1"], &broken));
        assert!(code == 78 && err.contains(&broken), "{err}");
    }
}

#[test]
fn it_explains_itself() {
    let program = env!("CARGO_BIN_EXE_limits");
    support::installed::assert_explained(program, &["Commands:", "[env: REDIS_URL", "Files:"]);
}

#[test]
fn wrong_words_and_no_server_are_named() {
    let nowhere = format!("redis://me:hush@127.0.0.1:{NOWHERE}");
    let (code, _, err) = run(&nowhere, &["ls"]);
    assert!(code == 1 && err.contains("refused") && !err.contains("hush"), "{err}");
    let url = "redis://127.0.0.1";
    for (words, named) in [
        (&["block", "api", "a"][..], "--for"),
        (&["peek", "api"], "<KEY>"),
        (&["frob"], "frob"),
        (&["ls", "--redis", "http://x"], "the address"),
    ] {
        let (code, _, err) = run(url, words);
        assert!(code == 2 && err.contains(named), "{words:?}: {err}");
    }
}

/// Settings are checked as those of a row, before anything is sent.
#[tokio::test]
async fn settings_that_do_not_fit_name_their_option() {
    let (_server, url) = served().await;
    let peek = ["peek", "api", "alice", "--limit", "5", "--period", "1h", "--algorithm"];
    let (code, _, err) = run(&url, &[&peek[..5], &["--algorithm", "fixed_window"]].concat());
    assert!(code == 2 && err.contains("--period: "), "{err}");
    for (words, named) in [
        (&["token_bucket", "--cells", "5"][..], "--cells: "),
        (&["sliding_window", "--cells", "99"], "--cells: "),
        (&["fixed_window", "--own-debt"], "--own-debt: "),
        (&["token_bucket", "--start", "empty"], "--start: "),
        (&["budget", "--max-hold", "soon"], "--max-hold: "),
        (&["concurrency"], "--period: "),
        (&["fixed_window", "--calendar", "day"], "--period: "),
        (&["sliding_log", "--calendar", "day"], "--calendar: "),
    ] {
        let (code, _, err) = run(&url, &[&peek, words].concat());
        assert!(code == 2 && err.contains(named), "{words:?}: {err}");
    }
}
