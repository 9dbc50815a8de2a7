//! TLS: who is trusted, and how everyone else is refused: with an error of kind configuration, a
//! few times a second, and never without TLS.

use super::*;

use redis_once::PoolBuilder;
use servers::in_its_own_process;
use servers::stats::calls;
use servers::tls::{Authority, TlsServer, install_crypto_provider};

async fn assert_well(pool: Pool) {
    until_well(&over(pool)).await;
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted() {
    install_crypto_provider();
    let authority = Authority::new();
    let server = TlsServer::start(&authority.identity(&["127.0.0.1", "localhost"]));
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("rediss://{host}:{}", server.port());
        let pool = Pool::builder(&url).unwrap().root_certificate(authority.pem());
        assert_well(pool.build().unwrap()).await;
    }
    // Several add up, in one text or in several calls.
    let other = Authority::new().pem();
    let both = format!("{other}\n{}", authority.pem());
    let pool = Pool::builder(&server.url()).unwrap();
    assert_well(pool.clone().root_certificate(both).build().unwrap()).await;
    let pool = pool.root_certificate(authority.pem()).root_certificate(other);
    assert_well(pool.build().unwrap()).await;
}

/// The nodes of a cluster announce IP addresses, and their certificate has one name.
#[tokio::test]
async fn every_node_is_verified_against_the_name_that_is_set() {
    install_crypto_provider();
    let authority = Authority::new();
    let own = authority.identity(&["redis.internal"]);
    let (server, node) = (TlsServer::start(&own), TlsServer::of_cluster(&own).await);
    for url in [
        format!("rediss://127.0.0.1:{}", server.port()),
        format!("rediss-cluster://127.0.0.1:{}", node.port()),
    ] {
        let pool = Pool::builder(&url).unwrap().root_certificate(authority.pem());
        assert_well(pool.clone().tls_server_name("redis.internal").build().unwrap()).await;
        for (pool, says) in [
            (pool.clone(), "not valid for name"),
            (pool.clone().tls_server_name("other.internal"), "not valid for name"),
            (
                Pool::builder(&url)
                    .unwrap()
                    .root_certificate(Authority::new().pem())
                    .tls_server_name("redis.internal"),
                "UnknownIssuer",
            ),
        ] {
            let error = refusal(pool.build().unwrap()).await;
            assert!(error.contains(says), "{url}: {error}");
        }
    }
}

/// The text of the error of kind configuration, which a machine that is not too busy finds.
async fn refusal(pool: Pool) -> String {
    let begun = Instant::now();
    loop {
        let error = pool.ready().await.expect_err("no connection");
        if error.kind() == ErrorKind::Configuration {
            return chain(&error);
        }
        assert!(begun.elapsed() < LONG, "{}", chain(&error));
    }
}

