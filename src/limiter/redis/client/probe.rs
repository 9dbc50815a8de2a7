//! Whether a server expects TLS, when an attempt to connect says too little.
//!
//! A server without TLS waits for the rest of what it takes for a command, and one with TLS closes
//! the connection: both look like a bad network. So the server is asked again over a connection of
//! its own, in the other way. Nothing of the address is sent, least of all the password, and the
//! answer does no more than choose the text and the kind of the error.

use std::io;
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use super::dialer::Resolver;

/// How long the server has for its answer at most.
const TIMEOUT: Duration = Duration::from_millis(250);

/// The begin of a handshake of TLS 1.2 that offers one cipher. Any answer is that of TLS.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03\
    tower-sluice asks: is this TLS? \x00\x00\x02\xc0\x2f\x01\x00";

/// Whether the server answers a command without TLS.
pub(super) async fn answers_without_tls(
    addr: &ConnectionAddr,
    resolver: Option<&Resolver>,
    deadline: Instant,
) -> bool {
    matches!(answer(addr, resolver, deadline, b"PING\r\n").await, Some([b'+' | b'-', _]))
}

/// Whether the server answers the begin of a handshake of TLS.
pub(super) async fn answers_with_tls(
    addr: &ConnectionAddr,
    resolver: Option<&Resolver>,
    deadline: Instant,
) -> bool {
    const ALERT: u8 = 0x15;
    const HANDSHAKE: u8 = 0x16;
    matches!(answer(addr, resolver, deadline, CLIENT_HELLO).await, Some([ALERT | HANDSHAKE, 3]))
}

/// The first bytes of the answer, if there is one in time.
async fn answer(
    addr: &ConnectionAddr,
    resolver: Option<&Resolver>,
    deadline: Instant,
    question: &[u8],
) -> Option<[u8; 2]> {
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = addr else {
        return None;
    };
    let ask = async {
        let addresses = match resolver {
            Some(resolver) => resolver.addresses(host.clone(), *port).await?,
            None => lookup_host((host.as_str(), *port)).await?.collect(),
        };
        let stream = TcpStream::connect(&addresses[..]).await?;
        stream.writable().await?;
        // A socket that is new takes a few bytes at once.
        stream.try_write(question)?;
        loop {
            stream.readable().await?;
            let mut answer = [0; 2];
            match stream.try_read(&mut answer) {
                Ok(2) => return Ok(answer),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    timeout_at(deadline.min(Instant::now() + TIMEOUT), ask).await.ok()?.ok()
}
