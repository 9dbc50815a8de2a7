//! Connections that are lost, silent or never finished: when they are replaced, and what makes
//! them.

use std::future::ready;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;

// Case 6.
#[tokio::test]
async fn connections_into_a_black_hole_are_left_together_within_a_second() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    // Each alone would take so long.
    let counter = over(Pool::builder(&proxy.url()).unwrap().size(10).build().unwrap());
    until_well(&counter).await;
    proxy.strand();
    let back = until_well(&counter).await;
    println!("fault case=6 back_ms={}", back.as_millis());
    assert!(back < Duration::from_secs(1) + SLACK, "{back:?}");
}

// Case 136.
#[tokio::test]
async fn a_resolver_that_panics_is_asked_again() {
    let server = Server::start();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let pool = Pool::builder("redis://redis.example")
        .unwrap()
        .resolver(move |_, _| {
            assert!(count.fetch_add(1, Relaxed) >= 4, "this resolver fails four times");
            ready(Ok(vec![address]))
        })
        .build()
        .unwrap();
    let counter = over(pool);
    // A panic is a mistake in the application, and no outage.
    until(&counter, ErrorKind::Configuration).await;
    let back = until_well(&counter).await;
    println!("fault case=136 asked={} back_ms={}", asked.load(Relaxed), back.as_millis());
}

/// The name is no address: all that connects to it is the closure.
#[tokio::test]
async fn sockets_are_opened_by_the_applications_own_function() {
    let server = Server::start();
    let port = server.port();
    let dialed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&dialed);
    let dial = move |host: String, _| {
        assert_eq!(host, "cache.invalid");
        count.fetch_add(1, Relaxed);
        tokio::net::TcpStream::connect(("127.0.0.1", port))
    };
    let pool = Pool::builder("redis://cache.invalid").unwrap().size(1).dial(dial).build().unwrap();
    assert_eq!(over(pool).within(LONG).add().await.unwrap(), 1);
    assert_eq!(dialed.load(Relaxed), 1);

    for url in ["rediss://cache.invalid", "redis+unix:///run/redis.sock"] {
        let dial = |_, _| std::future::ready(Ok(tokio::io::empty()));
        let error = Pool::builder(url).unwrap().dial(dial).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{url}");
    }
}

// Case 136.
#[tokio::test]
async fn a_resolver_that_panics_is_no_outage_of_a_cluster_or_of_sentinels() {
    for url in
        ["redis-cluster://redis.example", "redis-sentinel://redis.example?sentinelServiceName=main"]
    {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let pool = Pool::builder(url).unwrap().resolver(move |_, _| {
            count.fetch_add(1, Relaxed);
            if true {
                panic!("this resolver always fails")
            }
            ready(Ok(Vec::new()))
        });
        let counter = over(pool.build().unwrap());
        let begun = Instant::now();
        // Again and again, and never the infrastructure.
        while asked.load(Relaxed) < 3 {
            let error = trouble(&counter).await;
            assert_eq!(error.kind(), ErrorKind::Configuration, "{url}: {}", chain(&error));
            assert!(begun.elapsed() < LONG, "{url}: asked {asked:?} times");
        }
    }
}

// Case 167.
#[tokio::test]
async fn a_hang_is_infrastructure_although_a_password_was_wrong_before() {
    let server = Server::with(&["--requirepass", "first"]);
    let mut connection = {
        let url = format!("redis://:first@127.0.0.1:{}", server.port());
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
    };
    let pool = Pool::builder(&server.url()).unwrap().size(2).credentials("default", "first");
    let pool = pool.build().unwrap();
    let counter = over(pool.clone());
    until_well(&counter).await;
    let begun = Instant::now();
    let lost = loop {
        if let [_, lost] = others(&mut connection).await[..] {
            break lost;
        }
        assert!(begun.elapsed() < LONG, "no second connection");
    };
    // One connection stays, and the other cannot be made again.
    run(&mut connection, &["CONFIG", "SET", "requirepass", "second"]).await;
    run(&mut connection, &["CLIENT", "KILL", "ID", &lost.to_string()]).await;
    loop {
        // Each call asks the pool, which connects again.
        let _ = over(pool.clone()).add().await;
        if stats::all(&mut connection).await.get("hello").is_some_and(|hello| hello.failed > 0) {
            break;
        }
        assert!(begun.elapsed() < LONG, "no connection was refused");
        sleep(Duration::from_millis(1)).await;
    }
    server.signal("STOP");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        // Some are sent, others wait.
        let asked: JoinSet<_> = (0..8).map(|_| counter.add()).collect();
        for answer in asked.join_all().await {
            // On a busy machine some are of kind saturation.
            let kind = answer.expect_err("it hangs").kind();
            assert_ne!(kind, ErrorKind::Configuration, "after {:?}", begun.elapsed());
        }
    }
    server.signal("CONT");
}

