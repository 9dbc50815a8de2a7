//! A proxy that shares keys among servers, and answers each command as twemproxy 0.5 or Envoy 1.40
//! was seen to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use redis::aio::MultiplexedConnection;
use redis::{Client, Value, cmd};
use tokio::io::{AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::fake::command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Twemproxy,
    Envoy,
    /// Envoy with this password. Before `AUTH`, it refuses everything else.
    Guarded(&'static str),
    /// A proxy with RESP3, which says nothing of itself.
    Silent,
    /// A server or proxy that refuses `HELLO` in this way, and is one of Redis in all else.
    Refusing(&'static str),
}

/// A proxy before servers, ended when it is dropped.
pub struct KeyProxy {
    port: u16,
    connections: Arc<AtomicUsize>,
    selects: Arc<AtomicUsize>,
    hellos: Arc<AtomicUsize>,
    serving: JoinSet<()>,
}

#[derive(Clone)]
struct Front {
    kind: Kind,
    servers: Vec<u16>,
    selects: Arc<AtomicUsize>,
    hellos: Arc<AtomicUsize>,
}

impl KeyProxy {
    pub async fn before(kind: Kind, servers: &[u16]) -> Self {
        Self::on(0, kind, servers).await
    }

    /// The same on a port; 0: a free one.
    pub async fn on(port: u16, kind: Kind, servers: &[u16]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (connections, selects, hellos) = <(Arc<AtomicUsize>, Arc<_>, Arc<_>)>::default();
        let (counted, mut serving) = (Arc::clone(&connections), JoinSet::new());
        let front = Front {
            kind,
            servers: servers.to_vec(),
            selects: Arc::clone(&selects),
            hellos: Arc::clone(&hellos),
        };
        serving.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Relaxed);
                clients.spawn(front.clone().serve(stream));
            }
        });
        Self { port, connections, selects, hellos, serving }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The number of connections that it took.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// The number of SELECTs that it got.
    pub fn selects(&self) -> usize {
        self.selects.load(Relaxed)
    }

    /// The number of HELLOs that it got.
    pub fn hellos(&self) -> usize {
        self.hellos.load(Relaxed)
    }

    /// Closes all connections, and takes no more.
    pub async fn end(mut self) -> u16 {
        self.serving.shutdown().await;
        self.port
    }
}

