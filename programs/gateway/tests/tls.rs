//! Upstreams behind https, and whom the gateway trusts.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::Gateway;
use common::grpc::{answer, channel, say};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use support::files::Files;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves the gRPC service, and a line of text at `/`, as `localhost`. Returns the port, and writes
/// the certificate to a file.
async fn serve(certificate: &Path) -> u16 {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(certificate, cert.pem()).expect("written");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth();
    let mut config = config.with_single_cert(vec![cert.der().clone()], key).expect("a key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(answer);
                let _ = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    port
}

async fn get(gateway: &Gateway) -> common::Answer {
    let listen = gateway.listen;
    tokio::task::spawn_blocking(move || common::get(listen, "/")).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_the_system_does_not_know_is_named() {
    let folder = Files::new();
    let (trusted, other) = (folder.join("trusted.pem"), folder.join("other.pem"));
    let port = serve(&trusted).await;
    serve(&other).await;
    let url = format!("https://localhost:{port}");
    let start = |certificate: &Path| {
        let certificate = certificate.to_str().expect("text");
        Gateway::start(common::NO_POLICIES, &[("UPSTREAM", &url), ("SSL_CERT_FILE", certificate)])
    };
    let gateway = start(&trusted);
    let answer = get(&gateway).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "HTTP/1.1"),
        "{}",
        gateway.process.stderr()
    );
    // gRPC agrees on HTTP/2 when the connection is made.
    let said = say(&channel(gateway.listen).await, "hello").await;
    assert_eq!(said.expect("an answer"), "HELLO");

    let stranger = start(&other);
    assert_eq!(get(&stranger).await.status, 502);
    support::until("the cause", || stranger.process.stderr().contains("certificate"));
}
