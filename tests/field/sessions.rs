//! Servers in memory that refuse one command of a session. Time is paused, so silence takes none.

use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::time::sleep;
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{
    Charge, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Pool, Quota, Redis,
};

use super::answers::{Answer, worded};
use super::commands::Topology;

use support::fake::command;

/// The reply of a script that has taken one unit: now, no wait, and no state before.
const ADMITTED: &[u8] = b"$11\r\n\x92\xcf\x00\x06\x47\x48\x46\x20\x40\x00\xff\r\n";

/// What comes of a refused command, once it has been refused for seconds.
#[derive(Debug)]
pub struct Outcome {
    /// Why nothing is decided. `None`: charges are decided.
    pub error: Option<Error>,
    /// True if `FailOpen` admits.
    pub fails_open: bool,
    /// True if a fallback in the process decides.
    pub falls_back: bool,
    /// The error of `Pool::ready`.
    pub ready: Option<Error>,
}

/// Asks a limiter whose servers answer `refused` with `answer`.
pub async fn outcome(topology: Topology, refused: &'static str, answer: Answer) -> Outcome {
    let ready = pool(topology, refused, answer).ready().await.err();
    let quota = Quota::new(1_000_000, Duration::from_secs(365 * 86_400));
    let limiter = Redis::new("field", FixedWindow::new(quota), pool(topology, refused, answer))
        .decision_timeout(Duration::from_millis(200));
    let charge = Charge::new("key");
    let mut last = limiter.check(&charge).await;
    let is_load = |error: &Error| error.kind() == ErrorKind::Saturation;
    for asked in 0..100 {
        // A connection that is not ready yet is no outcome.
        if asked > 40 && !last.as_ref().is_err_and(is_load) {
            break;
        }
        sleep(Duration::from_millis(100)).await;
        last = limiter.check(&charge).await;
    }
    let local = Memory::new("local", FixedWindow::new(quota));
    let (open, local) = (limiter.clone().or_else(FailOpen), limiter.or_else(local));
    let (mut fails_open, mut falls_back) = (false, true);
    for _ in 0..10 {
        fails_open |= open.check(&charge).await.is_ok();
        falls_back &= local.check(&charge).await.is_ok();
        sleep(Duration::from_millis(100)).await;
    }
    let error = last.err();
    Outcome { fails_open: fails_open && error.is_some(), falls_back, error, ready }
}

fn pool(topology: Topology, refused: &'static str, answer: Answer) -> Pool {
    let url = match topology {
        Topology::Server => "redis://app:secret@h:1/2",
        Topology::Resp2 => "redis://app:secret@h:1?protocol=resp2",
        Topology::Cluster | Topology::Importing => "redis-cluster://app:secret@h:1",
        Topology::Sentinel => "redis-sentinel://app:secret@s:9?sentinelServiceName=main",
    };
    let dial = move |_: String, port: u16| async move {
        let (own, other) = duplex(64 * 1024);
        tokio::spawn(serve(other, port, topology, refused, answer));
        Ok(own)
    };
    Pool::builder(url).expect("an address").dial(dial).build().expect("a pool")
}

/// Serves a connection until it ends.
async fn serve(
    stream: DuplexStream,
    port: u16,
    topology: Topology,
    refused: &str,
    answer: Answer,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut is_asked = false;
    loop {
        let words = command(&mut stream).await?;
        let line = words.iter().map(|word| String::from_utf8_lossy(word).to_uppercase());
        let line = line.collect::<Vec<_>>().join(" ");
        let is_refused =
            line.strip_prefix(refused).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        // The other server of the cluster runs what this one was asked with ASKING.
        let reply = match answer {
            // No server has run the script.
            _ if refused == "EVAL" && line.starts_with("EVALSHA") => b"-NOSCRIPT none\r\n".to_vec(),
            _ if !is_refused => said(&line, port, topology, is_asked),
            Answer::Words(words) => format!("-{}\r\n", worded(words, refused)).into_bytes(),
            // One for each channel.
            Answer::WrongType => b":7\r\n".repeat(if refused == "SUBSCRIBE" { 3 } else { 1 }),
            Answer::Silence => std::future::pending().await,
            Answer::Close => return None,
        };
        is_asked = line == "ASKING" && (!is_refused || answer == Answer::WrongType);
        stream.write_all(&reply).await.ok()?;
    }
}

/// What a server of the topology says to a command.
fn said(line: &str, port: u16, topology: Topology, is_asked: bool) -> Vec<u8> {
    let is_sentinel = port == 9;
    let mode = match topology {
        Topology::Cluster | Topology::Importing => "cluster",
        Topology::Sentinel if is_sentinel => "sentinel",
        Topology::Server | Topology::Resp2 | Topology::Sentinel => "standalone",
    };
    let name = line.split(' ').next().expect("a word");
    let text = match name {
        "HELLO" if topology == Topology::Resp2 => "-ERR unknown command 'HELLO'\r\n".into(),
        "HELLO" => format!("%3\r\n+proto\r\n:3\r\n+mode\r\n+{mode}\r\n+role\r\n+master\r\n"),
        "PING" => "+PONG\r\n".into(),
        "ROLE" => "*3\r\n+master\r\n:0\r\n*0\r\n".into(),
        "INFO" => {
            let info = format!("redis_mode:{mode}\r\nrole:master\r\n");
            format!("${}\r\n{info}\r\n", info.len())
        }
        "CLUSTER" => "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n".into(),
        "SENTINEL" if line.contains("GET-MASTER") => "*2\r\n+h\r\n+1\r\n".into(),
        "SENTINEL" => "%1\r\n+config-epoch\r\n+1\r\n".into(),
        "SUBSCRIBE" => {
            let channels = line.split(' ').skip(1).zip(1..);
            channels
                .map(|(name, count)| {
                    format!(">3\r\n+subscribe\r\n+{}\r\n:{count}\r\n", name.to_lowercase())
                })
                .collect()
        }
        "EVAL" | "EVALSHA" if topology == Topology::Importing && port == 1 => {
            "-ASK 0 h:2\r\n".into()
        }
        "EVAL" | "EVALSHA" if topology == Topology::Importing && !is_asked => {
            "-MOVED 0 h:1\r\n".into()
        }
        "EVAL" | "EVALSHA" if line.contains(":READY:") => ":2\r\n".into(),
        "EVAL" | "EVALSHA" => return ADMITTED.to_vec(),
        _ => "+OK\r\n".into(),
    };
    text.into_bytes()
}
