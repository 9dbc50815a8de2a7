//! Upstreams: a closure for each connection, on a thread of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// A listening upstream. It lives as long as the process of the test.
pub struct Upstream {
    pub address: SocketAddr,
}

impl Upstream {
    /// Each connection is handed to `serve`, after the head of its first request was read.
    pub fn start(
        serve: impl Fn(Vec<String>, BufReader<TcpStream>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    if let Some(head) = read_head(&mut stream) {
                        serve(head, stream);
                    }
                });
            }
        });
        Self { address }
    }

    /// Answers each request with these lines of a head and this body, and closes.
    pub fn answering(head: &'static str, body: &'static str) -> Self {
        Self::start(move |_, mut stream| {
            let _ = write!(
                stream.get_mut(),
                "{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        })
    }

    /// The same, and reads what the request still brings, so that nothing resets the connection.
    pub fn answering_at_once(head: &'static str, body: &'static str) -> Self {
        Self::start(move |_, mut stream| {
            let length = body.len();
            let _ = write!(
                stream.get_mut(),
                "{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        })
    }

    /// Answers each request of a connection with a word.
    pub fn keeping_alive() -> Self {
        Self::start(|_, mut stream| {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            let _ = stream.get_ref().set_nodelay(true);
            while stream.get_mut().write_all(answer).is_ok() && read_head(&mut stream).is_some() {}
        })
    }

    /// Answers with the head of the request as it came.
    pub fn showing_heads() -> Self {
        Self::start(|head, mut stream| {
            let text = head.join("\n");
            let _ = write!(
                stream.get_mut(),
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            );
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The lines of a head, without the empty one; none if the connection ended.
fn read_head(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

/// Reads a body of `length` bytes.
pub fn read_body(stream: &mut BufReader<TcpStream>, length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    body
}
