//! What can be answered to a command: in the words of real servers and proxies, or not at all.

use tower_sluice::ErrorKind::{self, Capacity, Configuration, Infrastructure};

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An error reply with these words, without the command's own name.
    Words(&'static str),
    Silence,
    Close,
    /// A reply of another type than the command has.
    WrongType,
}

/// An answer, its name in the table, where it was met, and the kind of error that it means.
pub struct Column {
    pub name: &'static str,
    pub answer: Answer,
    pub source: &'static str,
    /// `None`: the kind of foreign data, if the reply matters at all.
    pub kind: Option<ErrorKind>,
}

/// `{}` stands for the command.
pub const COLUMNS: [Column; 14] = [
    words(
        "unknown",
        "ERR unknown command '{}', with args beginning with: 'a' ",
        "Redis with `rename-command`, kvrocks, Garnet, Codis",
        Configuration,
    ),
    words(
        "no right",
        "NOPERM User app has no permissions to run the '{}' command",
        "Redis 7 and Valkey, by ACL",
        Configuration,
    ),
    words(
        "not in scripts",
        "ERR This Redis command is not allowed from script",
        "ElastiCache Serverless, for `TIME`: cristipufu/aspnetcore-redis-rate-limiting#154",
        Configuration,
    ),
    words(
        "not for you",
        "ERR command eval not support for your account",
        "Alibaba Cloud: redisson/redisson#4389",
        Configuration,
    ),
    words(
        "protocol",
        "NOPROTO unsupported protocol version",
        "Envoy's redis_proxy, to `HELLO 3`",
        Configuration,
    ),
    words(
        "unheard of",
        "ERR this was never said by any server",
        "nobody: stands for all words that no table has",
        Configuration,
    ),
    words(
        "quota",
        "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
        "Upstash: DIYgod/RSSHub#20937",
        Capacity,
    ),
    words("clients", "ERR max number of clients reached", "Redis: `maxclients`", Infrastructure),
    words("upstream", "upstream failure", "Envoy: envoyproxy/envoy#21352", Infrastructure),
    words("refused", "ERR Connection refused", "twemproxy, without its server", Infrastructure),
    words(
        "loading",
        "LOADING Redis is loading the dataset in memory",
        "Redis, Valkey, KeyDB, Dragonfly, while they start",
        Infrastructure,
    ),
    Column {
        name: "silence",
        answer: Answer::Silence,
        source: "a server that hangs",
        kind: Some(Infrastructure),
    },
    Column {
        name: "closed",
        answer: Answer::Close,
        source: "twemproxy, to each command that it does not know; firewalls",
        kind: Some(Configuration),
    },
    Column {
        name: "wrong type",
        answer: Answer::WrongType,
        source: "a server that is not Redis",
        kind: None,
    },
];

/// Returns the words of an answer to this command.
pub fn worded(words: &str, command: &str) -> String {
    words.replace("{}", &command.to_lowercase().replace(' ', "|"))
}

const fn words(
    name: &'static str,
    words: &'static str,
    source: &'static str,
    kind: ErrorKind,
) -> Column {
    Column { name, answer: Answer::Words(words), source, kind: Some(kind) }
}

impl Column {
    /// Returns true if a text says what was answered, but for words that repeat an argument.
    pub fn is_visible(&self, shown: &str, command: &str) -> bool {
        let shows = |any: &[&str]| any.iter().any(|words| shown.contains(words));
        match self.answer {
            Answer::Words(words) => {
                let words = worded(words, command);
                shows(&[words.split(", with args").next().expect("a text")])
            }
            Answer::Silence => shows(&["in time", "timed out", "stopped answering"]),
            Answer::Close => shows(&["broken pipe", "closes the connection at"]),
            Answer::WrongType => true,
        }
    }
}
