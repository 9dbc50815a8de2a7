//! A small HTTP/1.1 client: one connection for each request, unless a test keeps one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::body::Body;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use support::PATIENCE;

/// The answer that came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header that is there at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.iter().filter(|(header, _)| header == name);
        let value = lines.next().map(|(_, value)| value.as_str());
        assert!(lines.next().is_none(), "{name} is there twice: {:?}", self.headers);
        value
    }

    /// All lines of a header.
    pub fn lines(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(header, _)| header == name);
        lines.map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns true if any rate limit field is there.
    pub fn has_fields(&self) -> bool {
        self.headers.iter().any(|(name, _)| name.contains("ratelimit"))
    }
}

/// `GET path`.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, &[], b"")
}

/// One request with a body of its length.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    Connection::open(address).request(method, path, headers, body)
}

/// A connection that stays open.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream: BufReader::new(stream) }
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send_head(method, path, headers, Some(body.len()));
        // Who refuses early may have closed its side.
        self.try_send(body);
        self.answer(method)
    }

    /// Sends the head of a request, with the length that it states.
    pub fn send_head(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += "host: gateway.test\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        match length {
            Some(0) | None => {}
            Some(length) => head += &format!("content-length: {length}\r\n"),
        }
        self.send(format!("{head}\r\n").as_bytes());
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("sent");
    }

    /// Sends what the other side may refuse to take.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub fn read_exact(&mut self, bytes: &mut [u8]) {
        self.stream.read_exact(bytes).expect("bytes");
    }

    /// Returns true if the other side has closed. Waits for it.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    /// Reads a whole answer.
    pub fn answer(&mut self, method: &str) -> Answer {
        let (status, headers) = self.head();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if method == "HEAD" || matches!(status, 101 | 204 | 304) {
            return answer;
        }
        answer.body = match (answer.header("transfer-encoding"), answer.header("content-length")) {
            (Some("chunked"), _) => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
                body
            }
            (_, Some(length)) => {
                let mut body = vec![0; length.parse().expect("a length")];
                self.read_exact(&mut body);
                body
            }
            _ => {
                let mut body = Vec::new();
                self.stream.read_to_end(&mut body).expect("a body");
                body
            }
        };
        answer
    }

    /// Reads a status and headers. `100 Continue` is skipped.
    pub fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            match line.split_once(':') {
                Some((name, value)) => {
                    headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None if status == 100 => return self.head(),
                None => return (status, headers),
            }
        }
    }

    /// Reads a chunk; the last one is none.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a size");
        let mut chunk = vec![0; size + 2];
        self.read_exact(&mut chunk);
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

/// A connection of HTTP/2.
pub async fn by_http2(gateway: SocketAddr) -> SendRequest<Body> {
    by_http2_over(TcpStream::connect(gateway).expect("a connection")).await
}

/// HTTP/2 over this connection.
pub async fn by_http2_over(stream: TcpStream) -> SendRequest<Body> {
    stream.set_nonblocking(true).expect("a socket that does not wait");
    let stream = tokio::net::TcpStream::from_std(stream).expect("a socket of tokio");
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}
