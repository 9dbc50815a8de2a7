//! The primary that sentinels name: found, followed, and what is wrong with a setup.

mod watching;
#[cfg(feature = "rustls")]
mod with_tls;

use crate::*;

use servers::sentinel::{Replicated, SERVICE, Sentinel, url};

/// Returns what an error of `ready` says, which must be of kind configuration.
async fn refused(pool: Pool) -> String {
    let begun = Instant::now();
    loop {
        let error = pool.ready().await.expect_err("no connection");
        if error.kind() == ErrorKind::Configuration {
            return chain(&error);
        }
        // A machine that is too busy finds no reason in time.
        assert!(begun.elapsed() < LONG, "{}", chain(&error));
    }
}

/// Returns how often the server was asked to run a script, refused calls included.
async fn asked(server: &Server) -> u64 {
    // Sentinels close all connections to a server that they promote.
    let section = loop {
        let (mut connection, mut ask) = (server.connection().await, redis::cmd("INFO"));
        if let Ok(section) = ask.arg("commandstats").query_async::<String>(&mut connection).await {
            break section;
        }
    };
    let all = stats::read(&section);
    let scripts = ["eval", "evalsha"].iter().filter_map(|name| all.get(*name));
    scripts.map(|of| of.calls + of.rejected).sum()
}

// Case 46.
#[tokio::test]
async fn the_primary_is_found_whichever_sentinels_are_dead_or_wrong() {
    let replicated = Replicated::start().await;
    let [primary, replica] = &replicated.servers;
    let elsewhere = Server::start();
    let dead = Proxy::before(NOWHERE).await;
    let ports = [
        dead.port(),
        fake::sentinel(replica.port(), 99).await,
        replicated.sentinels[0].port,
        replicated.sentinels[1].port,
        replicated.sentinels[2].port,
        fake::sentinel(elsewhere.port(), 100).await,
    ];
    let begun = Instant::now();
    let counter = counter_at(&url(&ports));
    until_well(&counter).await;
    while begun.elapsed() < Duration::from_secs(2) {
        until_well(&counter).await;
        sleep(Duration::from_millis(5)).await;
    }
    assert!(asked(primary).await > 0);
    assert_eq!((asked(replica).await, asked(&elsewhere).await), (0, 0));
    let per_second = dead.connections() as f64 / begun.elapsed().as_secs_f64();
    println!("sentinel case=dead connects_per_s={per_second:.1}");
    assert!(per_second <= 10.0);
    // One that names a replica alone: no decision, and no storm of connections.
    let mut connection = replica.connection().await;
    let connections = "total_connections_received";
    let wrong = counter_at(&url(&[fake::sentinel(replica.port(), 1).await]));
    until(&wrong, ErrorKind::Infrastructure).await;
    let (before, begun) = (figure(&mut connection, connections).await, Instant::now());
    while begun.elapsed() < Duration::from_secs(1) {
        wrong.add().await.unwrap_err();
        sleep(Duration::from_millis(1)).await;
    }
    let connects = figure(&mut connection, connections).await - before;
    assert!(connects as f64 <= 10.0 * begun.elapsed().as_secs_f64(), "{connects}");
    assert_eq!(asked(replica).await, 0);
}

/// It may be a proxy, or a server that has renamed the command: no time heals that.
#[tokio::test]
async fn a_server_that_does_not_say_its_role_is_a_wrong_setting() {
    let silent = fake::answering(b"+OK\r\n".to_vec()).await;
    let sentinel = fake::sentinel(silent.port(), 1).await;
    let error = refused(Pool::connect(&url(&[sentinel])).unwrap()).await;
    assert!(error.contains("whether it is a primary"), "{error}");
}

#[tokio::test]
async fn what_is_set_up_wrongly_says_so() {
    let server = Server::with(&["--requirepass", "data"]);
    let lines = format!("requirepass guard\nsentinel auth-pass {SERVICE} data");
    let sentinel = Sentinel::with(server.port(), &lines);
    let (open, plain) = (Sentinel::start(server.port()), Server::start());
    let port = sentinel.port;
    let address = |password: &str, service: &str, guard: &str| {
        format!(
            "redis-sentinel://:{password}@127.0.0.1:{port}?sentinelServiceName={service}\
             &sentinelPassword={guard}&node=127.0.0.1:{NOWHERE}"
        )
    };
    let pool = Pool::connect(&address("data", SERVICE, "guard")).unwrap();
    until_well(&over(pool)).await;
    let builder = Pool::builder(&address("wrong", SERVICE, "wrong")).unwrap();
    let builder = builder.credentials("default", "data").sentinel_credentials("default", "guard");
    until_well(&over(builder.build().unwrap())).await;

    let table = [
        (address("data", "other", "guard"), "know no service called \"other\""),
        (address("data", SERVICE, "wrong"), "WRONGPASS"),
        (address("wrong", SERVICE, "guard"), "WRONGPASS"),
        (format!("redis://127.0.0.1:{}", open.port), "write redis-sentinel://"),
        (url(&[plain.port()]), "not a sentinel"),
    ];
    for (url, says) in table {
        let said = refused(Pool::connect(&url).unwrap()).await;
        assert!(said.contains(says), "{url}: {said}");
    }
}
