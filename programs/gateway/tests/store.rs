//! Redis: shared by gateways, away, and back.

mod common;

use std::time::{Duration, Instant};

use common::{Answer, Gateway};
use support::Server;

const TABLE: &str = r#"
    [[policy]]
    name = "deny"
    algorithm = "fixed_window"
    limit = 3
    period = "1d"
    key = "header:x-api-key"
    match = { path = "/deny" }

    [[policy]]
    name = "allow"
    algorithm = "token_bucket"
    limit = 3
    period = "1d"
    key = "header:x-api-key"
    match = { path = "/allow" }
    on_error = "allow"

    [[policy]]
    name = "local"
    algorithm = "fixed_window"
    limit = 100
    period = "1d"
    key = "header:x-api-key"
    match = { path = "/local" }
    on_error = { local = 2 }
"#;

/// An answer that Redis decided about. The first call of a thread makes its connection, and a busy
/// machine may be late at any: then it is asked again.
fn decided(gateway: &Gateway, key: &str, path: &str) -> Answer {
    let mut answer = gateway.get_as(key, path);
    support::until("it decides", || {
        if answer.status == 503 {
            answer = gateway.get_as(key, path);
        }
        answer.status != 503
    });
    answer
}

/// An answer that comes soon, on a busy machine too.
fn quick(gateway: &Gateway, key: &str, path: &str) -> Answer {
    let begun = Instant::now();
    let answer = gateway.get_as(key, path);
    assert!(begun.elapsed() < Duration::from_secs(5), "{path}: {:?}", begun.elapsed());
    answer
}

#[test]
fn gateways_share_one_redis() {
    let redis = Server::start();
    let url = redis.url();
    let [one, other] = [0, 1].map(|_| Gateway::start(TABLE, &[("REDIS_URL", &url)]));
    let mut admitted = 0;
    let mut ask = || {
        for gateway in [&one, &other] {
            admitted += u32::from(decided(gateway, "alice", "/deny").status == 404);
        }
        admitted
    };
    // A charge that was decided too late for its request comes back.
    support::until("three are admitted", || ask() >= 3);
    (0..5).for_each(|_| _ = ask());
    assert_eq!(ask(), 3);
    let shown = || other.admin("GET", "/keys/deny/alice", "");
    support::until("the admin port decides", || shown().status == 200);
    assert_eq!(shown().json()["remaining"], 0);
    assert!(other.admin("DELETE", "/keys/deny/alice", "").status < 300);
    assert_eq!(decided(&one, "alice", "/deny").status, 404);
}

#[test]
fn a_redisson_policy_is_named_and_penalized_as_the_others() {
    let redis = Server::for_redisson();
    let java = "[[policy]]\nname = \"java\"\nalgorithm = \"redisson\"\nlimit = 5\n\
                period = \"1h\"\nkey = \"global\"\n";
    let gateway = Gateway::start(java, &[("REDIS_URL", &redis.url())]);
    // Each thread has its connection, and what was decided too late is forgotten.
    (0..10).for_each(|_| _ = decided(&gateway, "", "/"));
    let reset = || gateway.admin("DELETE", "/keys/java/global", "").status;
    support::until("it is reset", || reset() == 200);
    let answer = gateway.get("/");
    assert_eq!(answer.header("ratelimit-policy"), Some("\"java\";q=5;w=3600"));
    assert!(answer.header("ratelimit").unwrap().starts_with("\"java\";r=4;"), "{answer:?}");
    let penalized = gateway.admin("POST", "/keys/java/global/penalize?units=3", "");
    assert_eq!((penalized.status, &penalized.json()["remaining"]), (200, &1.into()));
    assert_eq!((gateway.get("/").status, gateway.get("/").status), (200, 429));
    let penalized = gateway.admin("POST", "/keys/java/global/penalize?units=100", "");
    assert_eq!((penalized.status, &penalized.json()["remaining"]), (200, &0.into()));
    let reset = gateway.admin("DELETE", "/keys/java/global", "");
    assert_eq!((reset.status, &reset.json()["remaining"]), (200, &5.into()));
}