/// A server without HELLO, over TLS: RESP2, and a lost connection is still noticed.
#[tokio::test]
async fn a_server_without_hello_is_asked_by_resp2_over_tls() {
    install_crypto_provider();
    let authority = Authority::new();
    let server = TlsServer::without_hello(&authority.identity(&["localhost"]));
    let pool = Pool::builder(&server.url()).unwrap().root_certificate(authority.pem());
    let counter = over(pool.build().unwrap());
    until_well(&counter).await;
    let mut connection =
        redis::Client::open(format!("redis://127.0.0.1:{}?protocol=resp2", server.plain.port()))
            .unwrap()
            .get_multiplexed_async_connection()
            .await
            .unwrap();
    for _ in 0..5 {
        let before = others(&mut connection).await;
        cut(&mut connection).await;
        eventually("the connections are closed", async || {
            others(&mut connection).await.iter().all(|id| !before.contains(id))
        })
        .await;
        eventually("an answer", async || match counter.add().await {
            Ok(_) => true,
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Infrastructure, "{}", chain(&error));
                false
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    install_crypto_provider();
    let authority = Authority::new();
    let server = TlsServer::asking(&authority.identity(&["localhost"]), &authority);
    let client = authority.identity(&["a client"]);
    let pool = Pool::builder(&server.url()).unwrap().root_certificate(authority.pem());
    assert_well(pool.client_certificate(client.certificate, client.key).build().unwrap()).await;
}

/// New connections show what was set last. They resume no session of the certificate before it.
#[tokio::test]
async fn a_client_shows_a_certificate_that_was_set_later() {
    install_crypto_provider();
    let (authority, other) = (Authority::new(), Authority::new());
    let server = TlsServer::asking(&authority.identity(&["localhost"]), &authority);
    let [first, next] = ["first", "next"].map(|name| authority.identity(&[name]));
    let (expired, strange) = (authority.expired(&["a client"]), other.identity(&["a client"]));
    let pool = Pool::builder(&server.url()).unwrap().root_certificate(authority.pem());
    let pool = pool.client_certificate(&first.certificate, &first.key).build().unwrap();
    assert_well(pool.clone()).await;
    let mut admin = server.plain.connection().await;
    let clone = pool.clone();
    for (client, says) in [(expired, "CertificateExpired"), (strange, "UnknownCA")] {
        pool.set_client_certificate(&client.certificate, &client.key).expect("a certificate");
        // The connection that exists stays.
        assert_well(clone.clone()).await;
        cut(&mut admin).await;
        let error = refusal(clone.clone()).await;
        assert!(error.contains(says), "{says}: {error}");
        let error = pool.set_client_certificate(&next.certificate, &first.key).expect_err("a key");
        assert_eq!(error.kind(), ErrorKind::Configuration);
        pool.set_client_certificate(&next.certificate, &next.key).expect("a certificate");
        assert_well(clone.clone()).await;
    }
    let plain = Pool::connect("redis://127.0.0.1:1").unwrap();
    let error = plain.set_client_certificate(&next.certificate, &next.key).expect_err("no TLS");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(!format!("{error} {error:?} {pool:?}").contains("PRIVATE KEY"));
}

/// A refused connection: what is wrong, what the error must say, how the server was asked, and the
/// pool.
struct Refusal {
    case: &'static str,
    says: &'static str,
    server: TlsServer,
    proxy: Proxy,
    pool: PoolBuilder,
}

impl Refusal {
    /// The pool has an address of `scheme` that leads to a port of `server`.
    async fn new(
        case: &'static str,
        says: &'static str,
        server: TlsServer,
        address: (&str, u16),
        pool: impl Fn(PoolBuilder) -> PoolBuilder,
    ) -> Self {
        let (scheme_and_host, port) = address;
        let proxy = Proxy::before(port).await;
        let url = format!("{scheme_and_host}:{}", proxy.port());
        let pool = pool(Pool::builder(&url).unwrap().credentials("default", "hush"));
        Self { case, says, server, proxy, pool }
    }

    /// Callers ask for a second and a half. Each gets an error of kind configuration, and the
    /// server few connections.
    async fn assert(self) {
        let Self { case, says, server, proxy, pool } = self;
        let pool = pool.build().unwrap();
        let started = Instant::now();
        let error = loop {
            let error = pool.ready().await.expect_err(case);
            // A machine that is too busy finds no reason in time.
            if error.kind() == ErrorKind::Configuration || started.elapsed() > LONG {
                break error;
            }
        };
        let counter = over(pool);
        until(&counter, ErrorKind::Configuration).await;
        let (connects, seconds) = loop {
            let (before, begun) = (proxy.connections(), Instant::now());
            let mut callers: JoinSet<bool> = JoinSet::new();
            (0..8).for_each(|_| _ = callers.spawn(is_refused(counter.clone(), case)));
            if callers.join_all().await.into_iter().all(|is_refused| is_refused) {
                break (proxy.connections() - before, begun.elapsed().as_secs_f64());
            }
            // On a machine that is too busy, the server does not say in time what is wrong.
            assert!(started.elapsed() < LONG, "{case}: infrastructure");
        };
        let text = chain(&error);
        println!("tls case={case:?} connects={connects} in_s={seconds:.2} error={text}");
        assert_eq!(error.kind(), ErrorKind::Configuration, "{case}: {text}");
        assert!(text.contains(says), "{case}: {text}");
        // An attempt and its probe may stand at the very begin.
        let most = 10.0 * seconds + 2.0;
        assert!(connects > 0 && connects as f64 <= most, "{case}: {connects} in {seconds} s");
        // Nothing was said without TLS, the password least of all.
        let mut connection = server.plain.connection().await;
        assert_eq!(calls(&mut connection, "hello").await, 0, "{case}");
    }
}

/// Asks for a second and a half. Returns false if an error blames the infrastructure.
async fn is_refused(counter: Counter, case: &'static str) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        match counter.add().await.expect_err(case).kind() {
            // A busy process cannot say more.
            ErrorKind::Configuration | ErrorKind::Saturation => {}
            _ => return false,
        }
        sleep(Duration::from_millis(1)).await;
    }
    true
}

