//! Sends items, and sends those again that a server did not run: the one place that follows the
//! redirects of a cluster.
//!
//! An item is a command, or a run of a script. A server runs it whole or not at all.
//!
//! The path of a MOVED reply, which says that another server now holds the hash slot:
//!
//! 1. `exchange` sends the items. `Next::of` (`cluster/redirect.rs`) reads the
//!    error, and returns `Next::Moved` with the address. The item was not run, so it is rejected.
//! 2. `step` calls `Cluster::moved` (`cluster/mod.rs`). It assigns the slot to that
//!    server (`cluster/nodes.rs`), wakes calls that wait for the slot, and has the slot map read
//!    again (`cluster/refresh.rs`), since other slots have probably moved too. Without an address,
//!    the slot has no server until then.
//! 3. `send_again` asks `Pool::connection_to` for a connection to the new server
//!    of the slot, and sends the item over it. From the fourth round on it pauses first.
//!
//! ASK names a server for one attempt, so step 2 changes no slot, and step 3 sends ASKING first.
//! TRYAGAIN is sent again after a pause. After MOVED to the address that sent it, a new connection
//! may lead to another server. Outside a cluster, MOVED and ASK are errors.

use std::mem;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, cmd};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use super::address::Host;
use super::cluster::redirect::{Next, cannot_serve, next_reply, reply_after_asking};
use super::connection::SharedConnection;
use super::error_reply::met_read_only;
use super::failure::Failure;
use super::fault::Stage;
use super::pool::Pool;
use super::script::Script;
use super::times::{FIRST_RESEND_PAUSE, MAX_RESEND_PAUSE};

/// The number of redirects in a row without a pause. Later redirects pause, since two servers may
/// redirect to each other.
const REDIRECTS_WITHOUT_PAUSE: u32 = 3;

/// A list that almost always has one element, which costs no allocation.
type Few<T> = SmallVec<[T; 1]>;

/// The items of a call: how they are sent, and what gets their answers.
pub trait Items: Send {
    /// A command, or a run of a script.
    type Item: Send;

    /// Returns the hash slot of an item, whose server is asked.
    fn hash_slot(&self, item: &Self::Item) -> u16;

    /// Returns an item as it is sent next. `None`: nobody wants its answer any more, so it is
    /// dropped.
    fn prepare(&mut self, item: Self::Item) -> Option<Self::Item>;

    /// Returns the script that an item runs, if it runs one. A server may not know its digest.
    fn script(&self, item: &Self::Item) -> Option<&Script>;

    /// Writes an item, which is sent now: the keys and arguments of its script, or the whole
    /// command if it runs none.
    fn append(&self, item: &Self::Item, command: &mut Cmd);

    /// Returns the keys and arguments of an item, which no error may show.
    fn secrets(&self, item: &Self::Item) -> Vec<String>;

    /// Takes the answer to an item, and the connection over which it came.
    fn answered(
        &mut self,
        item: Self::Item,
        answer: Result<(Value, &dyn SharedConnection), Failure>,
    );

    /// Records the stage of an item. [`Stage::TurnedAway`]: a server has answered that it did not
    /// run it.
    fn record(&mut self, item: &Self::Item, stage: &Stage);

    /// Splits an item whose keys a server does not have all, into one for each key.
    fn split(&mut self, item: Self::Item) -> Vec<Self::Item> {
        vec![item]
    }

    /// Prepares for the next attempt of an item whose keys are on two servers.
    fn claim(&mut self, _item: &mut Self::Item) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// An item that a server did not run, and the next step.
#[derive(Debug)]
pub struct Rejected<I> {
    /// The item.
    pub item: I,
    next: Next,
    /// The instant at which a server first said that it did not run it.
    since: Instant,
}

impl Pool {
    /// Sends items over a connection, in one write. Those whose script the server does not know are
    /// sent once more. Returns those that the server did not run, for
    /// [`send_again`](Self::send_again).
    pub async fn send_each<I: Items>(
        &self,
        items: &mut I,
        connection: &dyn SharedConnection,
        each: impl IntoIterator<Item = I::Item>,
    ) -> Vec<Rejected<I::Item>> {
        let each = each.into_iter().map(|item| (item, None)).collect();
        self.exchange(items, connection, each, false).await
    }

