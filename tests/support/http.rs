//! A client as small as HTTP/1.1 allows: one request, one connection, the whole answer.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The answer that came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    head: String,
}

impl Answer {
    /// The value of the header called `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Asks `address` for `path`, with further header lines.
pub async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    send("GET", address, path, headers).await
}

/// Sends a request without a body, whatever its headers say.
pub async fn send(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, body: body.to_owned(), head: head.to_owned() }
}
