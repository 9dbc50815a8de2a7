//! The promises that a world relies on: roles, faults and the book of a simulated server, spoken to
//! in bytes.

use std::collections::BTreeMap;

use redis::Value;

use super::book::Event;
use super::keyspace::Stored;
use super::resp::Word;
use super::server::{Address, ConnectionId, Mode, Role, Server};
use super::slots::{Slots, slot_of};

const NOW: i64 = 1_767_225_600_000_000;

/// A server and a connection to it.
struct Talk {
    server: Server,
    connection: ConnectionId,
    now: i64,
}

impl Talk {
    fn with(server: Server) -> Self {
        let mut talk = Self { server, connection: ConnectionId(0), now: NOW };
        talk.reconnect();
        talk
    }

    fn new() -> Self {
        Self::with(Server::new("a", 1))
    }

    fn reconnect(&mut self) {
        self.connection = self.server.connect().expect("it listens");
    }

    /// The bytes of the answer, in which the words end with a space or the line.
    fn ask(&mut self, line: &str) -> String {
        let bytes = self.server.feed(self.connection, self.now, format!("{line}\r\n").as_bytes());
        String::from_utf8(bytes.expect("the connection is open")).expect("a text")
    }

    fn read(&mut self, line: &str) -> Value {
        redis::parse_redis_value(self.ask(line).as_bytes()).expect("a reply")
    }

    /// Runs a script that has no spaces.
    fn eval(&mut self, script: &str, key: &str) -> String {
        self.ask(&format!("EVAL {script} 1 {key}"))
    }
}

fn address(host: &str, port: u16) -> Address {
    (host.into(), port)
}

#[test]
fn keys_expire_by_the_clock_that_is_given() {
    let mut talk = Talk::new();
    assert_eq!(talk.ask("SET k v PX 10"), "+OK\r\n");
    talk.now += 10_000;
    assert_eq!((talk.ask("PTTL k"), talk.ask("GET k")), (":0\r\n".into(), "$1\r\nv\r\n".into()));
    talk.now += 1_000;
    assert_eq!((talk.ask("PTTL k"), talk.ask("GET k")), (":-2\r\n".into(), "$-1\r\n".into()));
    assert_eq!(talk.ask("TIME"), "*2\r\n$10\r\n1767225600\r\n$5\r\n11000\r\n");
    // A clock that steps back brings no key back.
    talk.now = NOW;
    assert_eq!(talk.ask("GET k"), "$-1\r\n");
}

#[test]
fn hello_switches_the_protocol_and_says_what_the_server_is() {
    let mut talk = Talk::new();
    talk.ask("ZADD z 1.5 m");
    assert_eq!(talk.ask("ZSCORE z m"), "$3\r\n1.5\r\n");
    assert!(talk.ask("HELLO").starts_with("*14\r\n$6\r\nserver\r\n"));
    let greeting = talk.ask("HELLO 3");
    assert!(greeting.starts_with("%7\r\n$6\r\nserver\r\n"));
    assert!(greeting.contains("$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"));
    assert_eq!(talk.ask("ZSCORE z m"), ",1.5\r\n");
    assert_eq!(talk.ask("GET nothing"), "_\r\n");
    assert_eq!(talk.ask("ZRANGE z 0 -1 WITHSCORES"), "*1\r\n*2\r\n$1\r\nm\r\n,1.5\r\n");
    talk.server.role = Role::Replica { of: address("b", 2) };
    assert!(talk.ask("HELLO").contains("$7\r\nreplica\r\n"));
    assert!(talk.ask("ROLE").starts_with("*5\r\n$5\r\nslave\r\n$1\r\nb\r\n:2\r\n"));
    assert!(talk.ask("INFO").contains("role:slave"));
}