    /// Sends items to the servers that a cluster names, until servers have run them, or nobody
    /// wants their answers.
    pub async fn send_again<I: Items>(&self, items: &mut I, mut rejected: Vec<Rejected<I::Item>>) {
        let mut round = 0;
        while !rejected.is_empty() {
            let (mut waiting, mut pause) = (Vec::new(), Duration::ZERO);
            for one in mem::take(&mut rejected) {
                if one.next == Next::Again || round >= REDIRECTS_WITHOUT_PAUSE {
                    pause = (FIRST_RESEND_PAUSE * (1 << round.min(3))).min(MAX_RESEND_PAUSE);
                }
                waiting.extend(self.step(items, one).await);
            }
            if !pause.is_zero() {
                sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            }
            // The new server of a slot may be away. Items that ASK sends elsewhere need not wait.
            waiting.sort_by_key(|(.., asked)| asked.is_none());
            while let Some((first, _, asked)) = waiting.first() {
                let (hash_slot, asked) = (items.hash_slot(first), asked.clone());
                let is_alike = |(item, _, host): &(_, _, Option<Host>)| {
                    items.hash_slot(item) == hash_slot && *host == asked
                };
                let (together, later) = waiting.into_iter().partition::<Vec<_>, _>(is_alike);
                waiting = later;
                let stage = asked.clone().map_or(Stage::Waiting, Stage::Redirected);
                together.iter().for_each(|(item, ..)| items.record(item, &stage));
                let together = together.into_iter().map(|(item, since, _)| (item, Some(since)));
                match self.connection_to(asked.as_ref(), hash_slot).await {
                    Ok(connection) => rejected.extend(
                        self.exchange(items, &*connection, together.collect(), asked.is_some())
                            .await,
                    ),
                    Err(error) => {
                        together.for_each(|(item, _)| {
                            items.answered(item, Err(Failure::NotRun(error.clone())))
                        });
                    }
                }
            }
            round += 1;
        }
    }

    /// Takes the next step of an item. Returns the items to send, each with the server that a
    /// cluster names for this attempt only.
    async fn step<I: Items>(
        &self,
        items: &mut I,
        rejected: Rejected<I::Item>,
    ) -> Vec<(I::Item, Instant, Option<Host>)> {
        let Rejected { item, next, since } = rejected;
        let mut asked = None;
        let each = match (next, self.cluster()) {
            (Next::Moved(host), Some(cluster)) => {
                match cluster.moved(items.hash_slot(&item), host.as_ref()) {
                    Ok(()) => vec![item],
                    Err(error) => {
                        items.answered(item, Err(Failure::NotRun(error)));
                        Vec::new()
                    }
                }
            }
            (Next::Renamed, _) => vec![item],
            // Redis 6.2 answers ASK as soon as one key is missing. So each of several keys gets its
            // own call, since the others may still be at the source.
            (Next::Ask(host), _) => {
                let each = items.split(item);
                asked = Some(host).filter(|_| each.len() == 1);
                each
            }
            _ => {
                let mut each = items.split(item);
                if let [item] = &mut each[..] {
                    items.claim(item).await;
                }
                each
            }
        };
        each.into_iter().map(|item| (item, since, asked.clone())).collect()
    }