impl Front {
    /// Serves a client until it leaves, or sends what the proxy closes on.
    async fn serve(mut self, stream: TcpStream) {
        let (mut stream, mut servers) = (BufStream::new(stream), vec![None; self.servers.len()]);
        while let Some(words) = command(&mut stream).await {
            let reply = match self.login(&words) {
                Some(reply) => Some(reply.into()),
                None => self.reply(&words, &mut servers).await,
            };
            let Some(reply) = reply else { return };
            if stream.write_all(&reply).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }

    /// The answer to the commands up to a login, if this proxy has a password.
    fn login(&mut self, words: &[Vec<u8>]) -> Option<&'static str> {
        let Kind::Guarded(password) = self.kind else { return None };
        match words {
            [auth, given] if auth == b"AUTH" && given == password.as_bytes() => {
                self.kind = Kind::Envoy;
                Some("+OK\r\n")
            }
            [auth, ..] if auth == b"AUTH" => {
                Some("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
            }
            _ => Some("-NOAUTH Authentication required.\r\n"),
        }
    }

    /// The answer to a command. `None`: the socket is closed without a byte.
    async fn reply(
        &self,
        words: &[Vec<u8>],
        servers: &mut [Option<MultiplexedConnection>],
    ) -> Option<Vec<u8>> {
        const MAP: &str = "*10\r\n$6\r\nserver\r\n$17\r\nenvoy-redis-proxy\r\n$7\r\nversion\r\n\
            $5\r\n6.0.0\r\n$5\r\nproto\r\n:2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n\
            $6\r\nmaster\r\n";
        let name = String::from_utf8_lossy(words.first()?).to_ascii_uppercase();
        let is_script = name.starts_with("EVAL");
        let keys = words.get(2).filter(|_| is_script).map(|keys| String::from_utf8_lossy(keys));
        let keys: usize = keys.and_then(|keys| keys.parse().ok()).unwrap_or(0);
        match &*name {
            "SELECT" => _ = self.selects.fetch_add(1, Relaxed),
            "HELLO" => _ = self.hellos.fetch_add(1, Relaxed),
            _ => {}
        }
        let text = match (self.kind, &*name) {
            (Kind::Twemproxy | Kind::Envoy, "PING") => "+PONG\r\n",
            (Kind::Twemproxy, "AUTH") if words.len() == 2 => {
                "-ERR Client sent AUTH, but no password is set\r\n"
            }
            (Kind::Twemproxy, _) if keys == 0 => return None,
            (Kind::Envoy, "HELLO") if words.get(1).is_some_and(|version| *version == b"3") => {
                "-NOPROTO unsupported protocol version\r\n"
            }
            (Kind::Envoy, "HELLO") => MAP,
            (Kind::Envoy, "SELECT" | "CLIENT") => "+OK\r\n",
            (Kind::Envoy, "SUBSCRIBE") => "-ERR unknown command 'SUBSCRIBE', with args\r\n",
            (Kind::Envoy, "EVAL" | "EVALSHA") if keys == 0 => {
                "-wrong number of arguments for 'EVAL' command\r\n"
            }
            (Kind::Silent, "HELLO") => "%1\r\n+proto\r\n:3\r\n",
            (Kind::Refusing(""), "HELLO") => return None,
            (Kind::Refusing(text), "HELLO") => text,
            _ => return Some(self.forward(words, keys, servers).await),
        };
        Some(text.into())
    }

    /// Sends a command to the server of its first key. Proxies can be set to look at the hash tag
    /// alone, if a key has one.
    async fn forward(
        &self,
        words: &[Vec<u8>],
        keys: usize,
        servers: &mut [Option<MultiplexedConnection>],
    ) -> Vec<u8> {
        let key = if keys == 0 {
            0
        } else {
            let tagged = words[3].split(|byte| *byte == b'{').nth(1);
            let tag = tagged.and_then(|tagged| tagged.split(|byte| *byte == b'}').next());
            tag.unwrap_or(&words[3])
                .iter()
                .fold(7, |sum: usize, byte| (sum ^ usize::from(*byte)).wrapping_mul(16_777_619))
        };
        let at = (key >> 7) % servers.len();
        if servers[at].is_none() {
            let client = Client::open(format!("redis://127.0.0.1:{}", self.servers[at]));
            let client = client.expect("an address");
            servers[at] = client.get_multiplexed_async_connection().await.ok();
        }
        let mut command = cmd(&String::from_utf8_lossy(&words[0]));
        words[1..].iter().for_each(|word| _ = command.arg(&word[..]));
        let reply = match &mut servers[at] {
            Some(server) => server.send_packed_command(&command).await.ok(),
            None => None,
        };
        match reply {
            Some(reply) => bytes(&reply),
            None => {
                servers[at] = None;
                match self.kind {
                    Kind::Envoy => "-upstream failure\r\n".into(),
                    _ => "-ERR Connection refused\r\n".into(),
                }
            }
        }
    }
}

/// The bytes of a reply in RESP2.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Nil => "$-1\r\n".into(),
        Value::Int(number) => format!(":{number}\r\n").into(),
        Value::Okay => "+OK\r\n".into(),
        Value::SimpleString(text) => format!("+{text}\r\n").into(),
        Value::BulkString(text) => {
            [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
        }
        Value::Array(values) => {
            let mut all = format!("*{}\r\n", values.len()).into_bytes();
            values.iter().for_each(|value| all.extend(bytes(value)));
            all
        }
        Value::ServerError(error) => {
            let text = error.details().unwrap_or_default();
            format!("-{} {text}\r\n", error.code()).into()
        }
        other => panic!("no reply of RESP2: {other:?}"),
    }
}
