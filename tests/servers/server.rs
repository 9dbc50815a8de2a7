//! Servers of a test's own: `redis-server` on a free loopback port, in a folder of its own.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
#[cfg(feature = "limiter")]
use tower_sluice::Pool;

use super::PATIENCE;
use super::files::Files;
use super::process::Process;

/// The server that the tests start: what `REDIS_SERVER` names, or else `redis-server`.
pub fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The same for a server with these settings. Where they ask for TLS and the binary was built
/// without, as that of Redis 6.2 was, the system's `redis-server` takes its place: the tests of TLS
/// are about the client.
pub fn program_for(settings: &str) -> OsString {
    static WITH_TLS: LazyLock<OsString> = LazyLock::new(|| {
        // A binary with TLS starts, and ends at once since it has no port. One without knows no
        // such setting.
        let output = Command::new(program()).args(["--port", "0", "--tls-port", "0"]).output();
        let log = output.map(|output| output.stdout).unwrap_or_default();
        match String::from_utf8_lossy(&log).contains("not listen anywhere") {
            true => program(),
            false => "redis-server".into(),
        }
    });
    if settings.contains("tls-port") { WITH_TLS.clone() } else { program() }
}

/// The line that a server writes when it is ready.
const READY: &str = "Ready to accept connections";

/// The user of tests, and its password.
pub const ADMIN: &str = "tests";