    /// Sends items, after ASKING or not, and gives each its reply. Returns those that the server
    /// did not run.
    async fn exchange<I: Items>(
        &self,
        items: &mut I,
        connection: &dyn SharedConnection,
        mut each: Few<(I::Item, Option<Instant>)>,
        is_asking: bool,
    ) -> Vec<Rejected<I::Item>> {
        let (mut rejected, mut sends_text) = (Vec::new(), false);
        loop {
            let mut commands = Few::with_capacity(each.len());
            let mut append = |(item, since)| {
                let item = items.prepare(item)?;
                let script = items.script(&item);
                let with_text = script.is_some_and(|script| sends_text || !script.is_known());
                let mut command = match script {
                    Some(script) if with_text => script.eval(),
                    Some(script) => script.evalsha(),
                    None => Cmd::new(),
                };
                items.append(&item, &mut command);
                commands.push(command);
                Some((item, since, with_text))
            };
            let sent: Few<_> = each.into_iter().filter_map(&mut append).collect();
            if sent.is_empty() {
                return rejected;
            }
            let replies = send_commands(connection, commands, is_asking).await;
            let mut unknown = Few::new();
            // An error of a write of several says nothing about one of them.
            let is_each = replies.is_ok() || sent.len() == 1;
            let mut replies = replies.map(Few::into_iter);
            for (item, since, with_text) in sent {
                let reply = match &mut replies {
                    Err(error) => Err(error.clone()),
                    Ok(replies) if is_asking => reply_after_asking(replies),
                    Ok(replies) => next_reply(replies),
                };
                let next = reply.as_ref().err().filter(|_| is_each);
                let next = next.and_then(|error| Next::of(error, connection.address()));
                match next {
                    Some(Next::WithText) if items.script(&item).is_some() && !with_text => {
                        unknown.push((item, since));
                    }
                    Some(next @ (Next::Moved(_) | Next::Ask(_) | Next::Again))
                        if next == Next::Again || self.is_routed() =>
                    {
                        rejected.push(Rejected::new(items, item, next, since));
                    }
                    Some(Next::Renamed) if self.is_routed() && connection.leave_renamed() => {
                        rejected.push(Rejected::new(items, item, Next::Renamed, since));
                    }
                    _ => {
                        let answer = match reply {
                            Ok(value) => {
                                let ran = with_text.then(|| items.script(&item)).flatten();
                                ran.inspect(|script| script.record_run());
                                Ok((value, connection))
                            }
                            Err(error) => {
                                self.record_error(connection, &error);
                                let secrets = items.secrets(&item);
                                Err(Failure::of(error, secrets.iter().map(String::as_str)))
                            }
                        };
                        items.answered(item, answer);
                    }
                }
            }
            (each, sends_text) = (unknown, true);
        }
    }

    /// Records that a server failed.
    fn record_error(&self, connection: &dyn SharedConnection, error: &RedisError) {
        if met_read_only(error) {
            connection.mark_read_only();
        }
        if let Some(cluster) = self.cluster().filter(|_| cannot_serve(error)) {
            cluster.doubt(connection.address());
        }
    }
}

impl<I> Rejected<I> {
    fn new(items: &mut impl Items<Item = I>, item: I, next: Next, since: Option<Instant>) -> Self {
        let since = since.unwrap_or_else(Instant::now);
        items.record(&item, &Stage::TurnedAway(since));
        Self { item, next, since }
    }
}

/// Sends commands in one write, each after ASKING or not.
async fn send_commands(
    connection: &dyn SharedConnection,
    mut commands: Few<Cmd>,
    is_asking: bool,
) -> RedisResult<Few<Value>> {
    if commands.len() == 1 && !is_asking {
        return Ok([connection.send(commands.remove(0)).await?].into());
    }
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        if is_asking {
            pipeline.add_command(cmd("ASKING"));
        }
        pipeline.add_command(command);
    }
    connection.send_all(pipeline).await.map(Few::from)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::DuplexStream;
    use tokio::time::advance;

    use super::super::cluster::Cluster;
    use super::super::dialer::Dialer;
    use super::super::simulated;
    use super::super::times::{MAX_CONNECTION_WAIT, MAX_SILENCE};
    use super::*;

    /// Items that are lists of keys.
    struct Keys;

    impl Items for Keys {
        type Item = Vec<&'static str>;

        fn hash_slot(&self, _: &Self::Item) -> u16 {
            7
        }

        fn prepare(&mut self, keys: Self::Item) -> Option<Self::Item> {
            Some(keys)
        }

