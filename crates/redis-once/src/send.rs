//! Sends single commands and scripts, each at most once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use redis::{Arg, Cmd, ToRedisArgs, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connection::SharedConnection;
use super::error::{Error, ErrorKind};
use super::error_reply::words;
use super::failure::{Failure, LateReply};
use super::fault::{Deadline, Progress, Stage};
use super::pool::Pool;
use super::resend::Items;
use super::script::Script;

impl Pool {
    /// Sends a command, and waits for its answer until `deadline`. It waits for a connection for at
    /// most half a second.
    ///
    /// It is sent to the server that holds `key`, and follows the redirects of a cluster: with them
    /// a server says that it did not run the command. Otherwise it is sent once. Write `""` for a
    /// command without a key.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use redis_once::redis::cmd;
    /// use redis_once::{Failure, Pool};
    /// use tokio::time::Instant;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::connect("redis://127.0.0.1")?;
    /// let deadline = Instant::now() + Duration::from_millis(100);
    /// match pool.send(cmd("INCR").arg("orders").take(), "orders", deadline).await {
    ///     Ok(count) => println!("counted: {count:?}"),
    ///     Err(failure) if failure.may_have_run() => println!("nobody knows: {failure}"),
    ///     Err(failure) => println!("not counted: {failure}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Failure`] says whether the command may have run.
    pub async fn send(&self, command: Cmd, key: &str, deadline: Instant) -> Result<Value, Failure> {
        self.call(Command::Plain(command), key, deadline, || ()).await
    }

    /// Runs a script, and waits for its answer until `deadline`. The first key determines the
    /// server, which must have them all.
    ///
    /// The text is sent only to a server that does not know the script. Otherwise it is sent once,
    /// as by [`send`](Self::send). A script that itself returns an error with the code `TRYAGAIN`,
    /// `NOSCRIPT`, `MOVED` or `ASK` would be sent again.
    ///
    /// # Errors
    ///
    /// A [`Failure`] says whether the script may have run.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl ToRedisArgs + Send + Sync,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        self.run_when_connected(script, keys, arguments, deadline, || ()).await
    }

    /// Works like [`run`](Self::run), and calls `connected` when there is a connection, right
    /// before the script is first sent. A future that is dropped earlier has sent nothing.
    ///
    /// # Errors
    ///
    /// A [`Failure`] says whether the script may have run.
    pub async fn run_when_connected(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl ToRedisArgs + Send + Sync,
        deadline: Instant,
        connected: impl FnOnce() + Send,
    ) -> Result<Value, Failure> {
        let mut all = keys.len().to_redis_args();
        keys.write_redis_args(&mut all);
        arguments.write_redis_args(&mut all);
        let key = keys.first().copied().unwrap_or_default();
        self.call(Command::Script(script.clone(), all), key, deadline, connected).await
    }

    async fn call(
        &self,
        command: Command,
        key: &str,
        at: Instant,
        connected: impl FnOnce() + Send,
    ) -> Result<Value, Failure> {
        let not_run = |kind, message| Failure::NotRun(Error::new(kind, message));
        if Handle::try_current().is_err() {
            return Err(not_run(ErrorKind::Configuration, "a command needs a tokio runtime"));
        }
        if matches!(&command, Command::Plain(command) if command.args_iter().next().is_none()) {
            return Err(not_run(ErrorKind::Configuration, "the command is empty"));
        }
        let deadline = Deadline::new(self.reply_deadline(at), self.hash_slot(key));
        if deadline.is_over() {
            let message = "the time ended before the command was sent";
            return Err(not_run(ErrorKind::Saturation, message));
        }
        let connection = self.connection_by(deadline).await.map_err(Failure::NotRun)?;
        connected();
        let state = Arc::new(State::default());
        let mut one = One { command, deadline, state: Arc::clone(&state), answer: None };
        let (pool, to) = (self.clone(), Arc::clone(&connection));
        let mut sending = Box::pin(async move {
            let rejected = pool.send_each(&mut one, &*to, [()]).await;
            pool.send_again(&mut one, rejected).await;
            let missed = || pool.missed_error(&deadline, &one.state.progress.stage());
            one.answer.unwrap_or_else(|| Err(Failure::NotRun(missed())))
        });
        let answer = self.reply_by(&deadline, Some(&*connection), sending.as_mut()).await;
        answer.unwrap_or_else(|| {
            let error = self.missed_error(&deadline, &state.progress.stage());
            Err(match state.is_sent.load(Relaxed) {
                true => Failure::Unanswered(error, Some(LateReply(Mutex::new(sending)))),
                false => Failure::NotRun(error),
            })
        })
    }
}