#[test]
fn a_login_is_asked_for() {
    let mut server = Server::new("a", 1);
    server.password = Some("secret".into());
    let mut talk = Talk::with(server);
    assert_eq!(talk.ask("GET k"), "-NOAUTH Authentication required.\r\n");
    assert!(talk.ask("HELLO 3").starts_with("-NOAUTH HELLO must"));
    assert!(talk.ask("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(talk.ask("HELLO 3 AUTH default secret SETNAME me").starts_with("%7\r\n"));
    assert_eq!(talk.ask("GET k"), "_\r\n");
    talk.reconnect();
    assert_eq!(talk.ask("AUTH secret"), "+OK\r\n");
}

#[test]
fn a_server_says_why_it_cannot_serve() {
    let write = "return(redis.call('SET',KEYS[1],'x'))";
    let mut talk = Talk::new();
    talk.server.is_loading = true;
    assert!(talk.eval(write, "k").starts_with("-LOADING "));
    assert!(talk.ask("HELLO 3").starts_with('%'));
    talk.server.is_loading = false;
    talk.server.is_out_of_memory = true;
    assert!(talk.eval(write, "k").starts_with("-OOM command not allowed"));
    // After its first write a script is served.
    let first = "redis.call('DEL',KEYS[1])return(redis.call('SET',KEYS[1],'x'))";
    assert_eq!(talk.eval(first, "k"), "+OK\r\n");
    talk.server.is_out_of_memory = false;
    talk.server.role = Role::Replica { of: address("b", 2) };
    assert!(talk.eval(write, "k").starts_with("-READONLY You can't write"));
    assert!(talk.ask("SET k v").starts_with("-READONLY "));
    assert_eq!(talk.ask("GET k"), "$1\r\nx\r\n");
}

#[test]
fn the_book_says_what_each_call_changed() {
    let mut talk = Talk::new();
    let script = "return(redis.call('INCRBY',KEYS[1],2))";
    talk.eval(script, "k");
    talk.eval(script, "k");
    talk.ask("GET k");
    let text = |text: &str| Stored::Text(text.into());
    let events = talk.server.book().events();
    let [Event::Change(one), Event::Call(call), Event::Change(two), Event::Call(next)] = events
    else {
        panic!("{events:?}")
    };
    assert_eq!((one.before.as_ref(), one.key.as_slice()), (None, b"k".as_slice()));
    assert_eq!(*two.before.as_ref().expect("a value").stored, text("2"));
    assert_eq!(*two.after.as_ref().expect("a value").stored, text("4"));
    assert_eq!((call.first_change, next.first_change, next.at), (0, 2, NOW));
    assert_eq!((&next.keys, next.session), (&vec![Word::from(*b"k")], 1));
    assert_eq!(next.reply, super::resp::Reply::Integer(4));
    assert_eq!(talk.server.stored(b"k"), Some((&text("4"), None)));
}

#[test]
fn a_crash_closes_connections_and_forgets_scripts() {
    let mut talk = Talk::new();
    talk.eval("return(redis.call('SET',KEYS[1],'x'))", "k");
    let digest = talk.ask("SCRIPT LOAD return(1)");
    let digest = digest.lines().nth(1).expect("a digest").to_owned();
    assert_eq!(talk.ask(&format!("EVALSHA {digest} 0")), ":1\r\n");
    for (keeps_data, stored) in [(true, "$1\r\nx\r\n"), (false, "$-1\r\n")] {
        talk.server.crash(NOW, keeps_data);
        assert_eq!(talk.server.feed(talk.connection, NOW, b"PING\r\n"), None);
        assert_eq!(talk.server.connect(), None);
        talk.server.go_on();
        talk.reconnect();
        assert!(talk.ask(&format!("EVALSHA {digest} 0")).starts_with("-NOSCRIPT "));
        assert_eq!(talk.ask("GET k"), stored);
    }
}

#[test]
fn a_server_that_stands_answers_when_it_goes_on() {
    let mut talk = Talk::new();
    talk.server.stop();
    assert!(!talk.server.runs());
    assert_eq!(talk.ask("PING"), "");
    let other = talk.server.connect().expect("the kernel accepts");
    assert_eq!(talk.server.feed(other, NOW, b"ECHO x\r\n").expect("open"), b"");
    talk.server.go_on();
    assert_eq!(talk.server.poll(talk.connection, NOW).expect("open"), b"+PONG\r\n");
    // Who left is not answered.
    talk.server.disconnect(other);
    assert_eq!(talk.server.poll(other, NOW), None);
}

#[test]
fn a_replica_follows_the_book_of_its_primary() {
    let mut primary = Talk::new();
    let mut replica = Server::new("b", 2);
    replica.role = Role::Replica { of: primary.server.address.clone() };
    for line in ["SET k v PX 5", "ZADD z 1 m", "DEL z", "HSET h f v"] {
        primary.ask(line);
    }
    let changes = |server: &Server| {
        let events = server.book().events().iter();
        let change = |event: &Event| match event {
            Event::Change(change) => Some(change.clone()),
            _ => None,
        };
        events.filter_map(change).collect::<Vec<_>>()
    };
    let seen = changes(&primary.server);
    for change in &seen {
        replica.replicate(change);
    }
    assert_eq!(changes(&replica), seen);
    let mut replica = Talk::with(replica);
    // It hides an old key, and waits for its primary to remove it.
    replica.now += 6_000;
    assert_eq!(replica.ask("GET k"), "$-1\r\n");
    assert_eq!(replica.server.keys(), [b"h", b"k"]);
    primary.now += 6_000;
    primary.ask("GET k");
    replica.server.replicate(changes(&primary.server).last().expect("the removal"));
    assert_eq!(replica.server.keys(), [b"h"]);
    // One that starts anew is as its primary.
    let mut other = Server::new("c", 3);
    other.replicate(&seen[0]);
    other.replicate_all(&primary.server);
    assert_eq!(other.keys(), [b"h"]);
}

#[test]
fn a_sentinel_names_the_primary_and_publishes_a_switch() {
    let mut server = Server::new("s", 26_379);
    server.mode = Mode::Sentinel(BTreeMap::new());
    server.switch_primary("main", address("a", 1), 1);
    let mut talk = Talk::with(server);
    talk.ask("HELLO 3");
    assert_eq!(
        talk.ask("SUBSCRIBE +switch-master"),
        ">3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
    );
    let ask = "SENTINEL GET-MASTER-ADDR-BY-NAME";
    assert_eq!(talk.ask(&format!("{ask} other")), "_\r\n");
    assert_eq!(talk.ask(&format!("{ask} main")), "*2\r\n$1\r\na\r\n$1\r\n1\r\n");
    talk.server.switch_primary("main", address("b", 2), 2);
    let news = talk.server.poll(talk.connection, NOW).expect("open");
    let expected = ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$12\r\nmain a 1 b 2\r\n";
    assert_eq!(String::from_utf8(news).expect("a text"), expected);
    assert_eq!(talk.ask(&format!("{ask} main")), "*2\r\n$1\r\nb\r\n$1\r\n2\r\n");
    assert!(talk.ask("SENTINEL MASTER main").contains("$12\r\nconfig-epoch\r\n$1\r\n2\r\n"));
    assert_eq!(talk.ask("PUBLISH other x"), ":0\r\n");
}

#[test]
fn a_node_sends_a_caller_to_the_master_of_a_slot() {
    let (own, other) = (address("a", 1), address("b", 2));
    assert_eq!((slot_of(b"123456789"), slot_of(b"x{user1000}y")), (12_739, slot_of(b"user1000")));
    let mut server = Server::new("a", 1);
    server.mode = Mode::Cluster(Slots::shared(0, [own, other.clone()].into(), 2));
    let mut talk = Talk::with(server);
    let slots = |talk: &mut Talk, change: &dyn Fn(&mut Slots)| {
        let Mode::Cluster(slots) = &mut talk.server.mode else { panic!("a cluster") };
        change(slots);
    };
    // `a` lies in slot 15495, `b` in slot 3300.
    let Value::Array(ranges) = talk.read("CLUSTER SLOTS") else { panic!("ranges") };
    let Value::Array(range) = &ranges[1] else { panic!("a range") };
    assert_eq!((ranges.len(), &range[0], &range[1]), (2, &Value::Int(8_192), &Value::Int(16_383)));
    assert_eq!(talk.ask("GET a"), "-MOVED 15495 b:2\r\n");
    assert_eq!(talk.ask("SET {b}1 v"), "+OK\r\n");
    assert!(talk.ask("MGET {b}1 a").starts_with("-CROSSSLOT "));
    assert!(talk.eval("return(redis.call('GET',KEYS[1]))", "a").starts_with("-MOVED "));

    slots(&mut talk, &|slots| slots.migrating = [(3_300, 1)].into());
    assert_eq!(talk.ask("GET {b}1"), "$1\r\nv\r\n");
    assert_eq!(talk.ask("GET b"), "-ASK 3300 b:2\r\n");
    assert!(talk.ask("MGET {b}1 b").starts_with("-TRYAGAIN "));

    slots(&mut talk, &|slots| slots.importing = [15_495].into());
    assert_eq!(talk.ask("GET a"), "-MOVED 15495 b:2\r\n");
    assert_eq!(talk.ask("ASKING"), "+OK\r\n");
    assert_eq!(talk.ask("GET a"), "$-1\r\n");
    assert_eq!(talk.ask("GET a"), "-MOVED 15495 b:2\r\n");
    talk.ask("ASKING");
    assert!(talk.ask("MGET a {a}1").starts_with("-TRYAGAIN "));

    // A replica serves reads if they are wanted.
    talk.server.role = Role::Replica { of: other };
    assert_eq!(talk.ask("READONLY"), "+OK\r\n");
    assert_eq!(talk.ask("GET a"), "$-1\r\n");
    assert_eq!(talk.ask("SET a v"), "-MOVED 15495 b:2\r\n");

    slots(&mut talk, &|slots| slots.owners[15_495] = None);
    assert_eq!(talk.ask("GET a"), "-CLUSTERDOWN Hash slot not served\r\n");
    slots(&mut talk, &|slots| slots.is_down = true);
    assert_eq!(talk.ask("GET b"), "-CLUSTERDOWN The cluster is down\r\n");
}
