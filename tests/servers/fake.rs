//! A server that says what a test wants: the handshake goes well, and every script is answered
//! with given bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// Serves each connection by a task of its own. Returns the address.
pub async fn serving<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = Option<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Answers every script with `reply`. Returns the address.
pub async fn answering(reply: Vec<u8>) -> SocketAddr {
    answering_in_turn(vec![reply]).await
}

/// Answers each script with the next reply, in the end always with the last. Returns the address.
pub async fn answering_in_turn(replies: Vec<Vec<u8>>) -> SocketAddr {
    let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
    serving(move |stream| {
        let replies = Arc::clone(&replies);
        serve(stream, move || next(&replies))
    })
    .await
}

/// Answers all scripts on the connection that asks first with the first reply, and all others with
/// the second. Returns the address.
pub async fn answering_first(first: &'static str, others: &'static str) -> SocketAddr {
    let replies = [first, others].map(|reply| reply.as_bytes().to_vec());
    let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
    serving(move |stream| {
        let (replies, own) = (Arc::clone(&replies), OnceLock::new());
        serve(stream, move || own.get_or_init(|| next(&replies)).clone())
    })
    .await
}

/// Greets, and answers each script with the next reply.
async fn serve(stream: TcpStream, reply: impl Fn() -> Vec<u8>) -> Option<()> {
    answer(stream, |words| match words[0].to_ascii_uppercase().as_slice() {
        b"EVALSHA" | b"EVAL" => reply(),
        b"HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    })
    .await
}

/// A node of a cluster that holds every slot by its own account, and redirects each script to
/// `host`, which is its own, or empty. Counts its connections. Returns its port.
pub async fn redirecting_to_itself(host: &'static str, connections: Arc<AtomicU64>) -> u16 {
    let node = serving(move |stream| {
        connections.fetch_add(1, Relaxed);
        let port = stream.local_addr().expect("an address").port();
        answer(stream, move |words| match words[0].to_ascii_uppercase().as_slice() {
            b"HELLO" => b"%2\r\n+proto\r\n:3\r\n+mode\r\n+cluster\r\n".to_vec(),
            b"CLUSTER" => {
                let master = format!("*3\r\n+{host}\r\n:{port}\r\n+id\r\n");
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n{master}").into_bytes()
            }
            b"EVALSHA" | b"EVAL" => format!("-MOVED 1 {host}:{port}\r\n").into_bytes(),
            _ => b"+OK\r\n".to_vec(),
        })
    });
    node.await.port()
}

/// A sentinel that always names the server at `port`, in the configuration of `epoch`. Returns its
/// own port.
pub async fn sentinel(port: u16, epoch: u64) -> u16 {
    let say = move |words: &[Vec<u8>]| match words[0].to_ascii_uppercase().as_slice() {
        b"HELLO" => b"%2\r\n+proto\r\n:3\r\n+mode\r\n+sentinel\r\n".to_vec(),
        b"SENTINEL" if words[1].eq_ignore_ascii_case(b"MASTER") => {
            format!("%1\r\n+config-epoch\r\n+{epoch}\r\n").into_bytes()
        }
        b"SENTINEL" => format!("*2\r\n+127.0.0.1\r\n+{port}\r\n").into_bytes(),
        b"SUBSCRIBE" => {
            let channels = (1..words.len()).map(|count| {
                let name = String::from_utf8_lossy(&words[count]);
                format!(">3\r\n+subscribe\r\n+{name}\r\n:{count}\r\n")
            });
            channels.collect::<String>().into_bytes()
        }
        _ => b"+OK\r\n".to_vec(),
    };
    serving(move |stream| answer(stream, say)).await.port()
}

/// Closes a connection at each second `HELLO`, from the first on, and is silent at the others. It
/// answers all else. Returns its port.
pub async fn closing_or_silent_at_hello() -> u16 {
    let closes = Arc::new(AtomicBool::new(false));
    let server = serving(move |stream| {
        let (closes, mut stream) = (Arc::clone(&closes), BufStream::new(stream));
        async move {
            while let Some(words) = command(&mut stream).await {
                if !words.first()?.eq_ignore_ascii_case(b"HELLO") {
                    stream.write_all(b"+PONG\r\n").await.ok()?;
                    stream.flush().await.ok()?;
                } else if !closes.fetch_xor(true, Relaxed) {
                    break;
                }
            }
            Some(())
        }
    });
    server.await.port()
}

/// Answers every script with a reply that has no end, and counts in `sent` the most bytes of one.
/// Returns the address.
pub async fn never_ending(sent: Arc<AtomicU64>) -> SocketAddr {
    serving(move |stream| {
        let (sent, mut stream) = (Arc::clone(&sent), BufStream::new(stream));
        async move {
            loop {
                let words = command(&mut stream).await?;
                let reply: &[u8] = match words.first()?.as_slice() {
                    b"EVALSHA" | b"EVAL" => break,
                    b"HELLO" => b"%1\r\n+proto\r\n:3\r\n",
                    _ => b"+OK\r\n",
                };
                stream.write_all(reply).await.ok()?;
                stream.flush().await.ok()?;
            }
            stream.write_all(b"$1000000000000\r\n").await.ok()?;
            let (mut own, zeros) = (0, [b'0'; 65_536]);
            loop {
                own += stream.write(&zeros).await.ok()? as u64;
                sent.fetch_max(own, Relaxed);
            }
        }
    })
    .await
}

/// Answers each command on `stream` with what `say` returns.
async fn answer(stream: TcpStream, say: impl Fn(&[Vec<u8>]) -> Vec<u8>) -> Option<()> {
    let mut stream = BufStream::new(stream);
    loop {
        let words = command(&mut stream).await?;
        words.first()?;
        stream.write_all(&say(&words)).await.ok()?;
        stream.flush().await.ok()?;
    }
}

fn next(replies: &Mutex<VecDeque<Vec<u8>>>) -> Vec<u8> {
    let mut replies = replies.lock().expect("not poisoned");
    match replies.len() {
        1 => replies[0].clone(),
        _ => replies.pop_front().expect("a reply"),
    }
}

/// The words of one command.
pub async fn command(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<Vec<u8>>> {
    let count = number(stream).await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(stream).await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(word);
    }
    Some(words)
}

/// The number of a line such as `*3` or `$5`.
async fn number(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    line.get(1..)?.trim_end().parse().ok()
}
