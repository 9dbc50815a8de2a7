//! A simulated Redis: a value that takes bytes and gives bytes, without a socket and without a
//! clock of its own.
//!
//! [`connect`](Server::connect) begins a connection. [`feed`](Server::feed) gives it bytes at an
//! instant of the server's clock, and returns what the server writes. Faults are operations, such
//! as [`crash`](Server::crash) and [`stop`](Server::stop), and settings that are public fields. The
//! world that holds the servers decides when each happens, and how long bytes travel.
//!
//! [`book`](Server::book) says what the server did. Its changes of keys are what replicas follow:
//! [`replicate`](Server::replicate).

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, Change, Naming, ScriptCall};
use super::commands::{BEFORE_LOGIN, Command, NEEDS_MEMORY, Run, WHILE_LOADING, WRITE};
use super::keyspace::{Entry, Keyspace, Stored};
use super::lua::Interpreter;
use super::resp::{Reply, Version, Word, take_request};
use super::slots::Slots;

/// Host and port, as clients are sent to them.
pub type Address = (String, u16);

/// The role of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Primary,
    /// Follows a primary, and refuses writes.
    Replica {
        of: Address,
    },
}

/// The primary of a service, as a sentinel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub primary: Address,
    /// The number of the last switch.
    pub epoch: u64,
}

/// The group that a server is part of.
#[derive(Debug)]
pub enum Mode {
    Standalone,
    /// A node of a cluster, with its own view of who holds which slot.
    Cluster(Slots),
    /// A sentinel, and the services that it watches by their names.
    Sentinel(BTreeMap<String, Service>),
}

/// A connection of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The state that the server keeps of a connection.
#[derive(Debug)]
pub struct Session {
    pub(super) id: u64,
    pub(super) version: Version,
    pub(super) is_logged_in: bool,
    /// The next command may touch a slot that is being imported.
    pub(super) is_asking: bool,
    /// Reads of a replica of a cluster are wanted.
    pub(super) is_read_only: bool,
    pub(super) channels: BTreeSet<Word>,
    input: Vec<u8>,
    /// The bytes that were published to it and have not been fetched.
    pub(super) output: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    /// It keeps its connections and reads nothing.
    Stands,
    Ended,
}

/// A simulated server.
#[derive(Debug)]
pub struct Server {
    pub address: Address,
    pub role: Role,
    pub mode: Mode,
    /// The password that a connection must log in with. A change counts for connections that come
    /// after it.
    pub password: Option<String>,
    /// Commands are answered with LOADING.
    pub is_loading: bool,
    /// Commands that need memory are answered with OOM.
    pub is_out_of_memory: bool,
    pub(super) data: Keyspace,
    pub(super) interpreter: Interpreter,
    sessions: BTreeMap<u64, Session>,
    last_session: u64,
    life: Life,
}

