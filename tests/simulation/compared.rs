//! The simulated server beside a real one: both get the same bytes, and must answer with the same
//! bytes and store the same values.
//!
//! The simulated server words its errors as Redis 7.0, so only that is compared with it.
//! `SIMULATED_CALLS=100000` runs that many random calls; without it some thousand are run.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Arg, Cmd, cmd};
use tower_sluice::Quota;
use tower_sluice::algorithm::{InLua, IntoAlgorithm, TokenBucket};

use super::lua::digest;
use super::resp::Word;
use super::server::{ConnectionId, Server};
use support::for_each_script;
use support::script::{Call, Entry, Form, NOW};

/// Calls that are sent to the real server at once.
const BATCH: usize = 64;

/// A script that returns what is stored under some keys.
const DUMP: &str = "local all = {} \
    for i, key in ipairs(KEYS) do \
      local kind, value = redis.call('TYPE', key).ok, false \
      if kind == 'string' then value = redis.call('GET', key) \
      elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') \
      elseif kind == 'hash' then value = redis.call('HMGET', key, 'rate', 'interval', 'type', \
        'keepAliveTime', 'x') end \
      local left = redis.call('PTTL', key) \
      all[i] = { kind, value or '', left < 0 and left or 0 } \
    end \
    return all";

/// A real server and a simulated one.
struct Pair {
    _server: support::Server,
    real: TcpStream,
    simulated: Server,
    connection: ConnectionId,
    /// Sent to the simulated server, and not yet to the real one: what, and the answer.
    waiting: Vec<(Vec<Word>, Vec<u8>)>,
    /// The instant at which the first of those was sent, and the longest time until a batch was
    /// answered, in ms.
    begun: i64,
    slack: i64,
    /// The digests of scripts that were loaded, by their texts.
    known: BTreeMap<Word, String>,
    calls: usize,
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
    now.as_micros() as i64
}

fn words_of(command: &Cmd) -> Vec<Word> {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(word) => word.to_vec(),
        _ => panic!("a plain argument"),
    };
    command.args_iter().map(word).collect()
}

fn words(text: &str) -> Vec<Word> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn packed(words: &[Word]) -> Vec<u8> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.get_packed_command()
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().chars().take(1_000).collect()
}

impl Pair {
    /// `None`: the real server is not one of Redis 7.0.
    fn new() -> Option<Self> {
        let version = Command::new(support::program()).arg("--version").output();
        let version = version.expect("redis-server is there").stdout;
        if !String::from_utf8_lossy(&version).contains(" v=7.0.") {
            return None;
        }
        let server = support::Server::with(&[]);
        let real = TcpStream::connect(("127.0.0.1", server.port())).expect("connected");
        let mut simulated = Server::new("127.0.0.1", server.port());
        let connection = simulated.connect().expect("it listens");
        Some(Self {
            _server: server,
            real,
            simulated,
            connection,
            waiting: Vec::new(),
            begun: 0,
            slack: 0,
            known: BTreeMap::new(),
            calls: 0,
        })
    }

    /// Sends a request to both. Returns the simulated answer, which is compared later.
    fn ask(&mut self, words: Vec<Word>) -> Vec<u8> {
        if self.waiting.is_empty() {
            self.begun = now();
        }
        let answer = self.simulated.feed(self.connection, self.begun, &packed(&words));
        let answer = answer.expect("the connection is open");
        self.waiting.push((words, answer.clone()));
        self.calls += 1;
        if self.waiting.len() >= BATCH {
            self.compare();
        }
        answer
    }