/// The rights that a page of the documentation lists, for `ACL SETUSER`.
pub fn documented_rights(page: &'static str) -> Vec<&'static str> {
    let (_, section) = page.split_once("## What Redis needs to allow").expect("a section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let lists = section.split('`').filter(|text| text.starts_with('+'));
    lists.flat_map(str::split_whitespace).collect()
}

/// A `redis-server` process, ended when it is dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
    folder: Files,
    options: Vec<String>,
}

impl Server {
    /// A server with default settings that saves nothing. Who does not log in may do what
    /// `docs/guide/redis-in-production.md` lists, and nothing else: so the crate runs with these
    /// rights.
    /// [`connection`](Server::connection) logs in, and may do everything.
    pub fn start() -> Self {
        Self::limited_on(free_port, &[])
    }

    /// The same, with a pool that connects to it.
    #[cfg(feature = "limiter")]
    pub fn pooled() -> (Self, Pool) {
        let server = Self::start();
        let pool = server.pool();
        (server, pool)
    }

    /// The same, with a connection of the test's own.
    pub async fn connected() -> (Self, MultiplexedConnection) {
        let server = Self::start();
        let connection = server.connection().await;
        (server, connection)
    }

    /// The same with further command-line options, on a port that `choose` finds free.
    pub fn limited_on(choose: impl Fn() -> u16, options: &[&str]) -> Self {
        let page = include_str!("../../docs/guide/redis-in-production.md");
        Self::with_rights(choose, "~sluice:*", &documented_rights(page), options)
    }

    /// The same for a pool of one's own that tests its connections.
    pub fn for_pool_that_pings() -> Self {
        let page = include_str!("../../docs/guide/redis-in-production.md");
        let rights = [&*documented_rights(page), &["+ping"]].concat();
        Self::with_rights(free_port, "~sluice:*", &rights, &[])
    }

    /// The same for Java's keys, with what `redisson.md` lists.
    pub fn for_redisson() -> Self {
        let page = include_str!("../../crates/tower-sluice-redisson/redisson.md");
        Self::with_rights(free_port, "~*", &documented_rights(page), &[])
    }

    fn with_rights(
        choose: impl Fn() -> u16,
        keys: &str,
        rights: &[&str],
        options: &[&str],
    ) -> Self {
        let password = format!(">{ADMIN}");
        let everybody = ["--user", "default", "on", "nopass", keys, "-@all"];
        let admin = ["--user", ADMIN, "on", &password, "~*", "&*", "+@all"];
        Self::on(choose, &[&everybody, rights, &admin, options].concat())
    }

    /// A server with further command-line options, whose clients may do everything.
    pub fn with(options: &[&str]) -> Self {
        Self::on(free_port, options)
    }

    /// The same, on a port that `choose` finds free.
    pub fn on(choose: impl Fn() -> u16, options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        Self::choosing(|| (choose(), options.clone()))
    }

    /// The same, whose options may hold a port that `choose` finds free each time.
    pub(super) fn choosing(mut choose: impl FnMut() -> (u16, Vec<String>)) -> Self {
        for _ in 0..20 {
            let (port, options) = choose();
            // A node of a cluster syncs its file when a slot moves, and answers nobody meanwhile.
            let is_node = options.iter().any(|option| option == "--cluster-enabled");
            let folder = if is_node { Files::in_memory() } else { Files::new() };
            if let Some(process) = spawn(port, &folder, &options, READY) {
                return Self { process, port, folder, options };
            }
        }
        panic!("no redis-server came up on any of 20 free ports");
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A pool that connects to it.
    #[cfg(feature = "limiter")]
    pub fn pool(&self) -> Pool {
        Pool::connect(&self.url()).expect("an address")
    }

    /// Adds options for the next start.
    pub fn option(&mut self, options: &[&str]) {
        self.options.extend(options.iter().map(ToString::to_string));
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its address for a user who may do everything.
    pub fn admin_url(&self) -> String {
        match self.options.iter().any(|option| option == ADMIN) {
            true => format!("redis://{ADMIN}:{ADMIN}@127.0.0.1:{}", self.port),
            false => self.url(),
        }
    }

    /// A connection of the test's own, which may do everything.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.admin_url()).expect("an address");
        // However busy the machine is.
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let begun = Instant::now();
        loop {
            match client.get_multiplexed_async_connection_with_config(&patient).await {
                Ok(connection) => return connection,
                // Sentinels close all connections to a server whose role they change, new ones too.
                Err(error) if begun.elapsed() < Duration::from_secs(5) && error.is_io_error() => {}
                Err(error) => panic!("no connection: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until `INFO` contains `word`.
    pub async fn until_info(&self, word: &str) {
        let (mut connection, begun) = (self.connection().await, Instant::now());
        loop {
            match redis::cmd("INFO").query_async::<String>(&mut connection).await {
                Ok(info) if info.contains(word) => return,
                Ok(_) => {}
                // Sentinels close all connections to a server whose role they change.
                Err(_) => connection = self.connection().await,
            }
            assert!(begun.elapsed() < PATIENCE, "{word} never came");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port, after `kill`.
    pub fn restart(&mut self) {
        self.restart_until(READY);
    }

    /// Starts it again, and waits until its log says `word`.
    pub fn restart_until(&mut self, word: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(process) = spawn(self.port, &self.folder, &self.options, word) {
                self.process = process;
                return;
            }
            assert!(Instant::now() < end, "redis-server does not come back on its port");
        }
    }

    /// Sends it a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }
}

/// Returns when a key expires, in ms since the Unix epoch; negative if it does not, or is not
/// there. The same as `PEXPIRETIME`, which 6.2 lacks: so the time that is left is read within one
/// millisecond of the server's clock.
pub async fn expires(connection: &mut MultiplexedConnection, key: &str) -> i64 {
    let mut ask = redis::pipe();
    ask.cmd("TIME").cmd("PTTL").arg(key).cmd("TIME");
    loop {
        let (before, left, after): ((i64, i64), i64, (i64, i64)) =
            ask.query_async(connection).await.expect("a time to live");
        let [before, after] = [before, after].map(|(seconds, us)| seconds * 1_000 + us / 1_000);
        if left < 0 {
            return left;
        }
        if before == after {
            return before + left;
        }
    }
}

/// A port that refuses. A free port would not do: a test beside this one may take it, and no system
/// hands out a port below 1024.
pub const NOWHERE: u16 = 1;

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A server that is ready, or none if it ended, as it does when another took the port.
fn spawn(port: u16, folder: &Path, options: &[String], word: &str) -> Option<Process> {
    let program = program_for(&options.join(" "));
    let mut command = Command::new(&program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    let process = match Process::start(command.arg("--dir").arg(folder).args(options)) {
        Ok(process) => process,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{} is not there: run ./check.sh or tests/servers.sh", program.display())
        }
        Err(error) => panic!("redis-server does not start: {error}"),
    };
    process.says(word).map(|_| process)
}
