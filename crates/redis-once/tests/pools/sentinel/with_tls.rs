//! Sentinels and servers that want TLS, and certificates of their clients.

use super::*;
use servers::files::Files;
use servers::free_port;
use servers::tls::{Authority, TlsServer, install_crypto_provider, settings};

#[tokio::test]
async fn a_primary_with_tls_is_found_and_followed_over_tls() {
    install_crypto_provider();
    let authority = Authority::new();
    // Sentinels announce IP addresses, which these certificates do not have.
    let own = authority.identity(&["redis.internal"]);
    let old = TlsServer::replicated(&own, &authority, None);
    let new = TlsServer::replicated(&own, &authority, Some(old.port()));
    new.plain.until_info("master_link_status:up").await;
    let (files, port) = (Files::new(), free_port());
    let lines = settings(&files, port, &own, Some(&authority));
    let lines = lines.map(|(name, value)| format!("{name} {value}\n")).concat();
    let sentinel = Sentinel::alone(old.port(), &format!("{lines}tls-replication yes"));
    sentinel.until(|fields| fields.contains("num-slaves 1 ")).await;

    let address =
        |scheme: &str, port| format!("{scheme}://127.0.0.1:{port}?sentinelServiceName={SERVICE}");
    let secure = address("rediss-sentinel", port);
    let client = authority.identity(&["a client"]);
    let pool = Pool::builder(&secure).unwrap().root_certificate(authority.pem());
    let pool = pool.client_certificate(client.certificate, client.key);
    let said = refused(pool.clone().build().unwrap()).await;
    assert!(said.contains("not valid for name"), "{said}");
    let counter = over(pool.tls_server_name("redis.internal").build().unwrap());
    until_well(&counter).await;
    assert!(asked(&old.plain).await > 0);

    let other = Authority::new().pem();
    let untrusted = Pool::builder(&secure).unwrap().root_certificate(other);
    let untrusted = untrusted.tls_server_name("redis.internal");
    let said = refused(untrusted.build().unwrap()).await;
    assert!(said.contains("UnknownIssuer"), "{said}");
    let said = refused(Pool::connect(&address("redis-sentinel", port)).unwrap()).await;
    assert!(said.contains("wants TLS"), "{said}");
    let plain = address("rediss-sentinel", sentinel.port);
    let trusting = |url: &str| Pool::builder(url).unwrap().root_certificate(authority.pem());
    let said = refused(trusting(&plain).build().unwrap()).await;
    assert!(said.contains("without TLS: write sentinelTls=no"), "{said}");
    // The sentinels without TLS, the primary with it; and the other way round.
    let client = authority.identity(&["another client"]);
    let identified = |url: &str| {
        let client = (client.certificate.clone(), client.key.clone());
        trusting(url).client_certificate(client.0, client.1).tls_server_name("redis.internal")
    };
    let mixed = identified(&format!("{plain}&sentinelTls=no"));
    until_well(&over(mixed.build().unwrap())).await;
    let mixed = address("redis-sentinel", port) + "&sentinelTls=yes";
    let said = refused(identified(&mixed).build().unwrap()).await;
    assert!(said.contains("no connection to redis at") && said.contains("wants TLS"), "{said}");

    sentinel.fail_over().await;
    let begun = Instant::now();
    while asked(&new.plain).await == 0 {
        let _ = counter.add().await;
        assert!(begun.elapsed() < LONG, "the new primary is not asked");
        sleep(Duration::from_millis(5)).await;
    }
    until_well(&counter).await;
}