    /// Runs a call of a script by its digest, after the text was loaded once.
    fn eval(&mut self, mut words: Vec<Word>) -> Vec<u8> {
        let known = self.known.get(&words[1]).cloned();
        let digest = known.unwrap_or_else(|| {
            let text = std::mem::take(&mut words[1]);
            let digest = digest(&text);
            self.known.insert(text.clone(), digest.clone());
            self.ask(vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), text]);
            digest
        });
        words[0] = b"EVALSHA".to_vec();
        words[1] = digest.into_bytes();
        self.ask(words)
    }

    fn dump(&mut self, keys: &[String]) {
        let mut dump = cmd("EVAL");
        dump.arg(DUMP).arg(keys.len()).arg(keys);
        self.eval(words_of(&dump));
    }

    /// Sends to the real server what it has not got, and compares each answer.
    fn compare(&mut self) {
        let end = b"+the end of this batch".as_slice();
        let echo = [b"ECHO".to_vec(), end.to_vec()];
        let requests: Vec<u8> = self.waiting.iter().flat_map(|(words, _)| packed(words)).collect();
        self.real.write_all(&[requests, packed(&echo)].concat()).expect("sent");
        let mut answers = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        let echoed = [b"\r\n", end, b"\r\n"].concat();
        while !answers.ends_with(&echoed) {
            let count = self.real.read(&mut buffer).expect("an answer");
            assert!(count > 0, "the real server closed the connection");
            answers.extend_from_slice(&buffer[..count]);
        }
        self.slack = self.slack.max((now() - self.begun) / 1_000 + 1);
        let mut rest = answers.as_slice();
        for (words, simulated) in self.waiting.drain(..) {
            let words = || words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
            assert!(
                rest.starts_with(&simulated),
                "after {} calls: {}\nsimulated: {}\nreal: {}",
                self.calls,
                words(),
                shown(&simulated),
                shown(rest)
            );
            rest = &rest[simulated.len()..];
        }
        assert!(rest.len() == echoed.len() + format!("${}", end.len()).len(), "{}", shown(rest));
    }

    /// Compares the time to live of keys, which both count by their own clocks.
    fn compare_expiry(&mut self, keys: &[String]) {
        self.compare();
        for key in keys {
            let asked = [b"PTTL".to_vec(), key.clone().into_bytes()];
            let begun = now();
            let simulated = self.simulated.feed(self.connection, begun, &packed(&asked));
            self.real.write_all(&packed(&asked)).expect("sent");
            let mut real = Vec::new();
            while !real.ends_with(b"\n") {
                let mut byte = [0];
                self.real.read_exact(&mut byte).expect("an answer");
                real.push(byte[0]);
            }
            let [simulated, real] = [simulated.expect("open"), real].map(|reply| {
                let text = std::str::from_utf8(&reply).expect("a number");
                text.trim_start_matches(':').trim_end().parse::<i64>().expect("a number")
            });
            let slack = self.slack + (now() - begun) / 1_000 + 1;
            let is_close = (simulated - real).abs() <= slack;
            let is_same = if simulated.min(real) < 0 { simulated == real } else { is_close };
            assert!(is_same, "{key}: simulated {simulated}, real {real}, slack {slack}");
        }
    }
}

/// Random calls of the scripts of every algorithm.
struct Calls<'a> {
    pair: &'a mut Pair,
    dice: fastrand::Rng,
    /// The calls of each limiter.
    count: usize,
}

