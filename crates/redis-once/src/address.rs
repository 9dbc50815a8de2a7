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
    /// True if every connection uses TLS. Sentinels may have an answer of their own.
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
        /// The answer of `sentinelTls=`; `None`: as for the primary.
        uses_tls: Option<bool>,
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

impl Address {
    /// Reads an address. Errors do not show any part of it, since any part may be a password.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, form) = match scheme.rsplit_once('-') {
            Some((scheme, form @ ("cluster" | "sentinel"))) => (scheme, form),
            _ => (&*scheme, "server"),
        };
        // Without its feature for TLS, the client rejects the scheme `rediss`.
        let (scheme, uses_tls) = match scheme {
            "redis" | "valkey" => ("redis", false),
            "rediss" | "valkeys" => ("redis", true),
            "unix" | "redis+unix" | "valkey+unix" if form == "server" => ("unix", false),
            _ => return Err(invalid(SCHEMES)),
        };
        let url = redis::parse_redis_url(&format!("{scheme}://{rest}"))
            .ok_or_else(|| invalid(UNREADABLE))?;
        if url.fragment().is_some() {
            // The client would accept #insecure, which trusts every certificate.
            return Err(invalid("nothing may follow a #, and certificates are always checked"));
        }
        let parameters: Vec<_> = url.query_pairs().into_owned().collect();
        let own_port = url.port();
        let info = url.into_connection_info().map_err(|_| invalid(PARTS))?;
        let default_port = if form == "sentinel" { 26_379 } else { 6_379 };
        let first =
            || host(info.addr(), own_port.unwrap_or(default_port)).ok_or_else(|| invalid(PARTS));
        let topology = match (info.addr(), form) {
            (ConnectionAddr::Unix(path), _) => Topology::Socket(path.clone()),
            (_, "cluster") => Topology::Cluster { nodes: vec![first()?] },
            (_, "sentinel") => Topology::Sentinel {
                sentinels: vec![first()?],
                service_name: String::new(),
                settings: RedisConnectionInfo::default(),
                uses_tls: None,
            },
            _ => Topology::Server(first()?),
        };
        let settings = info.redis_settings().clone();
        let mut address = Self { topology, uses_tls, settings, protocol: None, several: None };
        for (name, value) in &parameters {
            address.read_parameter(name, value, default_port)?;
        }
        log_in_as_user(&mut address.settings);
        if let Topology::Sentinel { settings, .. } = &mut address.topology {
            log_in_as_user(settings);
        }
        match &address.topology {
            Topology::Sentinel { service_name, .. } if service_name.is_empty() => {
                let why = "sentinelServiceName=<name> is missing: a sentinel knows a primary by it";
                Err(invalid(why))
            }
            Topology::Cluster { .. } | Topology::Sentinel { .. }
                if address.protocol == Some(ProtocolVersion::RESP2) =>
            {
                Err(invalid("protocol=resp2 is for one server, or for a proxy"))
            }
            _ => Ok(address),
        }
    }

    /// Reads a parameter after the question mark.
    fn read_parameter(&mut self, name: &str, value: &str, default_port: u16) -> Result<(), Error> {
        match (&mut self.topology, name) {
            (Topology::Cluster { nodes } | Topology::Sentinel { sentinels: nodes, .. }, "node") => {
                let node = node(value, default_port);
                nodes.push(node.ok_or_else(|| invalid("a node is not of the form host:port"))?);
            }
            (Topology::Sentinel { .. }, "sentinelServiceName") if value.is_empty() => {
                let why = "sentinelServiceName= is empty: a sentinel knows a primary by its name";
                return Err(invalid(why));
            }
            (Topology::Sentinel { service_name, .. }, "sentinelServiceName") => {
                value.clone_into(service_name);
            }
            (Topology::Sentinel { settings, .. }, "sentinelUsername") => {
                *settings = settings.clone().set_username(value);
            }
            (Topology::Sentinel { settings, .. }, "sentinelPassword") => {
                *settings = settings.clone().set_password(value);
            }
            (Topology::Sentinel { uses_tls, .. }, "sentinelTls") => {
                *uses_tls = Some(match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(invalid("sentinelTls= is neither yes nor no")),
                });
            }
            (Topology::Server(_) | Topology::Socket(_), "node" | "sentinelServiceName") => {
                return Err(invalid(
                    "one server has no further nodes: write redis-cluster:// or redis-sentinel://",
                ));
            }
            (Topology::Server(_) | Topology::Socket(_), "servers") => {
                self.several = Some(match value {
                    "one" => false,
                    "several" => true,
                    _ => return Err(invalid("servers= is neither one nor several")),
                });
            }
            // The client reads these parameters itself.
            (_, "protocol") => self.protocol = Some(self.settings.protocol()),
            (Topology::Socket(_), "db" | "user" | "pass") => {}
            _ => return Err(invalid("a parameter after the ? is not valid for this scheme")),
        }
        Ok(())
    }
}

const SCHEMES: &str = "its scheme is none of redis, rediss, redis-cluster, rediss-cluster, \
    redis-sentinel, rediss-sentinel, their valkey forms, and redis+unix";

const UNREADABLE: &str = "it does not parse: a port is at most 65535, and signs such as / ? # @ and % \
    in a user or a password are written as %2F, %3F, %23, %40 and %25";

const PARTS: &str = "its host, port, user, password or database is invalid";

/// Gives a user without a password an empty one. The client logs in only with a password, and
/// without a login the connection would have the rights of the user `default`.
fn log_in_as_user(settings: &mut RedisConnectionInfo) {
    let is_own = |user: &str| !matches!(user, "" | "default");
    if settings.password().is_none() && settings.username().is_some_and(is_own) {
        *settings = settings.clone().set_password("");
    }
}

/// Reads one more node: `host:port`, or only `host`.
fn node(text: &str, default_port: u16) -> Option<Host> {
    let url = redis::parse_redis_url(&format!("redis://{text}"))?;
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || !url.path().is_empty()
        || url.query().is_some()
        || url.fragment().is_some();
    let port = url.port().unwrap_or(default_port);
    let info = url.into_connection_info().ok().filter(|_| !has_more)?;
    host(info.addr(), port)
}

/// Returns the host of a connection at this port, or `None` for a Unix socket.
fn host(addr: &ConnectionAddr, port: u16) -> Option<Host> {
    Some(Host { port, ..Host::of(addr)? })
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Configuration, format!("the address of redis cannot be used: {why}"))
}

#[cfg(test)]
mod tests;