#[tokio::test]
async fn a_slow_first_connection_is_saturation_until_it_is_old() {
    let server = Server::start();
    server.signal("STOP");
    let counter = counter_at(&server.url());
    let begun = Instant::now();
    let error = counter.add().await.expect_err("it hangs");
    // On a machine that is too busy the connection is old by now.
    if begun.elapsed() < Duration::from_millis(500) {
        assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
    }
    until(&counter, ErrorKind::Infrastructure).await;
    server.signal("CONT");
    until_well(&counter).await;
}

/// A server that resets a connection late may be one with TLS. Whether it is must be found out in
/// the time to connect, or the attempt would count as one of a busy process, and say nothing.
#[tokio::test]
async fn a_late_reset_is_an_attempt_that_failed() {
    const HANDSHAKE: u8 = 0x16;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            // The question whether it uses TLS gets no answer.
            if stream.read_u8().await.is_ok_and(|first| first == HANDSHAKE) {
                kept.push(stream);
                continue;
            }
            tokio::spawn(async move {
                sleep(Duration::from_millis(200)).await;
                let _ = stream.set_zero_linger();
            });
        }
    });
    let builder = Pool::builder(&url).unwrap().size(1);
    let pool = builder.connect_timeout(Duration::from_millis(300)).build().unwrap();
    let begun = Instant::now();
    loop {
        let error = pool.ready().await.expect_err("no connection");
        if std::error::Error::source(&error).is_some() {
            return assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
        }
        // A machine that is too busy finds no reason in time.
        assert!(begun.elapsed() < LONG, "{error:?}");
    }
}

/// A crypto provider that can do nothing, so that each attempt to connect panics.
#[cfg(feature = "rustls")]
mod useless {
    use std::sync::Arc;

    use rustls::crypto::WebPkiSupportedAlgorithms;
    use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::sign::SigningKey;

    #[derive(Debug)]
    struct Nothing;

    impl SecureRandom for Nothing {
        fn fill(&self, _: &mut [u8]) -> Result<(), GetRandomFailed> {
            Err(GetRandomFailed)
        }
    }

    impl KeyProvider for Nothing {
        fn load_private_key(
            &self,
            _: PrivateKeyDer<'static>,
        ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
            Err(rustls::Error::General(String::from("no keys")))
        }
    }

    pub(crate) fn provider() -> CryptoProvider {
        CryptoProvider {
            cipher_suites: Vec::new(),
            kx_groups: Vec::new(),
            signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &[], mapping: &[] },
            secure_random: &Nothing,
            key_provider: &Nothing,
        }
    }
}

/// In a process of its own: other tests need a provider that works.
// Cases 125 and 136.
#[cfg(feature = "rustls")]
#[tokio::test]
async fn tls_without_a_working_crypto_provider_never_fails_open() {
    let name = "connections::tls_without_a_working_crypto_provider_never_fails_open";
    if servers::in_its_own_process(name).is_some() {
        return;
    }
    let server = Server::start();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let error = Pool::connect(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("install_default"), "{error}");

    useless::provider().install_default().expect("none is installed");
    let error = Pool::connect(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("crypto provider"), "{error}");
}

/// The timers of this process' sockets to `port`, as the kernel lists them: 2 is keepalive.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("sockets");
    let remote = format!("0100007F:{port:04X}");
    let socket = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words[2] == remote && words[3] == "01")
            .then(|| words[5].split(':').next().map(str::to_owned))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_are_kept_alive() {
    let server = Server::start();
    let counter = counter_at(&server.url());
    until_well(&counter).await;
    // A timer of another kind runs only while something is on its way.
    let begun = Instant::now();
    while timers(server.port()) != ["02"] {
        assert!(begun.elapsed() < LONG, "{:?}", timers(server.port()));
        sleep(Duration::from_millis(1)).await;
    }
}