impl Calls<'_> {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.dice.usize(..from.len())].clone()
    }

    fn run<A: InLua>(&mut self, algorithm: &A, name: &str, quotas: usize) {
        let mut done = 0;
        for history in 0.. {
            if done >= self.count {
                break;
            }
            let length = (self.count - done).min(60);
            self.history(algorithm, &format!("{name} {history}"), quotas, length);
            done += length;
        }
    }

    fn history<A: InLua>(&mut self, algorithm: &A, name: &str, quotas: usize, length: usize) {
        let keys: [Vec<String>; 3] = std::array::from_fn(|key| {
            (0..quotas).map(|quota| format!("{name} {key} {quota}")).collect()
        });
        let all = keys.concat();
        let mut marks: Vec<(usize, i64, Vec<String>)> = Vec::new();
        let mut at = NOW;
        for _ in 0..length {
            let step = [0, 0, 1, 199_999, 200_000, 333_334, 1_000_000, 5_000_000, -400_000];
            at += self.pick(&step);
            self.disturb(&all);
            let asked: Vec<_> = (0..self.pick(&[1, 1, 2, 5])).map(|_| self.form(&marks)).collect();
            let places = asked.iter().map(|(place, ..)| keys[*place].clone()).collect();
            let call = Call::several(algorithm.clone(), Some(at), places);
            let call = asked.iter().fold(call, |call, (_, _, form)| match form {
                Asked::Form(form) => call.ask(form.clone()),
                Asked::Under(limit, cost) if quotas == 1 => {
                    call.check_under(Quota::per_second(*limit), *cost, 1_000_000)
                }
                Asked::Under(_, cost) => call.check(*cost, 1_000_000),
            });
            let mut request = words_of(&call.command(self.dice.bool()));
            if self.dice.bool() {
                // As the crate sends it.
                let text = String::from_utf8(request[1].clone()).expect("a script");
                let packs = text.replace("return reply", "return cmsgpack.pack(reply)");
                assert_ne!(packs, text);
                request[1] = packs.into_bytes();
                self.pair.eval(request);
            } else {
                let reply = self.pair.eval(request);
                let reply = redis::parse_redis_value(&reply).expect("a reply");
                let (_, entries) = call.read(&reply);
                for ((place, cost, _), entry) in asked.iter().zip(&entries) {
                    let is_admitted =
                        matches!(entry, Entry::Told { numbers: [0 | 1, ..], .. }) && *cost > 0;
                    if is_admitted {
                        marks.push((*place, *cost, entry.mark()));
                    }
                }
            }
            if self.dice.usize(..4) == 0 {
                self.pair.dump(&all);
            }
        }
        self.pair.dump(&all);
        self.pair.compare_expiry(&all);
    }

    /// Now and then a key holds what no script writes.
    fn disturb(&mut self, keys: &[String]) {
        if self.dice.usize(..25) > 0 {
            return;
        }
        let key = self.pick(keys);
        let far = (NOW + 3_600_000_000).to_string();
        let puts: [&[&str]; 6] = [
            &["SET", "x"],
            &["SET", "none"],
            &["SET", &far],
            &["HSET", "x", "1"],
            &["ZADD", "1.5", "x"],
            &["DEL"],
        ];
        let put = self.pick(&puts);
        for words in [&["DEL"], put] {
            let mut request = vec![words[0].into(), key.clone().into_bytes()];
            request.extend(words[1..].iter().map(|word| Word::from(*word)));
            self.pair.ask(request);
        }
    }

    /// The place of the key, the cost if the charge may take it, and what is asked.
    fn form(&mut self, marks: &[(usize, i64, Vec<String>)]) -> (usize, i64, Asked) {
        let place = self.dice.usize(..3);
        let cost = self.pick(&[0, 1, 1, 1, 2, 5, 6]);
        let wait = self.pick(&[0, 200_000, 1_000_000, 60_000_000]);
        let form = match self.dice.usize(..12) {
            0 | 1 if !marks.is_empty() => {
                let newest = marks.len() - 1;
                let which = if self.dice.bool() { newest } else { self.dice.usize(..marks.len()) };
                let (place, cost, mark) = &marks[which];
                let form = match self.dice.bool() {
                    true => Form::refund(*cost, mark),
                    false => Form::settle(self.dice.i64(0..=*cost), *cost, mark),
                };
                return (*place, 0, Asked::Form(form));
            }
            2 => Form::new(&[&"estimate", &cost, &wait]),
            3 => {
                let cost = self.pick(&[0_i64, 1, 5, 50, 9_007_199_254_740_991]);
                Form::new(&[&"penalize", &cost])
            }
            4 if self.dice.bool() => Form::new(&[&"reset"]),
            5 => return (place, 0, Asked::Under(self.pick(&[1, 3, 7]), cost)),
            _ => return (place, cost, Asked::Form(Form::new(&[&cost, &wait]))),
        };
        (place, 0, Asked::Form(form))
    }
}

/// The question of one charge.
enum Asked {
    Form(Form),
    /// A charge under a quota of its own: so many each second, and the cost.
    Under(u64, i64),
}

/// The calls that a test runs.
fn simulated_calls() -> usize {
    let calls = std::env::var("SIMULATED_CALLS").ok();
    calls.map_or(4_000, |calls| calls.parse().expect("a number of calls"))
}

#[test]
fn scripts_answer_and_store_as_on_a_real_server() {
    let Some(mut pair) = Pair::new() else { return };
    let dice = fastrand::Rng::with_seed(7);
    let names = support::algorithms::names().len();
    let count = simulated_calls().div_ceil(2 * names);
    let mut calls = Calls { pair: &mut pair, dice, count };
    for_each_script!(|one| {
        let several = (one, TokenBucket::new(Quota::per_second(3))).into_algorithm();
        calls.run(&one, &format!("{one:?}"), 1);
        calls.run(&several, &format!("{several:?}"), 2);
    });
    pair.compare();
    println!("simulated algorithms={names} calls={}", pair.calls);
}

