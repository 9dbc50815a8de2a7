//! TLS: the authorities that connections trust, the certificate of this process, and the name of
//! the servers.

use std::io;
use std::sync::{Arc, Mutex};

use redis::ConnectionAddr;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::address::Host;
use super::dialer::Stream;
use super::error::{Error, ErrorKind};
use super::lock::lock;

/// The settings of TLS.
#[derive(Clone, Default)]
pub(super) struct Tls {
    pub(super) roots: Roots,
    /// The certificate of this process with its chain, and the private key, both in PEM.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the certificates of all servers; `None`: the host of each.
    pub(super) server_name: Option<String>,
}

/// The authorities whose certificates are trusted.
#[derive(Clone, Default)]
pub(super) enum Roots {
    /// The authorities of the system.
    #[default]
    System,
    /// The authorities that Mozilla trusts, as compiled into this process.
    Webpki,
    /// Certificates from the application, in PEM.
    Own(Vec<u8>),
}

impl Tls {
    /// Trusts only the authorities in `pem`, and those of earlier calls.
    pub(super) fn add_root(&mut self, pem: &[u8]) {
        if !matches!(self.roots, Roots::Own(_)) {
            self.roots = Roots::Own(Vec::new());
        }
        if let Roots::Own(all) = &mut self.roots {
            all.extend_from_slice(pem);
            all.push(b'\n');
        }
    }

    /// Returns the parameters of TLS for every connection. Fails if a certificate or the name
    /// cannot be used, if the process has no crypto provider, or if settings would have no effect.
    pub(super) fn params(&self, uses_tls: bool) -> Result<TlsParams, Error> {
        let is_set = self.identity.is_some()
            || self.server_name.is_some()
            || !matches!(self.roots, Roots::System);
        match (uses_tls, is_set) {
            (true, _) => Ok(TlsParams(Some(Arc::new(Mutex::new(self.clone().state()?))))),
            (false, false) => Ok(TlsParams(None)),
            (false, true) => {
                let message = "settings of TLS are made, but the address is without TLS: write \
                    rediss";
                Err(Error::new(ErrorKind::Configuration, message))
            }
        }
    }

    fn state(self) -> Result<TlsState, Error> {
        Ok(TlsState { encryption: self.encryption()?, settings: self })
    }

    fn encryption(&self) -> Result<Encryption, Error> {
        // Without an installed provider, rustls panics, unless its own features name exactly one.
        let provider = CryptoProvider::get_default().ok_or_else(no_provider)?;
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Roots::System => roots = system_roots()?,
            Roots::Webpki => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Roots::Own(pem) => {
                for certificate in certificates("the root certificate", pem)? {
                    roots
                        .add(certificate)
                        .map_err(|error| invalid("the root certificate", error))?;
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("the crypto provider", error))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("the client certificate", certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
                    invalid("the key of the client certificate", "no private key in PEM")
                })?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| invalid("the client certificate", error))?
            }
        };
        let name = self.server_name.clone().map(ServerName::try_from).transpose();
        let name = name.map_err(|error| invalid("the TLS server name", error))?;
        Ok(Encryption { connector: Arc::new(config).into(), name })
    }
}

/// The parameters of TLS for connections, which may change while a pool is used; `None` without
/// TLS. Clones share them.
#[derive(Clone, Default)]
pub(super) struct TlsParams(Option<Arc<Mutex<TlsState>>>);

struct TlsState {
    settings: Tls,
    encryption: Encryption,
}

#[derive(Clone)]
struct Encryption {
    connector: TlsConnector,
    /// The name in the certificates of all servers; `None`: the host of each.
    name: Option<ServerName<'static>>,
}

impl TlsParams {
    /// Shows another certificate on all later connections. They resume no session of an earlier
    /// certificate, since each configuration of rustls has sessions of its own.
    pub(super) fn set_identity(&self, certificate: &[u8], key: &[u8]) -> Result<(), Error> {
        let state = self.0.as_ref().ok_or_else(|| {
            let message = "the connections of this pool are without TLS, or the application made \
                them";
            Error::new(ErrorKind::Configuration, message)
        })?;
        let settings = lock(state).settings.clone();
        let identity = Some((certificate.to_vec(), key.to_vec()));
        let changed = Tls { identity, ..settings }.state()?;
        *lock(state) = changed;
        Ok(())
    }

    /// Returns the address of a host.
    pub(super) fn addr(&self, host: &Host) -> ConnectionAddr {
        let (host, port) = (host.name.clone(), host.port);
        match &self.0 {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        }
    }

    /// Encrypts a stream to a host, if connections use TLS.
    pub(super) async fn encrypt(
        &self,
        host: &str,
        stream: impl Stream + 'static,
    ) -> io::Result<Box<dyn Stream>> {
        let Some(state) = &self.0 else { return Ok(Box::new(stream)) };
        let Encryption { connector, name } = lock(state).encryption.clone();
        let name = match name {
            Some(name) => name,
            None => ServerName::try_from(host.to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
        };
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

/// Reads the certificates in `pem`, at least one.
fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(invalid(what, "no certificate in PEM")),
    }
}

/// Returns the authorities of the system. Leaves out those that rustls cannot read.
fn system_roots() -> Result<RootCertStore, Error> {
    let mut found = rustls_native_certs::load_native_certs();
    let mut readable = RootCertStore::empty();
    readable.add_parsable_certificates(found.certs);
    if readable.is_empty() {
        let message = "this system has no certificate authorities: install them, or build the pool \
            with root_certificate or webpki_roots";
        let error = Error::new(ErrorKind::Configuration, message);
        return Err(match found.errors.pop() {
            Some(cause) => error.with_source(cause),
            None => error,
        });
    }
    Ok(readable)
}

fn no_provider() -> Error {
    let message = "rediss:// needs a crypto provider: install one before the pool is built, such as \
        rustls::crypto::ring::default_provider().install_default(); that rustls is compiled with \
        one is not enough";
    Error::new(ErrorKind::Configuration, message)
}

fn invalid(what: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Configuration, format!("{what} cannot be used")).with_source(cause)
}