// Case 125.
#[tokio::test]
async fn everyone_else_is_refused() {
    const LOCALHOST: &str = "rediss://localhost";
    install_crypto_provider();
    let (authority, other) = (Authority::new(), Authority::new());
    let named = |names: &[&str]| TlsServer::start(&authority.identity(names));
    let localhost = || named(&["localhost"]);
    let asking = || TlsServer::asking(&authority.identity(&["localhost"]), &authority);
    let trusting = |pool: PoolBuilder| pool.root_certificate(authority.pem());
    let mut table = Vec::new();

    let (case, server) = ("another authority", localhost());
    let (says, at) = ("UnknownIssuer", (LOCALHOST, server.port()));
    let pool = |pool: PoolBuilder| pool.root_certificate(other.pem());
    table.push(Refusal::new(case, says, server, at, pool).await);

    let (case, server) = ("an authority that the system does not know", localhost());
    let (says, at) = ("UnknownIssuer", (LOCALHOST, server.port()));
    table.push(Refusal::new(case, says, server, at, |pool| pool).await);

    let (case, server) = ("an authority that Mozilla does not know", localhost());
    let (says, at) = ("UnknownIssuer", (LOCALHOST, server.port()));
    table.push(Refusal::new(case, says, server, at, PoolBuilder::webpki_roots).await);

    let (case, own) = ("an expired certificate", authority.expired(&["localhost"]));
    let server = TlsServer::start(&own);
    let (says, at) = ("expired", (LOCALHOST, server.port()));
    table.push(Refusal::new(case, says, server, at, trusting).await);

    let (case, server) = ("a certificate for another name", named(&["redis.example"]));
    let (says, at) = ("not valid for name", (LOCALHOST, server.port()));
    table.push(Refusal::new(case, says, server, at, trusting).await);

    let (case, server) = ("a certificate without the IP address", localhost());
    let (says, at) = ("not valid for name", ("rediss://127.0.0.1", server.port()));
    table.push(Refusal::new(case, says, server, at, trusting).await);

    let (case, server) = ("no client certificate", asking());
    let (says, at) = ("CertificateRequired", (LOCALHOST, server.port()));
    table.push(Refusal::new(case, says, server, at, trusting).await);

    let (case, server) = ("a client certificate of another authority", asking());
    let (says, at) = ("UnknownCA", (LOCALHOST, server.port()));
    let client = other.identity(&["a client"]);
    let pool = |pool| trusting(pool).client_certificate(&client.certificate, &client.key);
    table.push(Refusal::new(case, says, server, at, pool).await);

    let (case, server) = ("a server without TLS", localhost());
    let (says, at) = ("without TLS", (LOCALHOST, server.plain.port()));
    table.push(Refusal::new(case, says, server, at, trusting).await);

    let (case, server) = ("a server with TLS, and an address without", localhost());
    let (says, at) = ("wants TLS", ("redis://localhost", server.port()));
    table.push(Refusal::new(case, says, server, at, |pool| pool).await);

    table.into_iter().map(Refusal::assert).collect::<JoinSet<_>>().join_all().await;
}

