//! Replaces `tls.rs` without the feature `rustls`.

use std::io;

use redis::ConnectionAddr;

use super::address::Host;
use super::dialer::Stream;
use super::error::{Error, ErrorKind};

/// The settings of TLS: empty without the feature.
#[derive(Clone, Default)]
pub(super) struct Tls {}

impl Tls {
    /// Fails if the address asks for TLS.
    pub(super) fn params(&self, uses_tls: bool) -> Result<TlsParams, Error> {
        match uses_tls {
            true => {
                let message = "rediss:// needs the feature rustls";
                Err(Error::new(ErrorKind::Configuration, message))
            }
            false => Ok(TlsParams {}),
        }
    }
}

/// The parameters of TLS for connections: empty without the feature.
#[derive(Clone, Default)]
pub(super) struct TlsParams {}

impl TlsParams {
    /// Returns the address of a host.
    pub(super) fn addr(&self, host: &Host) -> ConnectionAddr {
        ConnectionAddr::Tcp(host.name.clone(), host.port)
    }

    /// Returns the stream as it is.
    pub(super) async fn encrypt(
        &self,
        _: &str,
        stream: impl Stream + 'static,
    ) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(stream))
    }
}
