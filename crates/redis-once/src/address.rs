//! The parts of an address. It names one server, a cluster, or sentinels that know the primary. It
//! also states TLS, user, password and database.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::error::{Error, ErrorKind};

/// An address in parts.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) topology: Topology,
    /// True if every connection uses TLS, including those to sentinels.
    pub(super) uses_tls: bool,
    /// The user, the password and the database of the servers that decide.
    pub(super) settings: RedisConnectionInfo,
    /// The protocol that `protocol=` asks for.
    pub(super) protocol: Option<ProtocolVersion>,
    /// The answer of `servers=`: true if several servers share the keys behind the address.
    pub(super) several: Option<bool>,
}

/// The servers that decide, and how to find them.
#[derive(Clone)]
pub(super) enum Topology {
    /// One server.
    Server(Host),
    /// One server behind a Unix socket.
    Socket(PathBuf),
    /// A cluster. These nodes name the other nodes.
    Cluster { nodes: Vec<Host> },
    /// The primary that sentinels name.
    Sentinel {
        sentinels: Vec<Host>,
        service_name: String,
        /// The user and the password of the sentinels.
        settings: RedisConnectionInfo,
    },
}

/// The name or the IP address of a host, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Host {
    /// Returns the host of a connection, or `None` for a Unix socket.
    pub(super) fn of(addr: &ConnectionAddr) -> Option<Self> {
        match addr {
            ConnectionAddr::Tcp(name, port) | ConnectionAddr::TcpTls { host: name, port, .. } => {
                Some(Self { name: name.clone(), port: *port })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// The forms of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Server,
    Cluster,
    Sentinel,
}

impl Form {
    /// The default port of a host.
    fn default_port(self) -> u16 {
        if self == Self::Sentinel { 26_379 } else { 6_379 }
    }
}

impl Address {
    /// Reads an address. Errors do not show any part of it, since any part may be a password.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, form) =
            match (scheme.strip_suffix("-cluster"), scheme.strip_suffix("-sentinel")) {
                (Some(scheme), _) => (scheme, Form::Cluster),
                (_, Some(scheme)) => (scheme, Form::Sentinel),
                _ => (&*scheme, Form::Server),
            };
        // Without its feature for TLS, the client rejects the scheme `rediss`.
        let (scheme, uses_tls) = match scheme {
            "redis" | "valkey" => ("redis", false),
            "rediss" | "valkeys" => ("redis", true),
            "unix" | "redis+unix" | "valkey+unix" if form == Form::Server => ("unix", false),
            _ => return Err(invalid(SCHEMES)),
        };
        let url = redis::parse_redis_url(&format!("{scheme}://{rest}"))
            .ok_or_else(|| invalid(UNREADABLE))?;
        if url.fragment().is_some() {
            // The client would accept #insecure, which trusts every certificate.
            return Err(invalid("nothing may follow a #, and certificates are always checked"));
        }
        let query = Query::read(url.query_pairs(), form, scheme == "unix")?;
        let own_port = url.port();
        let info = url.into_connection_info().map_err(|_| invalid(PARTS))?;
        let settings = info.redis_settings().clone();
        let protocol = query.has_protocol.then(|| settings.protocol());
        if protocol == Some(ProtocolVersion::RESP2) && form != Form::Server {
            return Err(invalid("protocol=resp2 is for one server, or for a proxy"));
        }
        let first = match info.addr() {
            ConnectionAddr::Unix(path) => {
                let (topology, several) = (Topology::Socket(path.clone()), query.several);
                return Ok(Self { topology, uses_tls, settings, protocol, several });
            }
            addr => host(addr, own_port, form).ok_or_else(|| invalid(PARTS))?,
        };
        let with_nodes = |first| [first].into_iter().chain(query.nodes).collect();
        let topology = match form {
            Form::Server => Topology::Server(first),
            Form::Cluster => Topology::Cluster { nodes: with_nodes(first) },
            Form::Sentinel => Topology::Sentinel {
                sentinels: with_nodes(first),
                service_name: query.service_name.ok_or_else(|| {
                    invalid(
                        "sentinelServiceName=<name> is missing: a sentinel knows a primary by it",
                    )
                })?,
                settings: query.settings,
            },
        };
        let several = query.several;
        Ok(Self { topology, uses_tls, settings, protocol, several })
    }
}

const SCHEMES: &str = "its scheme is none of redis, rediss, redis-cluster, rediss-cluster, \
    redis-sentinel, rediss-sentinel, their valkey forms, and redis+unix";

const UNREADABLE: &str = "it does not parse: a port is at most 65535, and signs such as / ? # @ and % \
    in a user or a password are written as %2F, %3F, %23, %40 and %25";

const PARTS: &str = "its host, port, user, password or database is invalid";

/// The parameters after the question mark.
struct Query {
    nodes: Vec<Host>,
    service_name: Option<String>,
    /// The user and the password of the sentinels.
    settings: RedisConnectionInfo,
    has_protocol: bool,
    several: Option<bool>,
}

impl Query {
    fn read<'a, T: AsRef<str> + 'a>(
        pairs: impl Iterator<Item = (T, T)>,
        form: Form,
        is_socket: bool,
    ) -> Result<Self, Error> {
        let mut query = Self {
            nodes: Vec::new(),
            service_name: None,
            settings: RedisConnectionInfo::default(),
            has_protocol: false,
            several: None,
        };
        for (name, value) in pairs {
            let value = value.as_ref();
            match (form, name.as_ref()) {
                (Form::Cluster | Form::Sentinel, "node") => {
                    query.nodes.push(
                        node(value, form)
                            .ok_or_else(|| invalid("a node is not of the form host:port"))?,
                    );
                }
                (Form::Sentinel, "sentinelServiceName") if value.is_empty() => {
                    return Err(invalid(
                        "sentinelServiceName= is empty: a sentinel knows a primary by its name",
                    ));
                }
                (Form::Sentinel, "sentinelServiceName") => {
                    query.service_name = Some(value.to_owned());
                }
                (Form::Sentinel, "sentinelUsername") => {
                    query.settings = query.settings.set_username(value);
                }
                (Form::Sentinel, "sentinelPassword") => {
                    query.settings = query.settings.set_password(value);
                }
                (Form::Server, "node" | "sentinelServiceName") => {
                    return Err(invalid(
                        "one server has no further nodes: write redis-cluster:// or \
                         redis-sentinel://",
                    ));
                }
                (Form::Server, "servers") => {
                    query.several = Some(match value {
                        "one" => false,
                        "several" => true,
                        _ => return Err(invalid("servers= is neither one nor several")),
                    });
                }
                // The client reads these parameters itself.
                (_, "protocol") => query.has_protocol = true,
                (_, "db" | "user" | "pass") if is_socket => {}
                _ => return Err(invalid("a parameter after the ? is not valid for this scheme")),
            }
        }
        Ok(query)
    }
}

/// Reads one more node: `host:port`, or only `host`.
fn node(text: &str, form: Form) -> Option<Host> {
    let url = redis::parse_redis_url(&format!("redis://{text}"))?;
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || !url.path().is_empty()
        || url.query().is_some()
        || url.fragment().is_some();
    let port = url.port();
    let info = url.into_connection_info().ok().filter(|_| !has_more)?;
    host(info.addr(), port, form)
}

/// Returns the host, or `None` for a Unix socket. Without a `port`, the host gets the default port.
fn host(addr: &ConnectionAddr, port: Option<u16>, form: Form) -> Option<Host> {
    match addr {
        ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } => {
            Some(Host { name: name.clone(), port: port.unwrap_or(form.default_port()) })
        }
        _ => None,
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Configuration, format!("the address of redis cannot be used: {why}"))
}

#[cfg(test)]
mod tests;
