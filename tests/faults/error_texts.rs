//! The replies of Redis: errors have their kinds however they are worded, none repeats a key or a
//! password, and an odd reply never admits.

use redis::Cmd;
use tower_sluice_redisson::{Rate, Redisson};

use super::*;

use support::faults::*;

/// The answer to one charge, by a server that replies to every script with `reply`.
async fn answered(reply: &[u8]) -> Result<Decision, Error> {
    let address = support::fake::answering(reply.to_vec()).await;
    yearly(&format!("redis://{address}")).decision_timeout(LONG).check(&one()).await
}

/// Redis itself refuses a write within the script. A proxy may refuse the whole call.
#[tokio::test]
async fn a_connection_to_a_server_that_takes_no_writes_is_replaced() {
    let read_only = "-READONLY You can't write against a read only replica.\r\n";
    let address = support::fake::answering_first(read_only, "-OOM no memory\r\n").await;
    let pool = Pool::builder(&format!("redis://{address}")).unwrap().size(1).build().unwrap();
    let limiter = over(pool).decision_timeout(LONG);
    let error = limiter.check(&one()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error}");
    let error = limiter.check(&one()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
}

/// The client ends the connection, which must not look like one that was cut.
// Case 33.
#[tokio::test]
async fn a_reply_that_does_not_parse_is_of_state() {
    let bytes: [&[u8]; 7] = [
        b"x\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"$x\r\n",
        b"$3\r\nabcde",
        b"*1\r\n?\r\n",
        b"#x\r\n",
        b"+Unexpected end of input\r\n",
    ];
    for reply in bytes {
        let error = answered(reply).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{}", String::from_utf8_lossy(reply));
    }
}

/// An error with all that can be printed of it.
fn printed(error: &Error) -> String {
    let mut printed = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        printed.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    printed
}

// Cases 127 and 145.
#[tokio::test]
async fn no_key_is_printed_where_the_server_lacks_a_command() {
    const KEY: &str = "sk_live_4eC39HqLyjWD";
    for lacks in ["EVALSHA", "EVAL"] {
        let server = Server::with(&["--rename-command", lacks, ""]);
        let pool = server.pool();
        let redisson = Redisson::new(pool.clone()).decision_timeout(LONG);
        let rate = Rate::overall(5, Duration::from_secs(1));
        let limiter = over(pool).decision_timeout(LONG);
        let object = redisson.rate_limiter(KEY).unwrap();
        // The first calls of a script send its text, the others its digest.
        let first =
            [limiter.check(&Charge::new(KEY)).await.err(), object.try_set_rate(rate).await.err()];
        assert!(first.iter().all(|error| error.is_some() == (lacks == "EVAL")), "{first:?}");
        let errors = [
            limiter.check(&Charge::new(KEY)).await.unwrap_err(),
            object.try_set_rate(rate).await.unwrap_err(),
            redisson.check(&Charge::new(KEY)).await.unwrap_err(),
        ];
        for error in errors {
            let printed = printed(&error);
            println!("fault case=145 lacks={lacks} error={error}");
            assert!(!printed.contains("sk_live"), "{printed}");
            let shown = error.to_string().replace(['\'', '`'], "");
            assert!(shown.ends_with(&format!("unknown command {lacks}")), "{shown}");
        }
    }
}

/// Each cause is said once, down to the last.
// Case 155.
#[tokio::test]
async fn every_cause_is_in_the_alternate_form_once() {
    let error = Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).unwrap();
    let error = error.ready().await.unwrap_err();
    let shown = format!("{error:#}");
    println!("fault case=155 error={shown}");
    assert_eq!(shown.matches("refused").count(), 1, "{shown}");
    // Nobody was asked to decide.
    assert!(!shown.contains("decide"), "{shown}");
    let cluster = Cluster::with(1, 0, 15_000).await;
    let node = format!("redis://127.0.0.1:{}", cluster.nodes[0].port());
    let error = Pool::connect(&node).unwrap().ready().await.unwrap_err();
    println!("fault case=155 error={error:#}");
    assert_eq!(format!("{error:#}").matches("redis-cluster://").count(), 1, "{error:#}");
    let empty = "redis-sentinel://127.0.0.1?sentinelServiceName=";
    let error = Pool::connect(empty).unwrap_err();
    assert!(error.to_string().contains("sentinelServiceName= is empty"), "{error}");
}

// Cases 126 and 145.
#[tokio::test]
async fn no_password_is_printed_where_the_server_lacks_hello() {
    let server = Server::with(&["--requirepass", "4eC39HqLyjWD", "--rename-command", "HELLO", ""]);
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
    until_well(&yearly(&url("4eC39HqLyjWD"))).await;
    let wrong = url("4eC39HqLyjWE");
    let error = trouble(&yearly(&wrong).decision_timeout(LONG), &one()).await;
    println!("fault case=145 lacks=HELLO error={error}");
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:#}");
    assert!(!printed(&error).contains("4eC39HqLyjW"), "{}", printed(&error));
    let error = Pool::connect(&wrong).unwrap().ready().await.unwrap_err();
    assert!(!printed(&error).contains("4eC39HqLyjW"), "{}", printed(&error));
}