/// In a process of its own: providers are those of a process, and a panic must end it here.
// Case 154.
#[test]
fn without_a_crypto_provider_there_is_an_error_and_no_panic() {
    let name = "tls::without_a_crypto_provider_there_is_an_error_and_no_panic";
    let Some(child) = in_its_own_process(name) else {
        std::panic::set_hook(Box::new(|info| {
            eprintln!("{info}");
            std::process::abort();
        }));
        let builder = Pool::builder("rediss://127.0.0.1:1").unwrap().webpki_roots();
        for outcome in [builder.build(), Pool::connect("rediss-cluster://127.0.0.1:1")] {
            let error = outcome.err();
            let is_said = error.is_some_and(|error| {
                error.kind() == ErrorKind::Configuration
                    && error.to_string().contains("default_provider().install_default()")
            });
            if !is_said {
                std::process::exit(3);
            }
        }
        return;
    };
    let said = String::from_utf8_lossy(&child.stderr);
    println!("fault case=154 status={} stderr={said:?}", child.status);
    assert!(said.is_empty(), "{said}");
}

/// Also where there is little time to connect: what is wrong is found out within it.
#[tokio::test]
async fn a_server_without_tls_is_found_out_in_little_time() {
    install_crypto_provider();
    let (server, begun) = (Server::start(), Instant::now());
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let pool = Pool::builder(&url).unwrap().root_certificate(Authority::new().pem());
    let pool = pool.connect_timeout(Duration::from_millis(200)).build().unwrap();
    loop {
        let error = pool.ready().await.expect_err("no connection");
        if error.kind() == ErrorKind::Configuration {
            return assert!(chain(&error).contains("without TLS"), "{}", chain(&error));
        }
        // A machine that is too busy finds no reason in time.
        assert!(begun.elapsed() < LONG, "{}", chain(&error));
    }
}

#[test]
fn what_cannot_be_used_is_an_error_when_the_pool_is_built() {
    install_crypto_provider();
    let authority = Authority::new();
    let [one, other] = ["one", "other"].map(|name| authority.identity(&[name]));
    let secure = Pool::builder("rediss://127.0.0.1:1").unwrap();
    let trusting = secure.clone().root_certificate(authority.pem());
    let plain = Pool::builder("redis://127.0.0.1:1").unwrap();
    let table = [
        (secure.clone().root_certificate(""), "root certificate"),
        (secure.clone().root_certificate("no PEM at all"), "root certificate"),
        (secure.clone().root_certificate(&one.key), "root certificate"),
        (trusting.clone().client_certificate("", &one.key), "client certificate"),
        (trusting.clone().client_certificate(&one.certificate, ""), "key"),
        (trusting.clone().client_certificate(&one.certificate, &other.key), "client certificate"),
        (plain.clone().root_certificate(authority.pem()), "write rediss"),
        (plain.clone().webpki_roots(), "write rediss"),
        (plain.clone().tls_server_name("redis.internal"), "write rediss"),
        (trusting.clone().tls_server_name("not a name"), "the TLS server name"),
        (plain.clone().client_certificate(&one.certificate, &one.key), "write rediss"),
    ];
    for (pool, says) in table {
        let error = pool.build().expect_err(says);
        assert_eq!(error.kind(), ErrorKind::Configuration, "{says}");
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert!(!format!("{error} {error:?}").contains("PRIVATE KEY"));
    }
    let fine = trusting.client_certificate(&one.certificate, &one.key);
    assert!(!format!("{fine:?}").contains("PRIVATE KEY"));
    assert!(fine.build().is_ok());
}
