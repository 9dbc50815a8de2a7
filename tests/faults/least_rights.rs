//! The rights that `docs/guide/redis-in-production.md` lists suffice, and give no others. All
//! suites run with them: see `support::Server`.

use std::collections::BTreeSet;

use redis::Value;

use super::*;

use support::documented_rights;
use support::faults::{LONG, yearly};

/// Redis lets every user ask these, so that one can log in and leave.
const FOR_EVERYBODY: [&str; 4] = ["auth", "hello", "quit", "reset"];

/// A connection of the documented user.
async fn as_user(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

fn text(value: &Value) -> String {
    redis::from_redis_value(value.clone()).expect("a text")
}

/// Each command that the server knows, such as `get` or `config|set`, with its words: as many as it
/// needs at least.
fn commands(list: &[Value]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for command in list {
        let Value::Array(fields) = command else { panic!("{command:?}") };
        let Value::Int(arity) = fields[1] else { panic!("{fields:?}") };
        // From 7.0 on, what belongs to a command has entries of its own.
        match fields.get(9) {
            Some(Value::Array(inside)) if !inside.is_empty() => found.extend(commands(inside)),
            _ => {
                let name = text(&fields[0]);
                let mut words: Vec<_> = name.split('|').map(str::to_owned).collect();
                let arity = usize::try_from(arity.abs()).expect("a small number");
                words.resize(words.len().max(arity), String::from("sluice:x"));
                found.push((name, words));
            }
        }
    }
    found
}

/// `DEBUG` and `MODULE` are refused to everybody, and `EXEC` repeats the code in its text.
fn is_refusal(error: &redis::RedisError) -> bool {
    let text = error.to_string();
    ["NOPERM", "no permissions", "not allowed"].iter().any(|words| text.contains(words))
}

// Case 123.
#[tokio::test]
async fn the_documented_user_may_do_nothing_else() {
    let server = Server::start();
    let rights = documented_rights(include_str!("../../docs/guide/redis-in-production.md"));
    let allowed: BTreeSet<_> = rights.iter().filter_map(|right| right.strip_prefix('+')).collect();
    let Value::Array(list) =
        redis::cmd("COMMAND").query_async(&mut server.connection().await).await.expect("a list")
    else {
        panic!("no list");
    };
    let mut user = as_user(&server).await;
    let (mut refused, mut passed) = (0, BTreeSet::new());
    for (name, words) in commands(&list) {
        if FOR_EVERYBODY.contains(&name.as_str()) {
            continue;
        }
        let mut command = redis::cmd(&words[0]);
        let answer: Result<Value, _> = command.arg(&words[1..]).query_async(&mut user).await;
        match answer {
            Err(error) if is_refusal(&error) => refused += 1,
            _ => _ = passed.insert(name),
        }
    }
    println!("fault case=123 refused={refused} passed={}", passed.len());
    assert!(refused > 150, "only {refused} were tried");
    assert!(passed.iter().all(|name| allowed.contains(name.as_str())), "{passed:?}");
    // And no right is listed that the server does not know. 6.2 lists no parts of commands.
    let known = |name: &&&str| !FOR_EVERYBODY.contains(*name) && !name.contains('|');
    let whole = passed.iter().filter(|name| !name.contains('|')).count();
    assert_eq!(whole, allowed.iter().filter(known).count());
}

// Case 123.
#[tokio::test]
async fn the_documented_user_reads_and_writes_its_own_keys_alone() {
    let server = Server::start();
    let mut user = as_user(&server).await;
    let mut own = redis::cmd("SET");
    own.arg("sluice:own").arg(1).exec_async(&mut user).await.expect("allowed");
    for key in ["other", "sluice", "Sluice:own", "x sluice:own"] {
        let get = redis::cmd("GET").arg(key).exec_async(&mut user).await.expect_err(key);
        assert_eq!(get.code(), Some("NOPERM"), "{key}");
        let script = "return redis.call('GET', KEYS[1])";
        let mut eval = redis::cmd("EVAL");
        let eval = eval.arg(script).arg(1).arg(key).exec_async(&mut user).await;
        assert!(eval.is_err(), "{key}");
    }
}

/// Whatever the keys are, the script is a constant, which is sent once.
// Cases 124 and 128.
#[tokio::test]
async fn without_the_right_to_load_scripts_they_are_sent_once() {
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    for number in 0..100 {
        let hostile = format!("']] return redis.call('FLUSHALL') --[[ {number}");
        let _ = limiter.check(&Charge::new(hostile)).await.expect("a decision");
    }
    let mut connection = server.connection().await;
    let [whole, digests] =
        [calls(&mut connection, "eval").await, calls(&mut connection, "evalsha").await];
    assert_eq!((whole, digests), (1, 99), "the script, and its digest");
    assert_eq!(calls(&mut connection, "script").await, 0);
}
