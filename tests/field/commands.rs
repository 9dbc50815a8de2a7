//! The commands that the crate sends, and the sessions and scripts in which it sends them.

use tower_sluice::ErrorKind;

/// How the crate meets the server of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Server,
    /// A server, or a proxy, whose address asks for RESP2. It refuses `HELLO` in words.
    Resp2,
    Cluster,
    /// The second server of a cluster, to which a slot is moving.
    Importing,
    Sentinel,
}

/// What a refused command costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it nothing is decided.
    Always,
    /// The crate works with any answer, but not without one: later answers come after it.
    AnyAnswer,
    /// The crate may do without it, in another protocol. The page says if it does.
    OrOtherwise,
}

/// A command of a session, by its first words.
pub struct Command {
    pub name: &'static str,
    pub topology: Topology,
    pub need: Need,
}

pub const COMMANDS: [Command; 16] = {
    use Need::{Always, AnyAnswer, OrOtherwise};
    use Topology::{Cluster, Importing, Resp2, Sentinel, Server};
    [
        command("HELLO", Server, OrOtherwise),
        command("HELLO", Cluster, OrOtherwise),
        command("HELLO", Sentinel, OrOtherwise),
        command("SELECT", Server, Always),
        command("CLUSTER", Cluster, Always),
        command("ASKING", Importing, Always),
        command("SENTINEL GET-MASTER-ADDR-BY-NAME", Sentinel, Always),
        command("SENTINEL MASTER", Sentinel, AnyAnswer),
        command("SUBSCRIBE", Sentinel, AnyAnswer),
        command("EVAL", Server, Always),
        command("EVALSHA", Server, Always),
        command("AUTH", Resp2, Always),
        command("HELLO", Resp2, AnyAnswer),
        command("ROLE", Resp2, AnyAnswer),
        command("PING", Resp2, OrOtherwise),
        command("EVALSHA", Resp2, Always),
    ]
};

impl Command {
    /// Its name in the table.
    pub fn label(&self) -> String {
        match (self.name, self.topology) {
            ("HELLO", Topology::Cluster) => "`HELLO` in a cluster".into(),
            ("HELLO", Topology::Sentinel) => "`HELLO` with sentinels".into(),
            (name, Topology::Resp2) => format!("`{name}` by RESP2"),
            (name, _) => format!("`{name}`"),
        }
    }

    /// The kind of the error if the connection is closed in place of each answer.
    pub fn kind_if_closed(&self) -> Option<ErrorKind> {
        match (self.topology, self.name) {
            // By RESP2 it is the greeting.
            (Topology::Resp2, "PING") => Some(ErrorKind::Infrastructure),
            // A proxy without a role is not asked again.
            (Topology::Resp2, "HELLO" | "ROLE") => None,
            _ => Some(ErrorKind::Configuration),
        }
    }
}

const fn command(name: &'static str, topology: Topology, need: Need) -> Command {
    Command { name, topology, need }
}

/// The commands inside the scripts.
pub const IN_SCRIPTS: [&str; 23] = [
    "TIME",
    // `Pool::ready` alone, which works with any answer.
    "INFO",
    "MGET",
    "GET",
    "SET",
    "INCRBY",
    "UNLINK",
    "PTTL",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZREMRANGEBYRANK",
    "PEXPIRE",
    "PEXPIREAT",
    // Redisson's limiter alone.
    "HMGET",
    "HSET",
    "DEL",
    "EXISTS",
    "PERSIST",
    "ZREM",
    "ZSCORE",
    "ZRANGEBYSCORE",
];