/// The texts of the error that a server gives to one command, as a script raises it, answers with
/// it, and catches it.
async fn worded(connection: &mut MultiplexedConnection, command: &str) -> Vec<(bool, String)> {
    let scripts = [
        format!("return redis.call({command})"),
        format!("return redis.error_reply(redis.pcall({command}).err)"),
        format!("return redis.pcall({command}).err or error('nothing failed')"),
    ];
    let mut texts = Vec::new();
    for script in scripts {
        texts.push(error_of(redis::cmd("EVAL").arg(script).arg(0), connection).await);
    }
    texts
}

/// The text of an error, and whether it came as a value.
async fn error_of(command: &mut Cmd, connection: &mut MultiplexedConnection) -> (bool, String) {
    match command.query_async::<String>(connection).await {
        Ok(text) => (true, text),
        Err(error) => {
            let code = error.code().unwrap_or_else(|| panic!("no error of the server: {error}"));
            (false, format!("{code} {}", error.detail().unwrap_or_default()))
        }
    }
}

// Cases 131, 134 and 135.
#[tokio::test]
async fn each_error_of_this_server_has_its_kind_however_it_is_worded() {
    let (server, mut connection) = Server::connected().await;
    let [mut asks, mut loops] = [server.connection().await, server.connection().await];
    let mut of_user = async |rules: &str| {
        let rules = format!("ACL SETUSER app reset on >secret +hello -@all {rules}");
        run(&mut asks, &rules.split(' ').collect::<Vec<_>>()).await;
        let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
        let client = redis::Client::open(url).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    };
    let set = "'SET', 'k', 'x'";
    let mut seen = Vec::new();
    let mut note = |name: &str, kind, texts: Vec<_>| {
        println!("reply name={name} class={kind:?} texts={texts:?}");
        seen.push((name.to_owned(), kind, texts));
    };

    run(&mut connection, &["RPUSH", "list", "x"]).await;
    note("WRONGTYPE", ErrorKind::State, worded(&mut connection, "'GET', 'list'").await);
    note("unknown", ErrorKind::Configuration, worded(&mut connection, "'NOSUCH'").await);
    let forgotten = redis::cmd("EVALSHA").arg("0".repeat(40)).arg(0).take();
    note(
        "NOSCRIPT",
        ErrorKind::Configuration,
        vec![error_of(&mut forgotten.clone(), &mut connection).await],
    );

    for (name, rules) in
        [("command", "+eval ~*"), ("key", "+eval +set ~other"), ("script", "+get ~*")]
    {
        let mut app = of_user(rules).await;
        note(name, ErrorKind::Configuration, worded(&mut app, set).await);
    }
    for (name, option, value, kind) in [
        ("NOREPLICAS", "min-replicas-to-write", "1", ErrorKind::Infrastructure),
        ("OOM", "maxmemory", "1", ErrorKind::Capacity),
    ] {
        run(&mut connection, &["CONFIG", "SET", option, value]).await;
        note(name, kind, worded(&mut connection, set).await);
        run(&mut connection, &["CONFIG", "SET", option, "0"]).await;
    }
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &NOWHERE.to_string()]).await;
    note("READONLY", ErrorKind::Infrastructure, worded(&mut connection, set).await);
    run(&mut connection, &["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    note("MASTERDOWN", ErrorKind::Infrastructure, worded(&mut connection, set).await);
    run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;

    run(&mut connection, &["CONFIG", "SET", "lua-time-limit", "1"]).await;
    let looping = tokio::spawn(async move {
        error_of(redis::cmd("EVAL").arg("while true do end").arg(0), &mut loops).await
    });
    let mut busy = String::new();
    eventually("a busy server", async || {
        let (is_value, text) = error_of(redis::cmd("TYPE").arg("k"), &mut connection).await;
        busy = text;
        !is_value && busy.starts_with("BUSY")
    })
    .await;
    note("BUSY", ErrorKind::Infrastructure, vec![(false, busy)]);
    run(&mut connection, &["SCRIPT", "KILL"]).await;
    note("killed", ErrorKind::Infrastructure, vec![looping.await.unwrap()]);

    for (name, kind, texts) in seen {
        for (is_value, text) in texts {
            let mut limits = Vec::new();
            if is_value {
                // As a script packs it: now, then the text in the place of an answer.
                let mut packed = b"\x92\x07\xda".to_vec();
                packed.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
                packed.extend(text.as_bytes());
                let head = format!("${}\r\n", packed.len());
                limits.push(answered(&[head.as_bytes(), &packed, b"\r\n"].concat()).await);
            } else {
                let reply = format!("-{text}\r\n").into_bytes();
                limits.push(answered(&reply).await);
                let address = support::fake::answering(reply).await;
                let pool = Pool::connect(&format!("redis://{address}")).unwrap();
                limits.push(Redisson::new(pool).decision_timeout(LONG).check(&one()).await);
            }
            for answer in limits {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), kind, "{name}: {text:?}");
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
                assert!(
                    !shown.contains("@user_script: ") && !shown.contains("Error running"),
                    "{shown}"
                );
            }
        }
    }
}