/// Redisson's script, with Java's part in it left out.
#[cfg(feature = "redisson")]
#[test]
fn redissons_script_answers_and_stores_as_on_a_real_server() {
    let Some(mut pair) = Pair::new() else { return };
    let mut dice = fastrand::Rng::with_seed(8);
    let permits = include_str!("../../crates/tower-sluice-redisson/scripts/redisson.lua");
    let settings = include_str!("../../crates/tower-sluice-redisson/scripts/redisson_settings.lua");
    let text = [permits, settings].concat();
    let keys = ["r", "{r}:value", "{r}:permits", "{r}:value:id", "{r}:permits:id"];
    let keys = keys.map(str::to_owned);
    let mut at = NOW;
    let mut grants: Vec<(Vec<u8>, u64)> = Vec::new();
    for call in 0..simulated_calls() / 4 {
        if call % 200 == 0 {
            pair.ask(words("FLUSHALL"));
            grants.clear();
        }
        at += [0, 1, 1_000, 999_000, 1_000_000, 60_000, -300_000][dice.usize(..7)];
        let permits = dice.u64(1..=6);
        let random = dice.u128(..).to_ne_bytes().to_vec();
        let kind = dice.u8(0..2).to_string();
        let keep_alive = ["0", "3600000"][dice.usize(..2)].to_owned();
        let terms = ["5".to_owned(), "1000".to_owned(), kind, keep_alive].map(String::into_bytes);
        let flags = [0, 1].map(|_| dice.u8(0..2).to_string().into_bytes());
        let (operation, arguments): (&str, Vec<Word>) = match dice.usize(..16) {
            0 => ("available", Vec::new()),
            1 => ("config", Vec::new()),
            2 if dice.bool() => ("reset", Vec::new()),
            3 => ("release", vec![permits.to_string().into()]),
            4 => ("penalize", vec![permits.to_string().into(), random]),
            5 | 6 if !grants.is_empty() => {
                let (random, held) = grants[dice.usize(..grants.len())].clone();
                let permits = dice.u64(1..=held).to_string().into();
                ("refund", vec![permits, random, held.to_string().into()])
            }
            7 if !grants.is_empty() => {
                let (random, held) = grants[dice.usize(..grants.len())].clone();
                ("acquire", vec![held.to_string().into(), random])
            }
            8 if dice.bool() => ("try_set", [&flags[..1], &terms].concat()),
            9 if dice.usize(..4) == 0 => ("set", [&flags[..], &terms].concat()),
            10 if dice.usize(..8) == 0 => ("each", vec![b"PERSIST".to_vec()]),
            _ => {
                grants.push((random.clone(), permits));
                ("acquire", vec![permits.to_string().into(), random])
            }
        };
        if call % 200 == 0 {
            let terms = [vec![b"0".to_vec()], terms.to_vec()].concat();
            pair.eval(redisson_call(&text, &keys, at, "try_set", terms));
        }
        pair.eval(redisson_call(&text, &keys, at, operation, arguments));
        if dice.usize(..4) == 0 {
            pair.dump(&keys);
        }
        if dice.usize(..100) == 0 {
            pair.compare_expiry(&keys);
        }
    }
    pair.compare();
    println!("simulated redisson calls={}", pair.calls);
}

#[cfg(feature = "redisson")]
fn redisson_call(
    text: &str,
    keys: &[String],
    at: i64,
    operation: &str,
    arguments: Vec<Word>,
) -> Vec<Word> {
    let mut call = cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(keys).arg(at).arg(operation).arg(arguments);
    words_of(&call)
}

/// Commands with arguments on their edges, some of which are refused.
const COMMANDS: [&str; 38] = [
    "GET k",
    "SET k v",
    "SET k i NX",
    "SET k v XX KEEPTTL",
    "SET k i PX 5000000",
    "SET k i PXAT i NX",
    "SET k i EX e",
    "SET k i NX XX",
    "SET k i PX",
    "INCRBY k i",
    "MGET k k nothing",
    "DEL k",
    "UNLINK k nothing k",
    "EXISTS k k nothing",
    "TYPE k",
    "PERSIST k",
    "PEXPIRE k 5000000",
    "PEXPIREAT k 1",
    "PEXPIREAT k 4102444800000",
    "SET k i XX PXAT 4102444800000",
    "PEXPIRE k e",
    "HSET k v i x i v 2",
    "HSET k v",
    "HMGET k x v y",
    "ZADD k s v s x",
    "ZADD k XX s v s nothing",
    "ZADD nothing XX 0 none",
    "ZADD k s x s y s z",
    "ZADD k s",
    "ZCARD k",
    "ZSCORE k x",
    "ZREM k x y nothing",
    "ZREMRANGEBYRANK k r r",
    "ZREMRANGEBYSCORE k b b",
    "ZCOUNT k b b",
    "ZRANGE k r r o o",
    "ZRANGE k b b BYSCORE o o",
    "ZRANGEBYSCORE k b b o",
];