/// A command, or a run of a script with its keys and arguments.
enum Command {
    Plain(Cmd),
    Script(Script, Vec<Vec<u8>>),
}

/// The state of a call.
#[derive(Default)]
struct State {
    progress: Progress,
    /// True while a server may run it.
    is_sent: AtomicBool,
}

/// The one item of a call, and its answer.
struct One {
    command: Command,
    deadline: Deadline,
    state: Arc<State>,
    answer: Option<Result<Value, Failure>>,
}

impl Items for One {
    type Item = ();

    fn hash_slot(&self, (): &()) -> u16 {
        self.deadline.hash_slot
    }

    fn prepare(&mut self, (): ()) -> Option<()> {
        self.state.is_sent.store(false, Relaxed);
        (Instant::now() <= self.deadline.at).then_some(())
    }

    fn script(&self, (): &()) -> Option<&Script> {
        match &self.command {
            Command::Plain(_) => None,
            Command::Script(script, _) => Some(script),
        }
    }

    fn append(&self, (): &(), command: &mut Cmd) {
        self.state.is_sent.store(true, Relaxed);
        match &self.command {
            Command::Plain(plain) => command.clone_from(plain),
            Command::Script(_, arguments) => _ = command.arg(arguments),
        }
    }

    fn secrets(&self, (): &()) -> Vec<String> {
        match &self.command {
            Command::Plain(command) => command.args_iter().skip(1).map(text_of).collect(),
            // Keys are secrets. Other words of the script's own text, such as commands, are not.
            Command::Script(script, all) => {
                let all: Vec<_> = all.iter().map(|one| text_of(Arg::Simple(one))).collect();
                let keys = all[0].parse().unwrap_or(all.len());
                let is_of_text = |word: &str| words(script.text()).any(|one| one == word);
                let is_secret = |place, word: &str| place <= keys || !is_of_text(word);
                let all = all.into_iter().enumerate();
                all.filter(|(place, word)| is_secret(*place, word)).map(|(_, word)| word).collect()
            }
        }
    }

    fn answered(&mut self, (): (), answer: Result<(Value, &dyn SharedConnection), Failure>) {
        self.answer = Some(answer.map(|(value, _)| value));
    }

    fn record(&mut self, (): &(), stage: &Stage) {
        self.state.is_sent.store(false, Relaxed);
        self.state.progress.set(stage);
    }
}

