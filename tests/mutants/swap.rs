//! A way to a server on which another script answers to a script's name: of what is sent, one
//! digest becomes another.
//!
//! So the crate is judged with a mutated script while the crate itself stays as it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Listens on a free port, and passes everything on to `server`; ends with the process.
pub(crate) fn swapping(server: SocketAddr, digest: &str, by: &str) -> String {
    assert_eq!(digest.len(), by.len());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (digest, by) = (digest.as_bytes().to_vec(), by.as_bytes().to_vec());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
            let (Ok(answers), Ok(asked)) = (upstream.try_clone(), client.try_clone()) else {
                return;
            };
            thread::spawn(move || pass(answers, client, |bytes| bytes.len()));
            let (digest, by) = (digest.clone(), by.clone());
            thread::spawn(move || pass(asked, upstream, |bytes| swap(bytes, &digest, &by)));
        }
    });
    format!("redis://{address}")
}

/// Passes on what `ready` says may go.
fn pass(mut from: TcpStream, mut to: TcpStream, mut ready: impl FnMut(&mut [u8]) -> usize) {
    let (mut held, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        held.extend_from_slice(&buffer[..read]);
        let ready = ready(&mut held);
        if to.write_all(&held[..ready]).is_err() {
            break;
        }
        held.drain(..ready);
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// Swaps, and tells how much may go: all but a digest that has only begun.
fn swap(bytes: &mut [u8], digest: &[u8], by: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(digest) {
            bytes[at..at + by.len()].copy_from_slice(by);
            at += by.len();
        } else if digest.starts_with(rest) {
            return at;
        } else {
            at += 1;
        }
    }
    at
}
