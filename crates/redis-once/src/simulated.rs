//! Servers for tests, at sockets in memory.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::address::Host;
use super::dialer::Dialer;
use super::event::Listener;
use super::server::{Connector, Login};
use super::tls::Tls;

/// The size of a socket's buffer.
const BUFFER: usize = 4_096;

/// Returns the host of a server, by its port.
pub(super) fn host(port: u16) -> Host {
    Host { name: "127.0.0.1".into(), port }
}

/// Returns settings to connect to servers whose sockets `dialer` opens.
pub(super) fn connector(timeout: Duration, dialer: Dialer) -> Connector {
    Connector {
        tls: Tls::default().params(false).expect("no TLS"),
        login: Login::new(redis::RedisConnectionInfo::default()),
        protocol: None,
        size: 1,
        timeout,
        resolver: None,
        dialer: Some(dialer),
        listener: Listener::default(),
    }
}

/// Opens a socket to a server that answers a word of a command by `reply`. For an empty text it
/// answers nothing.
pub(super) fn served(reply: impl Fn(&str) -> &'static str + Send + 'static) -> DuplexStream {
    let (own, other) = duplex(BUFFER);
    tokio::spawn(serve(other, reply));
    own
}

/// Serves until the client closes the socket.
pub(super) async fn serve(
    mut socket: DuplexStream,
    reply: impl Fn(&str) -> &'static str,
) -> io::Result<()> {
    let mut bytes = [0; BUFFER];
    loop {
        let length = socket.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        for line in String::from_utf8_lossy(&bytes[..length]).lines() {
            socket.write_all(reply(line).as_bytes()).await?;
        }
    }
}