        fn script(&self, _: &Self::Item) -> Option<&Script> {
            None
        }

        fn append(&self, keys: &Self::Item, command: &mut Cmd) {
            command.arg("DEL").arg(keys);
        }

        fn secrets(&self, keys: &Self::Item) -> Vec<String> {
            keys.iter().map(|key| (*key).to_owned()).collect()
        }

        fn answered(&mut self, _: Self::Item, _: Result<(Value, &dyn SharedConnection), Failure>) {}

        fn record(&mut self, _: &Self::Item, _: &Stage) {}

        fn split(&mut self, keys: Self::Item) -> Vec<Self::Item> {
            keys.into_iter().map(|key| vec![key]).collect()
        }
    }

    /// Redis 6.2 answers ASK as soon as one key is missing. The others may still be at the source.
    #[tokio::test]
    async fn only_a_key_on_its_own_is_asked_for_where_it_moves() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let target = Host { name: "127.0.0.1".into(), port: 2 };
        for (keys, expected) in
            [(vec!["{k}a"], vec![Some(target.clone())]), (vec!["{k}a", "{k}b"], vec![None, None])]
        {
            let rejected = Rejected::new(&mut Keys, keys, Next::Ask(target.clone()), None);
            let each = pool.step(&mut Keys, rejected).await;
            let asked: Vec<_> = each.into_iter().map(|(_, _, asked)| asked).collect();
            assert_eq!(asked, expected);
        }
    }

    /// Greets a client. The server at port 1 redirects to the server at port 2, which does not
    /// answer.
    fn reply(port: u16, word: &str) -> &'static str {
        match word {
            "HELLO" => "%1\r\n+mode\r\n+cluster\r\n",
            "CLUSTER" if port == 1 => "-ERR no map\r\n",
            "GET" if port == 1 => "-MOVED 0 127.0.0.1:2\r\n",
            _ => "",
        }
    }

    /// Makes a pool for a cluster, and two of its servers.
    fn cluster(dialer: Dialer) -> (Pool, [Host; 2]) {
        let connector = simulated::connector(Duration::from_secs(1), dialer);
        let hosts = [1, 2].map(simulated::host);
        let cluster = Cluster::new(connector, &hosts[..1]);
        (Pool::of_cluster(cluster, None), hosts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_answer_is_of_the_server_that_was_asked_last() {
        let (pool, hosts) = cluster(Dialer::new(|_, port| async move {
            Ok(simulated::served(move |word| reply(port, word)))
        }));
        let host = hosts[0].clone();
        pool.cluster().expect("a cluster").moved(0, Some(&host)).expect("an address");
        let send = |time| pool.send(cmd("GET").arg("a").take(), "{06S}", Instant::now() + time);
        assert_eq!(pool.hash_slot("{06S}"), 0);
        let first = pool.connection_to(Some(&host), 0).await.expect("a connection");
        assert!(send(2 * MAX_SILENCE).await.is_err_and(|failure| failure.may_have_run()));
        assert!(first.is_alive());
        // Charges of the slot, which the other server now holds, know it too.
        assert!(pool.facts(0).failure.is_some());
    }

    /// This is known even in a busy process.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_connections_while_a_slot_moves_to_it_is_at_fault() {
        let refused =
            || std::future::ready(Err::<DuplexStream, _>(io::ErrorKind::ConnectionRefused.into()));
        let (pool, [_, two]) = cluster(Dialer::new(move |_, _| refused()));
        let busy = async {
            for _ in 0..5 {
                sleep(Duration::from_millis(1)).await;
                advance(MAX_CONNECTION_WAIT / 6).await;
            }
        };
        let (connected, ()) = tokio::join!(pool.connection_to(Some(&two), 0), busy);
        let error = connected.err().expect("no connection");
        assert_eq!(error.kind(), super::super::error::ErrorKind::Infrastructure, "{error}");
        assert!(error.to_string().contains("127.0.0.1:2"), "{error}");
    }
}
