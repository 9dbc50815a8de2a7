//! TLS: the authorities that connections trust, and the certificate of this process.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::address::Host;
use crate::{Error, ErrorKind};

/// The settings of TLS.
#[derive(Clone, Default)]
pub(super) struct Tls {
    roots: Roots,
    identity: Option<ClientTlsConfig>,
}

/// The authorities whose certificates are trusted.
#[derive(Clone, Default)]
enum Roots {
    /// The authorities of the system.
    #[default]
    System,
    /// The authorities that Mozilla trusts, as compiled into the client.
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

    pub(super) fn use_webpki_roots(&mut self) {
        self.roots = Roots::Webpki;
    }

    pub(super) fn set_identity(&mut self, certificate: &[u8], key: &[u8]) {
        let (client_cert, client_key) = (certificate.to_vec(), key.to_vec());
        self.identity = Some(ClientTlsConfig { client_cert, client_key });
    }

    /// Returns the parameters of TLS for every connection. Fails if a certificate cannot be used,
    /// if the process has no crypto provider, or if settings would have no effect.
    pub(super) fn params(&self, uses_tls: bool) -> Result<TlsParams, Error> {
        let is_set = self.identity.is_some() || !matches!(self.roots, Roots::System);
        match (uses_tls, is_set) {
            (true, _) => Ok(TlsParams(Some(self.template()?))),
            (false, false) => Ok(TlsParams(None)),
            (false, true) => {
                let message = "certificates are set, but the address is without TLS: write rediss";
                Err(Error::new(ErrorKind::Configuration, message))
            }
        }
    }

    fn template(&self) -> Result<ConnectionAddr, Error> {
        // Each attempt to connect asks rustls for the provider of the process. Without one, rustls
        // panics, unless its own features name exactly one. Here, only an installed provider is
        // visible.
        let provider = CryptoProvider::get_default().ok_or_else(no_provider)?;
        // The roots must not depend on features of the client that another crate switches on.
        let root_cert = match &self.roots {
            Roots::System => Some(system_roots()?),
            Roots::Webpki => None,
            Roots::Own(pem) => Some(pem.clone()),
        };
        self.check(provider, root_cert.as_deref())?;
        let certificates = TlsCertificates { client_tls: self.identity.clone(), root_cert };
        let (host, port) = (String::new(), 0);
        let addr = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
        let client = Client::build_with_tls(addr, certificates);
        let client = client.map_err(|error| invalid("the certificates", error))?;
        Ok(client.get_connection_info().addr().clone())
    }

    /// Fails if a certificate or the key cannot be used. The client would notice that only at each
    /// attempt to connect.
    fn check(&self, provider: &Arc<CryptoProvider>, root_cert: Option<&[u8]>) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = root_cert {
            for certificate in certificates("the root certificate", pem)? {
                roots.add(certificate).map_err(|error| invalid("the root certificate", error))?;
            }
        }
        let Some(ClientTlsConfig { client_cert, client_key }) = &self.identity else {
            return Ok(());
        };
        let chain = certificates("the client certificate", client_cert)?;
        let key = PrivateKeyDer::from_pem_slice(client_key)
            .map_err(|_| invalid("the key of the client certificate", "no private key in PEM"))?;
        let config = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions();
        let config = config.and_then(|config| {
            config.with_root_certificates(roots).with_client_auth_cert(chain, key)
        });
        config.map(drop).map_err(|error| invalid("the client certificate", error))
    }
}

/// The parameters of TLS for connections; `None` without TLS. They are in an address, since the
/// client does not export their type.
#[derive(Clone)]
pub(super) struct TlsParams(Option<ConnectionAddr>);

impl TlsParams {
    /// Returns the address of a host.
    pub(super) fn addr(&self, host: &Host) -> ConnectionAddr {
        let (host, port) = (host.name.clone(), host.port);
        match &self.0 {
            Some(ConnectionAddr::TcpTls { tls_params, .. }) => {
                let tls_params = tls_params.clone();
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
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

/// Returns the authorities of the system in PEM, the only form that the client reads. Leaves out
/// those that rustls cannot read.
fn system_roots() -> Result<Vec<u8>, Error> {
    let mut found = rustls_native_certs::load_native_certs();
    let (mut readable, mut pem) = (RootCertStore::empty(), String::new());
    for certificate in found.certs {
        if readable.add(certificate.clone()).is_ok() {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            STANDARD.encode_string(&certificate, &mut pem);
            pem.push_str("\n-----END CERTIFICATE-----\n");
        }
    }
    if readable.is_empty() {
        let message = "this system has no certificate authorities: install them, or build the pool \
            with root_certificate or webpki_roots";
        let error = Error::new(ErrorKind::Configuration, message);
        return Err(match found.errors.pop() {
            Some(cause) => error.with_source(cause),
            None => error,
        });
    }
    Ok(pem.into_bytes())
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
