//! The address: pools of the crate, and connections beside them that look into the servers.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, RedisError, TlsCertificates, Value, cmd,
};
use tower_sluice::{ErrorKind, Pool};

use support::cluster::{SLOTS, slot_of};

/// So long that the machine's speed decides nothing.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The form of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Server,
    Cluster,
    Sentinels,
    Socket,
}

#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) url: String,
    pub(crate) form: Form,
    pub(crate) uses_tls: bool,
    authority: Option<Vec<u8>>,
}

impl Access {
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let scheme = url.split(':').next().unwrap_or_default();
        let uses_tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
        let form = match scheme {
            _ if scheme.contains("cluster") => Form::Cluster,
            _ if scheme.contains("sentinel") => Form::Sentinels,
            _ if scheme.contains("unix") => Form::Socket,
            _ => Form::Server,
        };
        // TLS needs a crypto provider, which an application chooses.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = match std::env::var_os("REDIS_CA").filter(|_| uses_tls) {
            Some(path) => Some(fs::read(path).map_err(|error| format!("REDIS_CA: {error}"))?),
            None => None,
        };
        let access = Self { url: url.to_owned(), form, uses_tls, authority };
        access.pool().map(drop)?;
        Ok(access)
    }

    /// The text without the passwords of the address.
    pub(crate) fn hush(&self, text: &str) -> String {
        let info = self.plain().ok();
        let password = info.as_ref().and_then(|info| info.redis_settings().password());
        let written = self.url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        let written = written.and_then(|(user, _)| user.split_once(':')).map(|(_, word)| word);
        let of_sentinels = self.parameter("sentinelPassword");
        let words = [password, written, of_sentinels].into_iter().flatten();
        words
            .filter(|word| !word.is_empty())
            .fold(text.to_owned(), |text, word| text.replace(word, "***"))
    }

    pub(crate) fn builder(&self) -> Result<tower_sluice::redis::PoolBuilder, String> {
        let builder = Pool::builder(&self.url).map_err(|error| self.hush(&format!("{error:#}")))?;
        Ok(match &self.authority {
            Some(pem) => builder.root_certificate(pem),
            None => builder,
        })
    }

    pub(crate) fn pool(&self) -> Result<Pool, String> {
        self.builder()?.build().map_err(|error| self.hush(&format!("{error:#}")))
    }

    /// A pool that waits for connections and answers as long as the decisions do.
    pub(crate) fn patient_pool(&self) -> Result<Pool, String> {
        let builder = self.builder()?.connect_timeout(LONG).response_timeout(LONG);
        builder.build().map_err(|error| self.hush(&format!("{error:#}")))
    }

    /// The first server of the address, as the plain client knows it.
    fn plain(&self) -> Result<ConnectionInfo, String> {
        let (_, rest) = self.url.split_once("://").ok_or("no scheme")?;
        let first = rest.split('?').next().unwrap_or_default();
        let plain = match self.form {
            Form::Socket => format!("unix://{rest}"),
            _ if self.uses_tls => format!("rediss://{first}"),
            _ => format!("redis://{first}"),
        };
        plain
            .into_connection_info()
            .map_err(|_| String::from("another client reads no such address"))
    }

    /// A parameter of the address.
    fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.url.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// Connections to the server, or to each master of the cluster.
    pub(crate) async fn connections(&self) -> Result<Connections, String> {
        let first = self.plain()?;
        let mut nodes = Vec::new();
        match self.form {
            Form::Server | Form::Socket => {
                nodes.push(Node::over(self.connect(first).await?, 0..=SLOTS - 1));
            }
            Form::Sentinels => {
                let primary = self.primary(&first).await?;
                nodes.push(Node::over(self.connect(primary).await?, 0..=SLOTS - 1));
            }
            Form::Cluster => {
                let mut connection = self.connect(first.clone()).await?;
                let ranges: Vec<Value> = ask(&mut connection, &["CLUSTER", "SLOTS"]).await?;
                for range in ranges {
                    let fields: Vec<Value> = read(range)?;
                    let [begin, end, master, ..] = &fields[..] else { continue };
                    let slots = read::<u16>(begin.clone())?..=read::<u16>(end.clone())?;
                    let master: Vec<Value> = read(master.clone())?;
                    let [host, port, ..] = &master[..] else { continue };
                    let host: Option<String> = read(host.clone())?;
                    let host = host.filter(|host| !host.is_empty());
                    let info = at(&first, host, read(port.clone())?);
                    nodes.push(Node::over(self.connect(info).await?, slots));
                }
            }
        }
        Ok(Connections { nodes })
    }

    /// The primary that a sentinel names.
    async fn primary(&self, first: &ConnectionInfo) -> Result<ConnectionInfo, String> {
        let name = self.parameter("sentinelServiceName").ok_or("no service name")?;
        let (_, rest) = self.url.split_once("://").ok_or("no scheme")?;
        let host = rest.rsplit('@').next().unwrap_or_default();
        let has_port = host.split(['/', '?']).next().is_some_and(|host| host.contains(':'));
        let own = first.redis_settings().clone();
        let blank = match (self.parameter("sentinelUsername"), self.parameter("sentinelPassword")) {
            (user, Some(password)) => {
                own.clone().set_username(user.unwrap_or("default")).set_password(password)
            }
            _ => redis::RedisConnectionInfo::default(),
        };
        let port = if has_port { port_of(first) } else { 26_379 };
        let sentinel = at(first, None, port).set_redis_settings(blank.set_db(0));
        let mut connection = self.connect(sentinel).await?;
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
        let address: Option<(String, u16)> = ask(&mut connection, &words).await?;
        let (host, port) = address.ok_or("the sentinel knows no such service")?;
        Ok(at(first, Some(host), port))
    }

    async fn connect(&self, info: ConnectionInfo) -> Result<MultiplexedConnection, String> {
        let client = match self.uses_tls {
            true => {
                let root_cert = self.authority.clone();
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
            false => Client::open(info),
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(5)))
            .set_response_timeout(Some(LONG));
        let client = client.map_err(|error| self.hush(&said(&error)))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map_err(|error| self.hush(&said(&error)))
    }
}

