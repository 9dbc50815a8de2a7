//! A primary, a replica, and three sentinels that watch them: real processes, ended when dropped.

use std::process::Command;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::files::Files;
use super::process::Process;
use super::{ADMIN, PATIENCE, Server, free_port, program_for};

/// The name by which the sentinels know the primary.
pub const SERVICE: &str = "main";

/// Two servers and their sentinels.
pub struct Replicated {
    /// The primary at first, then its replica.
    pub servers: [Server; 2],
    pub sentinels: Vec<Sentinel>,
}

/// One sentinel.
pub struct Sentinel {
    process: Process,
    pub port: u16,
    _files: Files,
}

impl Replicated {
    /// Starts all, and waits until all know each other. The sentinels replace the primary only if
    /// a test asks them to: on a busy machine a server that is well may be silent for a second.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same, with sentinels that replace a primary which is silent for half a second.
    pub async fn start_impatient() -> Self {
        Self::start_with(&format!("sentinel down-after-milliseconds {SERVICE} 500")).await
    }

    async fn start_with(line: &str) -> Self {
        let log_in = ["--masteruser", ADMIN, "--masterauth", ADMIN];
        let options = [&log_in, &["--repl-diskless-sync-delay", "0"][..]].concat();
        let primary = Server::limited_on(free_port, &options);
        let port = primary.port().to_string();
        let options = [&options, &["--replicaof", "127.0.0.1", &port][..]].concat();
        let replica = Server::limited_on(free_port, &options);
        let this = Self { servers: [primary, replica], sentinels: Vec::new() };
        this.servers[1].until_info("master_link_status:up").await;
        let port = this.servers[0].port();
        let lines = format!("{}\n{line}", log_in_lines());
        let sentinels = (0..3).map(|_| Sentinel::with(port, &lines)).collect();
        let this = Self { sentinels, ..this };
        for sentinel in &this.sentinels {
            sentinel.until(|fields| fields.contains("num-slaves 1 num-other-sentinels 2 ")).await;
        }
        this
    }

    /// An address of all sentinels.
    pub fn url(&self) -> String {
        url(&self.sentinels.iter().map(|sentinel| sentinel.port).collect::<Vec<_>>())
    }
}

/// Returns the settings with which a sentinel logs in to servers that limit what each user may do.
fn log_in_lines() -> String {
    format!("sentinel auth-user {SERVICE} {ADMIN}\nsentinel auth-pass {SERVICE} {ADMIN}")
}

/// An address of the sentinels at these ports.
pub fn url(ports: &[u16]) -> String {
    let nodes: String = ports[1..].iter().map(|port| format!("&node=127.0.0.1:{port}")).collect();
    format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", ports[0])
}

impl Sentinel {
    /// A sentinel that watches the primary at this port.
    pub fn start(primary: u16) -> Self {
        Self::with(primary, "")
    }

    /// The same, with further lines of configuration, of which the last of a name holds.
    pub fn with(primary: u16, lines: &str) -> Self {
        Self::of(2, primary, lines)
    }

    /// A sentinel that watches alone.
    pub fn alone(primary: u16, lines: &str) -> Self {
        Self::of(1, primary, lines)
    }

    fn of(quorum: u16, primary: u16, lines: &str) -> Self {
        for _ in 0..20 {
            // A sentinel syncs its file at each step. One that waited for the disk for two seconds
            // does nothing for thirty.
            let (port, files) = (free_port(), Files::in_memory());
            let config = format!(
                "port {port}\nbind 127.0.0.1\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {primary} {quorum}\n\
                 sentinel down-after-milliseconds {SERVICE} 60000\n\
                 sentinel failover-timeout {SERVICE} 4000\n{lines}\n"
            );
            let path = files.write("sentinel.conf", &config);
            let mut command = Command::new(program_for(lines));
            let process = Process::start(command.args([&path, "--sentinel"])).expect("a sentinel");
            if process.says("+monitor").is_some() {
                return Self { process, port, _files: files };
            }
        }
        panic!("no sentinel came up on any of 20 free ports");
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("an address");
        // However busy the machine is.
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("a connection")
    }

    /// Waits until what it says of the service, in one line, is as wanted.
    pub async fn until(&self, is_wanted: impl Fn(&str) -> bool) {
        let (mut connection, begun) = (self.connection().await, Instant::now());
        loop {
            let mut ask = redis::cmd("SENTINEL");
            let fields: Vec<String> =
                ask.arg("MASTER").arg(SERVICE).query_async(&mut connection).await.expect("fields");
            let line = fields.join(" ") + " ";
            if is_wanted(&line) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{line}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks it to make the replica the primary, once it knows that the replica is well.
    pub async fn fail_over(&self) {
        let (mut connection, begun) = (self.connection().await, Instant::now());
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("FAILOVER").arg(SERVICE);
        while let Err(error) = ask.exec_async(&mut connection).await {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }
}
