//! A proxy that replaces digests by others in what clients send, so that other scripts run
//! under their names. The crate itself stays as it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Listens on a free port, and passes everything on to `server`; ends with the process.
pub(crate) fn swapping(server: SocketAddr, swaps: Vec<(String, String)>) -> String {
    assert!(swaps.iter().all(|(digest, by)| digest.len() == by.len()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
            let (Ok(answers), Ok(asked)) = (upstream.try_clone(), client.try_clone()) else {
                return;
            };
            thread::spawn(move || pass(answers, client, |bytes| bytes.len()));
            let swaps = swaps.clone();
            thread::spawn(move || pass(asked, upstream, |bytes| swap(bytes, &swaps)));
        }
    });
    format!("redis://{address}")
}

/// Passes on as many bytes as `ready` returns.
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

/// Replaces the digests, and returns how many bytes may be passed on: all but an incomplete digest.
fn swap(bytes: &mut [u8], swaps: &[(String, String)]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let found = swaps.iter().find(|(digest, _)| rest.starts_with(digest.as_bytes()));
        if let Some((_, by)) = found {
            bytes[at..at + by.len()].copy_from_slice(by.as_bytes());
            at += by.len();
        } else if swaps.iter().any(|(digest, _)| digest.as_bytes().starts_with(rest)) {
            return at;
        } else {
            at += 1;
        }
    }
    at
}