/// Returns an argument as text, which no error may show. Of binary data it is the longer words: two
/// random bytes may be a word of any sentence.
fn text_of(argument: Arg<&[u8]>) -> String {
    let Arg::Simple(bytes) = argument else { return String::new() };
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            words(&text).filter(|word| word.len() > 3).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use redis::aio::ConnectionLike;
    use redis::{Pipeline, RedisFuture, cmd};

    use super::super::dialer::Dialer;
    use super::super::greeting::ServerKind;
    use super::super::own_pool::OwnPool;
    use super::super::silent_fake::SilentFake;
    use super::super::simulated;
    use super::*;

    const SOON: Duration = Duration::from_millis(100);

    /// A pool of one server, which answers a word of a command by `reply`.
    fn pool(reply: impl Fn(&str) -> &'static str + Clone + Send + Sync + 'static) -> Pool {
        let dialer = Dialer::new(move |_, _| {
            let socket = simulated::served(reply.clone());
            async move { Ok(socket) }
        });
        let connector = simulated::connector(SOON, dialer);
        let server = connector.server(&simulated::host(1), ServerKind::Plain);
        Pool::new(Arc::new(OwnPool::new(server.into(), &connector)), None)
    }

    async fn get(pool: &Pool) -> Result<Value, Failure> {
        pool.send(cmd("GET").arg("user:4711").take(), "user:4711", Instant::now() + SOON).await
    }

    /// A connection whose answers come after the deadline.
    #[derive(Clone)]
    struct Slow;

    impl ConnectionLike for Slow {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(async {
                tokio::time::sleep(2 * SOON).await;
                Ok(Value::SimpleString("7".into()))
            })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            Box::pin(std::future::pending())
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_a_value_or_an_error_without_arguments() {
        let greets = |word: &str| match word {
            "HELLO" => "%1\r\n+role\r\n+master\r\n",
            "GET" => "-WRONGTYPE user:4711 is a list\r\n",
            _ => "",
        };
        let Err(Failure::Answered(error)) = get(&pool(greets)).await else { panic!("answered") };
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(!error.to_string().contains("4711"), "{error}");
        let answers = |word: &str| match word {
            "HELLO" => "%1\r\n+role\r\n+master\r\n",
            "GET" => "+7\r\n",
            _ => "",
        };
        assert_eq!(get(&pool(answers)).await.expect("a value"), Value::SimpleString("7".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_a_script_shows_words_of_its_text_and_no_key() {
        let pool = pool(|word| match word {
            "HELLO" => "%1\r\n+role\r\n+master\r\n",
            "EVAL" | "EVALSHA" => "-ERR order 17 hidden set\r\n",
            _ => "",
        });
        let script = Script::new("return redis.call('set', KEYS[1], ARGV[1]) -- order");
        let outcome = pool.run(&script, &["order"], &["17", "set"], Instant::now() + SOON).await;
        let Err(Failure::Answered(error)) = outcome else { panic!("answered: {outcome:?}") };
        let text = error.to_string();
        assert!(!text.contains("order") && !text.contains("17"), "{text}");
        assert!(text.contains("set"), "{text}");
    }

    /// The random bytes of a grant once read as "to", which was hidden in `no permissions to run`.
    #[test]
    fn random_bytes_hide_no_short_words() {
        let text = |bytes: &[u8]| text_of(Arg::Simple(bytes));
        assert_eq!(text(b"\xc1\x02to\xff\x80sk_live_1\xfeno"), "sk_live_1");
        assert_eq!(text(b"to"), "to");
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_answer_may_have_run_if_it_was_sent() {
        let sent = get(&Pool::new(Arc::<SilentFake>::default(), None)).await.expect_err("silent");
        let Failure::Unanswered(_, Some(_)) = sent else { panic!("{sent:?}") };
        let unconnected = get(&pool(|_| "")).await.expect_err("no greeting");
        assert!(matches!(unconnected, Failure::NotRun(_)), "{unconnected:?}");
        let empty = pool(|_| "").send(Cmd::new(), "", Instant::now() + SOON).await;
        assert!(matches!(empty, Err(Failure::NotRun(_))), "{empty:?}");
        let silent = Pool::new(Arc::<SilentFake>::default(), None);
        let late = silent.send(cmd("GET"), "a", Instant::now()).await.expect_err("no time");
        assert!(matches!(late, Failure::NotRun(_)), "{late:?}");
    }

    /// A caller that has gone can undo what ran too late.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_can_be_awaited() {
        let pool = Pool::from_connection(Slow);
        let Err(Failure::Unanswered(_, Some(late))) = get(&pool).await else { panic!("late") };
        assert_eq!(late.await.expect("a value"), Value::SimpleString("7".into()));
    }

    /// A server that moves keys says that it did not run the command.
    #[tokio::test(start_paused = true)]
    async fn a_command_is_sent_again_until_a_server_runs_it() {
        for (refusals, runs) in [(3, true), (usize::MAX, false)] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let pool = pool(move |word| match word {
                "HELLO" => "%1\r\n+role\r\n+master\r\n",
                "GET" if count.fetch_add(1, Relaxed) < refusals => "-TRYAGAIN later\r\n",
                "GET" => "+7\r\n",
                _ => "",
            });
            match get(&pool).await {
                Ok(value) => assert!(runs && value == Value::SimpleString("7".into())),
                Err(Failure::NotRun(error)) if !runs => {
                    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error}");
                }
                other => panic!("{other:?}"),
            }
            assert!(asked.load(Relaxed) > 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_script_is_sent_as_text_until_a_server_has_run_it() {
        let knows = |word: &str| match word {
            "HELLO" => "%1\r\n+role\r\n+master\r\n",
            "EVAL" => "+by text\r\n",
            "EVALSHA" => "+by digest\r\n",
            _ => "",
        };
        let (pool, script) = (pool(knows), Script::new("return 1"));
        for expected in ["by text", "by digest"] {
            let run = pool.run(&script, &["a"], &[1, 2], Instant::now() + SOON).await;
            assert_eq!(run.expect("a value"), Value::SimpleString(expected.into()));
        }
    }
}