#[test]
fn while_redis_is_away_each_policy_does_what_it_says() {
    let mut redis = Server::start();
    let gateway = Gateway::start(TABLE, &[("REDIS_URL", &redis.url())]);
    assert_eq!(decided(&gateway, "alice", "/deny").status, 404);
    gateway.until_health(200);

    redis.kill();
    let begun = Instant::now();
    for _ in 0..20 {
        let denied = quick(&gateway, "alice", "/deny");
        assert_eq!(denied.status, 503);
        assert!(denied.header("retry-after").is_some());
        assert_eq!(denied.header("ratelimit"), None);
        let allowed = quick(&gateway, "alice", "/allow");
        assert_eq!((allowed.status, allowed.header("ratelimit")), (404, None));
    }
    let local: Vec<u16> = (0..4).map(|_| quick(&gateway, "bob", "/local").status).collect();
    assert_eq!(local, [404, 404, 429, 429]);
    let open = gateway.counter("", &["open", "allow"]);
    assert!(open >= 20, "{open}");
    let undecided = gateway.counter("", &["limiter=\"deny\"", "outcome=\"undecided\""]);
    assert!(undecided >= 20, "{undecided}");
    gateway.until_health(503);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(gateway.health().text().contains("cannot decide"));
    assert_eq!(gateway.admin("GET", "/keys/deny/alice", "").status, 503);

    redis.restart();
    gateway.until_health(200);
    assert_eq!(decided(&gateway, "alice", "/deny").status, 404);
}

#[test]
fn health_notices_without_traffic() {
    let mut redis = Server::start();
    let gateway = Gateway::start(TABLE, &[("REDIS_URL", &redis.url())]);
    gateway.until_health(200);
    for round in 0..2 {
        // Gone, and hanging.
        if round == 0 {
            redis.kill()
        } else {
            redis.signal("STOP")
        }
        let begun = Instant::now();
        gateway.until_health(503);
        // About two seconds, and some time of a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        if round == 0 {
            redis.restart()
        } else {
            redis.signal("CONT")
        }
        let begun = Instant::now();
        gateway.until_health(200);
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
}

#[test]
fn it_starts_without_redis_and_finds_it_later() {
    let mut redis = Server::start();
    let url = redis.url();
    redis.kill();
    let gateway = Gateway::start(TABLE, &[("REDIS_URL", &url)]);
    assert_eq!(quick(&gateway, "alice", "/deny").status, 503);
    gateway.until_health(503);
    redis.restart();
    gateway.until_health(200);
    assert_eq!(decided(&gateway, "alice", "/deny").status, 404);
}

#[test]
fn keys_that_are_secrets_are_not_in_redis() {
    let redis = Server::start();
    let gateway = Gateway::start(TABLE, &[("REDIS_URL", &redis.url())]);
    decided(&gateway, "my-secret-key", "/deny");
    let url = redis.admin_url();
    let keys = std::process::Command::new("redis-cli").args(["-u", &url, "KEYS", "*"]).output();
    let keys = String::from_utf8(keys.expect("redis-cli").stdout).unwrap();
    assert!(keys.contains("deny") && !keys.contains("my-secret-key"), "{keys}");
}

#[test]
fn the_cause_of_a_failed_connection_is_named() {
    // A server without TLS.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in plain.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"-ERR unknown command\r\n");
        }
    });
    for (url, cause) in [
        ("redis://127.0.0.1:1".to_owned(), "refused"),
        (format!("rediss://{address}"), "InvalidContentType"),
    ] {
        let gateway = Gateway::start(TABLE, &[("REDIS_URL", &url)]);
        gateway.until_health(503);
        let shown = gateway.health().text();
        assert!(shown.contains(cause), "{shown}");
        support::until("it is on stderr", || gateway.process.stderr().contains(cause));
        let parts: Vec<_> = shown.trim().split(": ").collect();
        let distinct: std::collections::HashSet<_> = parts.iter().collect();
        assert_eq!(parts.len(), distinct.len(), "each cause once: {shown}");
    }
}