impl Server {
    /// An empty primary that stands alone.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            address: (host.into(), port),
            role: Role::Primary,
            mode: Mode::Standalone,
            password: None,
            is_loading: false,
            is_out_of_memory: false,
            data: Keyspace::default(),
            interpreter: Interpreter::new(),
            sessions: BTreeMap::new(),
            last_session: 0,
            life: Life::Runs,
        }
    }

    /// Begins a connection. `None`: nobody listens. A server that stands accepts, as the kernel
    /// does in its place.
    pub fn connect(&mut self) -> Option<ConnectionId> {
        if self.life == Life::Ended {
            return None;
        }
        self.last_session += 1;
        let session = Session {
            id: self.last_session,
            version: Version::Two,
            is_logged_in: self.password.is_none(),
            is_asking: false,
            is_read_only: false,
            channels: BTreeSet::new(),
            input: Vec::new(),
            output: Vec::new(),
        };
        self.sessions.insert(session.id, session);
        Some(ConnectionId(self.last_session))
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.sessions.remove(&connection.0);
    }

    /// Takes bytes that arrive on a connection, at an instant of the server's clock in µs since
    /// the epoch. Returns the bytes that the server writes, or `None` if it has closed the
    /// connection.
    pub fn feed(&mut self, connection: ConnectionId, now: i64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.sessions.get_mut(&connection.0)?.input.extend_from_slice(bytes);
        self.data.now = now;
        self.data.is_replica = self.role != Role::Primary;
        if self.life == Life::Runs { self.answer(connection) } else { Some(Vec::new()) }
    }

    /// Fetches what was published to a connection, and what came in while the server stood.
    pub fn poll(&mut self, connection: ConnectionId, now: i64) -> Option<Vec<u8>> {
        self.feed(connection, now, b"")
    }

    fn answer(&mut self, connection: ConnectionId) -> Option<Vec<u8>> {
        // It is out of the map while its commands run.
        let mut session = self.sessions.remove(&connection.0)?;
        let mut is_open = true;
        while is_open {
            let reply = match take_request(&mut session.input) {
                Ok(None) => break,
                Ok(Some(words)) if words.is_empty() => continue,
                Ok(Some(words)) => self.execute(&mut session, &words),
                Err(error) => {
                    is_open = false;
                    Reply::Error(error)
                }
            };
            let version = session.version;
            reply.write(version, &mut session.output);
        }
        let output = std::mem::take(&mut session.output);
        if is_open {
            self.sessions.insert(session.id, session);
        }
        Some(output)
    }

    fn execute(&mut self, session: &mut Session, words: &[Word]) -> Reply {
        let is_asking = std::mem::take(&mut session.is_asking);
        let Some(command) = Command::find(words) else {
            return Reply::Error(unknown_command(words));
        };
        if !command.takes(words) {
            let name = command.name.to_lowercase();
            return Reply::Error(format!("ERR wrong number of arguments for '{name}' command"));
        }
        let outcome = self.admit(session, command, words, is_asking);
        let outcome = outcome.and_then(|()| match command.run {
            Run::Data(run) => run(&mut self.data, &words[1..]),
            Run::Session(run) => run(self, session, &words[1..]),
        });
        outcome.unwrap_or_else(|error| error)
    }

    /// Refuses a command, in the order in which Redis looks at the reasons.
    fn admit(
        &mut self,
        session: &Session,
        command: &Command,
        words: &[Word],
        is_asking: bool,
    ) -> Result<(), Reply> {
        if !session.is_logged_in && !command.has(BEFORE_LOGIN) {
            return Err("NOAUTH Authentication required.".into());
        }
        if let Mode::Cluster(slots) = &self.mode {
            let is_read = session.is_read_only && !command.has(WRITE);
            let reads_of = match &self.role {
                Role::Replica { of } if is_read => Some(of),
                _ => None,
            };
            let admitted = slots.admit(command.keys_of(words), is_asking, reads_of, &mut self.data);
            if let Err(Reply::Error(text)) = &admitted
                && let Some((host, _)) = text.rsplit(' ').next().and_then(|to| to.split_once(':'))
            {
                let (session, came_at) = (session.id, self.data.now);
                let hosts = vec![host.to_owned()];
                self.data.book.record_naming(Naming { session, came_at, is_map: false, hosts });
            }
            admitted?;
        }
        if self.is_out_of_memory && command.has(NEEDS_MEMORY) {
            return Err(OUT_OF_MEMORY.into());
        }
        if self.role != Role::Primary && command.has(WRITE) {
            return Err(READ_ONLY.into());
        }
        if self.is_loading && !command.has(WHILE_LOADING) {
            return Err("LOADING Redis is loading the dataset in memory".into());
        }
        Ok(())
    }

    /// Runs a script of the cache for a connection.
    pub(super) fn run_script(
        &mut self,
        session: &Session,
        digest: &str,
        keys: &[Word],
        arguments: &[Word],
    ) -> Reply {
        let script = self.interpreter.script(digest).expect("it is in the cache");
        let (first_change, at) = (self.data.book.len(), self.data.now);
        let (runner, mut has_written) = (self.interpreter.runner(), false);
        let reply = runner.run(&script, digest, keys, arguments, |words| {
            self.answer_script(&words, &mut has_written).unwrap_or_else(|error| error)
        });
        self.data.book.record_call(ScriptCall {
            at,
            sent_at: self.data.book.sent_at,
            session: session.id,
            digest: digest.into(),
            keys: keys.to_vec(),
            arguments: arguments.to_vec(),
            first_change,
            reply: reply.clone(),
        });
        reply
    }

    /// Answers a command of a script. Once a script has written, memory is no reason to refuse.
    fn answer_script(&mut self, words: &[Word], has_written: &mut bool) -> Result<Reply, Reply> {
        let command = Command::find(words).ok_or("ERR Unknown Redis command called from script")?;
        if !command.takes(words) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        let Run::Data(run) = command.run else {
            return Err("ERR This Redis command is not allowed from script".into());
        };
        if command.has(WRITE) && self.role != Role::Primary {
            return Err(READ_ONLY.into());
        }
        if command.has(NEEDS_MEMORY) && self.is_out_of_memory && !*has_written {
            return Err(OUT_OF_MEMORY.into());
        }
        *has_written |= command.has(WRITE);
        run(&mut self.data, &words[1..])
    }

    /// Publishes a message, as sentinels do. Returns how many connections get it.
    pub fn publish(&mut self, channel: &str, message: &str) -> usize {
        let mut count = 0;
        for session in self.sessions.values_mut() {
            if session.channels.contains(channel.as_bytes()) {
                let parts = ["message", channel, message].map(Reply::text);
                Reply::Push(parts.to_vec()).write(session.version, &mut session.output);
                count += 1;
            }
        }
        count
    }

    /// Lets a sentinel follow another primary since a switch of that number, and publishes that.
    pub fn switch_primary(&mut self, name: &str, primary: Address, epoch: u64) {
        let Mode::Sentinel(services) = &mut self.mode else { return };
        let service = Service { primary: primary.clone(), epoch };
        let before = services.insert(name.into(), service).map(|service| service.primary);
        let (host, port) = before.unwrap_or_else(|| primary.clone());
        let message = format!("{name} {host} {port} {} {}", primary.0, primary.1);
        self.publish("+switch-master", &message);
    }

    /// Lets a sentinel name a primary, and publishes nothing.
    pub fn name_primary(&mut self, name: &str, service: Service) {
        let Mode::Sentinel(services) = &mut self.mode else { return };
        services.insert(name.into(), service);
    }

    /// The view of a node of a cluster.
    pub fn slots(&mut self) -> Option<&mut Slots> {
        match &mut self.mode {
            Mode::Cluster(slots) => Some(slots),
            _ => None,
        }
    }

    /// Gives a key away to another node, as MIGRATE does. It keeps the time that it has left.
    pub fn migrate(&mut self, now: i64, key: &[u8], target: &mut Self, target_now: i64) {
        (self.data.now, target.data.now) = (now, target_now);
        self.data.is_replica = false;
        let Some(entry) = self.data.get(key).cloned() else { return };
        let left = entry.expires_at.map(|at| (at - self.data.now_millis()).max(1));
        let expires_at = left.map(|left| target.data.now_millis() + left);
        target.data.copy(key, Some(Entry { expires_at, ..entry }));
        self.data.copy(key, None);
    }

    /// Ends the server at an instant of its clock: all connections close, and the script cache is
    /// gone.
    pub fn crash(&mut self, now: i64, keeps_data: bool) {
        self.data.now = now;
        self.life = Life::Ended;
        self.sessions.clear();
        self.interpreter.flush();
        self.data.book.record_crash(keeps_data);
        if !keeps_data {
            self.data.clear();
        }
    }

    /// Lets the server stand, as a process that is stopped: it accepts and does not answer.
    pub fn stop(&mut self) {
        if self.life == Life::Runs {
            self.life = Life::Stands;
        }
    }

    /// Lets a server run that stands or has ended.
    pub fn go_on(&mut self) {
        self.life = Life::Runs;
    }

    /// Forgets all scripts, as `SCRIPT FLUSH` does.
    pub fn flush_scripts(&mut self) {
        self.interpreter.flush();
    }

    /// Returns true if it answers.
    pub fn runs(&self) -> bool {
        self.life == Life::Runs
    }

    /// Everything that happened here.
    pub fn book(&self) -> &Book {
        &self.data.book
    }

    /// Notes when a client had read the answer to what came at an instant.
    pub fn note_reading(&mut self, id: ConnectionId, came_at: i64, read_at: i64) {
        self.data.book.record_reading(id.0, came_at, read_at);
    }

    /// Notes when a client sent what comes next.
    pub fn note_sending(&mut self, sent_at: i64) {
        self.data.book.sent_at = sent_at;
    }

    /// Begins the book anew, so that a long world needs little memory.
    pub fn forget_book(&mut self) {
        self.data.book = Book::default();
    }

    /// Returns the value of a key and when it expires in ms, old or not.
    pub fn stored(&self, key: &[u8]) -> Option<(&Stored, Option<i64>)> {
        self.data.peek(key).map(|entry| (&*entry.stored, entry.expires_at))
    }

    /// The names of all keys, old ones included.
    pub fn keys(&self) -> Vec<Word> {
        self.data.keys()
    }

    /// Does what a primary did, as its replica. How far a replica is behind is the world's choice.
    pub fn replicate(&mut self, change: &Change) {
        self.data.now = change.at;
        self.data.copy(&change.key, change.after.clone());
    }

    /// Takes over all keys of a primary, as a replica that starts anew.
    pub fn replicate_all(&mut self, primary: &Self) {
        self.data.now = primary.data.now;
        self.data.book.record_replacement(primary.address.clone());
        self.data.replace_entries(primary.data.copy_entries());
    }
}

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

fn unknown_command(words: &[Word]) -> String {
    let text = |word: &Word| String::from_utf8_lossy(word).into_owned();
    let arguments: String = words[1..].iter().map(|word| format!("'{}' ", text(word))).collect();
    format!("ERR unknown command '{}', with args beginning with: {arguments}", text(&words[0]))
}