fn port_of(info: &ConnectionInfo) -> u16 {
    match info.addr() {
        ConnectionAddr::Tcp(_, port) | ConnectionAddr::TcpTls { port, .. } => *port,
        _ => 0,
    }
}

/// The same login at another host and port.
fn at(info: &ConnectionInfo, host: Option<String>, port: u16) -> ConnectionInfo {
    let address = match (info.addr().clone(), host) {
        (ConnectionAddr::Tcp(own, _), host) => ConnectionAddr::Tcp(host.unwrap_or(own), port),
        (ConnectionAddr::TcpTls { host: own, insecure, tls_params, .. }, host) => {
            ConnectionAddr::TcpTls { host: host.unwrap_or(own), port, insecure, tls_params }
        }
        (other, _) => other,
    };
    info.clone().set_addr(address)
}

/// The reason in a word, as NOPERM, or else the text.
fn said(error: &RedisError) -> String {
    match error.code() {
        Some(code) => code.to_owned(),
        None => error.to_string(),
    }
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, String> {
    redis::from_redis_value(value).map_err(|error| error.to_string())
}

/// Sends a command. The error names the command, such as `NOPERM on SCAN`.
pub(crate) async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> Result<T, String> {
    let answer = cmd(words[0]).arg(&words[1..]).query_async(connection).await;
    answer.map_err(|error| format!("{} on {}", said(&error), words[0]))
}

/// Connections to each server that decides.
pub(crate) struct Connections {
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) connection: MultiplexedConnection,
    slots: RangeInclusive<u16>,
}

impl Node {
    fn over(connection: MultiplexedConnection, slots: RangeInclusive<u16>) -> Self {
        Self { connection, slots }
    }
}

/// The most keys of a server that are looked through.
const MOST_KEYS: u64 = 200_000;

impl Connections {
    /// A connection to the server that holds a charge's key.
    pub(crate) fn holding(&self, key: &str) -> Result<MultiplexedConnection, String> {
        let slot = slot_of(key);
        let node = self.nodes.iter().find(|node| node.slots.contains(&slot));
        node.map(|node| node.connection.clone()).ok_or(String::from("no server has the slot"))
    }

    /// Looks for what prevents a proof. The error says why the checks cannot begin. The text says
    /// why they would prove nothing. A right that the checks do not need may be absent.
    pub(crate) async fn obstacle(&self) -> Result<Option<String>, String> {
        for Node { connection, slots } in &self.nodes {
            let mut connection = connection.clone();
            let role = ask::<Vec<Value>>(&mut connection, &["ROLE"]).await.unwrap_or_default();
            let role = role.into_iter().next().and_then(|role| read::<String>(role).ok());
            if role.is_some_and(|role| role == "slave") {
                return Err("this is a replica: give the address of its primary".to_owned());
            }
            let mut tags = (0..u32::MAX).map(|number| number.to_string());
            let tag = tags.find(|tag| slots.contains(&slot_of(tag))).unwrap_or_default();
            let key = format!("sluice:prove-begins:tb1:{{{tag}}}");
            let script = "return redis.call('SET', KEYS[1], 'x', 'PX', 1)";
            let words = [script, "1", &key];
            let written = cmd("EVAL").arg(&words).query_async::<Value>(&mut connection).await;
            // The code is `OOM`. Redis 6.2 has it within the text.
            let why = written.err().map(|error| error.to_string());
            if let Some(why) = why.filter(|why| why.contains("OOM")) {
                return Ok(Some(format!("the server has no memory left: {why}")));
            }
        }
        Ok(None)
    }

    /// The names of all keys with this in them.
    pub(crate) async fn names(&self, part: &str) -> Result<Vec<String>, String> {
        let mut names: Vec<String> = Vec::new();
        for node in &self.nodes {
            let mut connection = node.connection.clone();
            // Without the right to know it is tried.
            if let Ok(keys) = ask::<u64>(&mut connection, &["DBSIZE"]).await
                && keys > MOST_KEYS
            {
                return Err(format!("{keys} keys are too many for SCAN"));
            }
            let (pattern, mut cursor) = (format!("*{part}*"), String::from("0"));
            loop {
                let words = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"];
                let (next, found): (String, Vec<String>) = ask(&mut connection, &words).await?;
                names.extend(found);
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Deletes these keys.
    pub(crate) async fn unlink(&self, names: &[String]) -> Result<(), String> {
        for name in names {
            let key = name.split(['{', '}']).nth(1).unwrap_or(name);
            let mut connection = self.holding(key)?;
            ask::<()>(&mut connection, &["UNLINK", name]).await?;
        }
        Ok(())
    }
}

/// Kinds of errors that may come while nothing is wrong but the network.
pub(crate) fn is_of_network(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Infrastructure | ErrorKind::Saturation)
}