#[test]
fn commands_answer_as_on_a_real_server() {
    let Some(mut pair) = Pair::new() else { return };
    let mut dice = fastrand::Rng::with_seed(9);
    let keys = ["a", "b", "c"].map(str::to_owned);
    for _ in 0..simulated_calls() {
        let template = COMMANDS[dice.usize(..COMMANDS.len())];
        let from: fn(&str) -> &'static [&'static str] = |letter| match letter {
            "k" => &["a", "b", "c"],
            "i" => &["1", "-1", "0", "9223372036854775807", "-9223372036854775808", "x", "01", ""],
            // No time that ends while the calls are compared.
            "e" => &["5000", "0", "-1", "9223372036854775807", "x"],
            "v" | "x" | "y" | "z" => &["x", "y", "z", "w", "\r\n"],
            "s" => &["0", "1", "1.5", "-2", "1e17", "-inf", "inf", "nan", "7"],
            "r" => &["0", "1", "2", "-1", "-2", "5", "-5", "x", "9223372036854775807"],
            "b" => &["-inf", "+inf", "(1", "1", "0", "7", "(x", "-2", "1.5"],
            "o" => &["WITHSCORES", "REV", "LIMIT 0 1", "LIMIT 1 -1", "LIMIT -1 2", "limit 1 x", ""],
            _ => &[],
        };
        let chosen: Vec<_> = template
            .split(' ')
            .filter_map(|word| match from(word) {
                [] => Some(word.to_owned()),
                choices => Some(choices[dice.usize(..choices.len())].to_owned())
                    .filter(|chosen| word != "o" || !chosen.is_empty()),
            })
            .collect();
        // An option of several words is as many.
        let split = |word: &String| match word.to_ascii_lowercase().starts_with("limit ") {
            true => words(word),
            false => vec![word.clone().into_bytes()],
        };
        pair.ask(chosen.iter().flat_map(split).collect());
        if dice.usize(..8) == 0 {
            pair.dump(&keys);
        }
    }
    pair.compare();
    println!("simulated commands={}", pair.calls);
}

#[test]
fn scripts_that_fail_are_reported_as_on_a_real_server() {
    let Some(mut pair) = Pair::new() else { return };
    pair.ask(words("SET text v"));
    let scripts = [
        "return redis.call('INCRBY', 'text', 1)",
        "\n\nreturn redis.call('ZCARD', 'text')",
        "return redis.pcall('ZCARD', 'text')",
        "return redis.pcall('ZCARD', 'text').err",
        "return redis.call('GET')",
        "return redis.call('NOTHING', 1)",
        "return redis.call('EVAL', 'return 1', 0)",
        "return redis.call()",
        "return redis.pcall(true)",
        "return nil + 1",
        "local function inner()\n error('x') end\ninner()",
        "error({ err = 'CODE text' })",
        "return nothing",
        "something = 1",
        "return redis.error_reply('alone')",
        "return redis.error_reply('CODE text')",
        "return redis.error_reply('-CODE text')",
        "return redis.status_reply('FINE')",
        "return { 1, 2.9, -2.9, 'x', true, false, { 'y', nil, 'z' } }",
        "return { 1, nil, 3 }",
        "return {}",
        "return 1e17",
        "return print == nil and os == nil and io == nil and require == nil",
        "return redis.sha1hex('x')",
        "return cmsgpack.pack(1, -1, 127, 128, 255, 256, 65535, 65536, 4294967296, -32, -33, -129)",
        "return cmsgpack.pack(-32769, -2147483649, 1.5, 0.1, 1e300, 9007199254740992, 1e-17, -0.5)",
        "return cmsgpack.pack({}, { 1, 'x' }, { x = { true, false } }, string.rep('y', 300))",
        "local t = {} for i = 1, 70000 do t[i] = i end return redis.sha1hex(cmsgpack.pack(t))",
        "return struct.pack('>dI<I2', 1e-17, 258, 70000)",
        "return { struct.unpack('>I2I', '\\1\\2\\3\\4\\5\\6', 1) }",
        "return redis.call('SET', 'digits', 0.1) and redis.call('GET', 'digits')",
        "return redis.call('SET', 'digits', 2^53) and redis.call('GET', 'digits')",
        "return 1 +",
        "if true then",
        "return tostring(0.1) .. tonumber('0x10') .. 1e15",
    ];
    for script in scripts {
        let mut call = cmd("EVAL");
        call.arg(script).arg(0);
        pair.ask(words_of(&call));
    }
    for command in [
        "EVALSHA 0123456789012345678901234567890123456789 0",
        "EVAL return x",
        "EVAL x 1",
        "EVAL x -1",
        "NOTHING a b",
        "GET",
        "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        "CLUSTER SLOTS",
        "SELECT 0",
        "HELLO 4",
        "HELLO 3 OTHER",
        "CLIENT SETNAME x",
        "PING",
        "PING x",
    ] {
        pair.ask(words(command));
    }
    pair.compare();
}
