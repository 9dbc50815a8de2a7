//! Checks why an attempt to connect failed: if a server expects TLS, or closes at `HELLO`.
//!
//! A server without TLS reads a handshake as a command, and waits for the rest. A server with TLS
//! closes the connection after a plain command. Both look like a bad network. So a probe opens
//! another connection, and asks in the other way: without TLS, or with it. It sends no part of the
//! address, and so no password. The answer only determines the text and the kind of the error.

use std::io;

use redis::ConnectionAddr;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::dialer::{Resolver, addresses};
use super::times::PROBE_TIMEOUT;

/// The start of a TLS 1.2 handshake that offers one cipher. A server with TLS answers it, at least
/// with an alert.
pub(super) const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03\
    tower-sluice asks: is this TLS? \x00\x00\x02\xc0\x2f\x01\x00";

/// A command that each server without TLS answers.
pub(super) const PING: &[u8] = b"PING\r\n";

/// A command that a server or a proxy may answer by closing the connection.
pub(super) const HELLO: &[u8] = b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";

/// Sends `question` over a new connection. Returns the first bytes of the answer. An answer of one
/// byte has a zero behind it. A connection that ends without an answer is an error of its own, and
/// so is a late answer.
pub(super) async fn answer(
    addr: &ConnectionAddr,
    resolver: Option<&Resolver>,
    deadline: Instant,
    question: &[u8],
) -> io::Result<[u8; 2]> {
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = addr else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let ask = async {
        let stream = TcpStream::connect(&addresses(host, *port, resolver).await?[..]).await?;
        stream.writable().await?;
        // A new socket takes a few bytes in one write.
        stream.try_write(question)?;
        loop {
            stream.readable().await?;
            let mut answer = [0; 2];
            match stream.try_read(&mut answer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(answer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let in_time = timeout_at(deadline.min(Instant::now() + PROBE_TIMEOUT), ask).await;
    in_time.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
