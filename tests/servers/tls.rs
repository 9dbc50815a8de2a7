//! Servers with TLS, and the certificates that they and their clients show, made when a test runs.

use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use super::files::Files;
use super::{Server, free_port};

/// Installs the crypto provider of this process, which every pool with TLS needs.
pub fn install_crypto_provider() {
    // Tests of one binary share it.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The number of things that were made so far, so that each has a name of its own.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names and IP addresses, valid today.
    pub fn identity(&self, names: &[&str]) -> Identity {
        self.sign(names, 4_000)
    }

    /// A certificate that has expired.
    pub fn expired(&self, names: &[&str]) -> Identity {
        self.sign(names, 2_001)
    }

    fn sign(&self, names: &[&str], last_year: i32) -> Identity {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, "a peer of a test");
        (params.not_before, params.not_after) =
            (date_time_ymd(2_000, 1, 1), date_time_ymd(last_year, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// Returns the settings by which a server or a sentinel takes clients with TLS on a port, with
/// their names.
pub fn settings(
    files: &Files,
    port: u16,
    own: &Identity,
    clients: Option<&Authority>,
) -> [(&'static str, String); 5] {
    // A server wants one also if it asks clients for nothing.
    let authority = clients.map_or_else(|| own.certificate.clone(), Authority::pem);
    [
        ("tls-port", port.to_string()),
        ("tls-cert-file", files.write("server.crt", &own.certificate)),
        ("tls-key-file", files.write("server.key", &own.key)),
        ("tls-ca-cert-file", files.write("clients.crt", &authority)),
        ("tls-auth-clients", String::from(if clients.is_some() { "yes" } else { "no" })),
    ]
}

/// A server that takes clients with TLS on one port, and without on another.
pub struct TlsServer {
    pub plain: Server,
    port: u16,
    _files: Files,
}

impl TlsServer {
    /// A server that asks clients for no certificate.
    pub fn start(own: &Identity) -> Self {
        Self::with(own, None)
    }

    /// A server that asks clients for a certificate which `clients` has signed.
    pub fn asking(own: &Identity, clients: &Authority) -> Self {
        Self::with(own, Some(clients))
    }

    /// A server that asks clients for a certificate, and that replicates with TLS: from the server
    /// at a port with TLS, if there is one.
    pub fn replicated(own: &Identity, clients: &Authority, primary: Option<u16>) -> Self {
        let mut options = vec![String::from("--tls-replication"), String::from("yes")];
        if let Some(port) = primary {
            options.extend(["--replicaof", "127.0.0.1", &port.to_string()].map(String::from));
        }
        Self::with_options(own, Some(clients), &options)
    }

    /// The only node of a cluster, which announces an IP address.
    pub async fn of_cluster(own: &Identity) -> Self {
        let options = ["--cluster-enabled", "yes", "--tls-cluster", "yes"].map(String::from);
        let server = Self::with_options(own, None, &options);
        let mut connection = server.plain.connection().await;
        let mut assign = redis::cmd("CLUSTER");
        assign.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>());
        assign.exec_async(&mut connection).await.expect("its slots");
        server
    }

    /// A server without `HELLO`, so without RESP3.
    pub fn without_hello(own: &Identity) -> Self {
        Self::with_options(own, None, &["--rename-command", "HELLO", ""].map(String::from))
    }

    fn with(own: &Identity, clients: Option<&Authority>) -> Self {
        Self::with_options(own, clients, &[])
    }

    fn with_options(own: &Identity, clients: Option<&Authority>, more: &[String]) -> Self {
        let (files, mut port) = (Files::new(), 0);
        let plain = Server::choosing(|| {
            port = free_port();
            let settings = settings(&files, port, own, clients);
            let options =
                settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
            (free_port(), options.chain(more.iter().cloned()).collect())
        });
        Self { plain, port, _files: files }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address with TLS.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }
}
