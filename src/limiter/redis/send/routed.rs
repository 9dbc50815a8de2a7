//! Sends batches for several hash slots, or one for each key, in one write. Redirects those that a
//! server did not run.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, cmd};
use redis_once::Script;
use redis_once::calls::{
    Cluster, Host, Next, SharedConnection, Stage, ask, cannot_serve, next_reply, reply_after_asking,
};
use tokio::time::{Instant, sleep};

use super::super::decision_times::{
    FIRST_RESEND_PAUSE, MAX_RESEND_PAUSE, PATIENCE, PLACEHOLDER_LIFETIME,
};
use super::super::script::key_suffixes;
use super::batch::{Batch, CallEnd, Detour, QueuedRequest, Requests, own_now};
use super::config::Config;
use crate::{Error, ErrorKind};

/// The number of redirects in a row without a pause. Later redirects pause, since two servers may
/// redirect to each other.
const REDIRECTS_WITHOUT_PAUSE: u32 = 3;

/// Creates a key unless it exists. The scripts read `none` as no state.
const TEXT: &str = "return redis.call('SET', KEYS[1], 'none', 'PX', ARGV[1], 'NX')";

/// Creates a sorted set unless it exists. The scripts read its one member as no state, since
/// charges never leave such a total.
const LOG: &str = "if redis.call('ZCARD', KEYS[1]) == 0 then \
    redis.call('ZADD', KEYS[1], 0, '00000000000000000000:1') \
    redis.call('PEXPIRE', KEYS[1], ARGV[1]) end";

/// Sends batches for hash slots that one server holds, in one write.
pub(super) async fn send_batches(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    mut batches: Vec<Batch>,
) -> CallEnd {
    let mut end = CallEnd::default();
    batches.iter_mut().for_each(|batch| batch.prepare(&config));
    batches.retain(|batch| !batch.requests.is_empty());
    if !batches.is_empty() {
        end.unfinished = exchange(&config, &*connection, batches, &mut end).await;
    }
    end
}

/// Sends a call for each key of a batch, in one write: each key may be on another server behind a
/// proxy. The calls of servers that do not know the script are sent again.
pub(super) async fn send_each_key(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    mut batch: Batch,
) -> CallEnd {
    let mut end = CallEnd::default();
    batch.prepare(&config);
    let joins = |queued: &QueuedRequest| config.buckets.len() > 1 && queued.has_several_keys();
    let (joined, own) = batch.requests.into_iter().partition(|queued| joins(queued));
    let (hash_slot, joined): (_, Requests) = (batch.hash_slot, joined);
    // They were put together before the first connection showed the proxy.
    let message = "this charge of several keys came before a connection to this proxy: ask again";
    let early = Error::new(ErrorKind::Saturation, message);
    joined.into_iter().for_each(|queued| queued.fail(early.clone()));
    let mut batches = Batch::new(hash_slot, own).split_by_key();
    while !batches.is_empty() {
        batches = exchange(&config, &*connection, batches, &mut end).await;
        batches.retain(Batch::is_wanted);
    }
    end
}

/// Sends a batch to the server that the cluster names, until a server runs it or its time is over.
pub(super) async fn follow(config: Arc<Config>, batch: Batch) -> CallEnd {
    let mut end = CallEnd::default();
    let Some(cluster) = config.pool.client.cluster() else { return end };
    let (hash_slot, begun) = (batch.hash_slot, Instant::now());
    let (mut redirected, mut waiting) = (vec![batch], Vec::new());
    for round in 0.. {
        let mut pause = Duration::ZERO;
        for batch in redirected {
            if batch.waits_for_keys() || round >= REDIRECTS_WITHOUT_PAUSE {
                pause = (FIRST_RESEND_PAUSE * (1 << round.min(3))).min(MAX_RESEND_PAUSE);
            }
            match batch.follow(&config, cluster).await {
                Ok(batches) => waiting.extend(batches),
                Err((batch, error)) => batch.fail(&error),
            }
        }
        waiting.retain_mut(|batch: &mut Batch| batch.is_in_time(begun));
        if !pause.is_zero() && !waiting.is_empty() {
            waiting.iter().for_each(Batch::record_pause);
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            // A caller whose time ends in the meantime chooses its error itself.
            waiting.retain_mut(|batch| batch.is_in_time(begun));
            waiting.iter().for_each(|batch| batch.record(&Stage::Waiting));
        }
        let Some(first) = waiting.first() else { break };
        let asked = first.asked().cloned();
        let (together, later): (Vec<_>, _) =
            waiting.into_iter().partition(|batch| batch.asked() == asked.as_ref());
        waiting = later;
        let stage = asked.clone().map_or(Stage::Waiting, Stage::Redirected);
        together.iter().for_each(|batch: &Batch| batch.record(&stage));
        redirected = match config.pool.client.connection_to(asked.as_ref(), hash_slot).await {
            Ok(connection) => exchange(&config, &*connection, together, &mut end).await,
            Err(error) => {
                let error = Error::from(error);
                together.into_iter().for_each(|batch| batch.fail(&error));
                Vec::new()
            }
        };
    }
    end
}

impl Batch {
    /// Records the answer of a server that did not run it.
    fn redirected(mut self, next: Next, with_text: bool) -> Self {
        let with_text = with_text || next == Next::WithText;
        self.detour = Some(match self.detour {
            Some(detour) => Box::new(Detour { next, with_text, ..*detour }),
            None => {
                let (asked, turned_away, frees_slot) = (None, None, false);
                Box::new(Detour { next, with_text, asked, turned_away, frees_slot })
            }
        });
        self
    }

    /// The server for the next attempt only.
    fn asked(&self) -> Option<&Host> {
        self.detour.as_ref()?.asked.as_ref()
    }

    /// Returns true if the text of its script is sent, and not only the digest.
    fn is_sent_as_text(&self, script: &Script) -> bool {
        self.detour.as_ref().map_or_else(|| !script.is_known(), |detour| detour.with_text)
    }

    /// Returns true if its keys are on two servers.
    fn waits_for_keys(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.next == Next::Again)
    }

    /// Returns the batches to send next. The error is that of the failed batch.
    async fn follow(
        mut self,
        config: &Config,
        cluster: &Arc<Cluster>,
    ) -> Result<Vec<Self>, (Self, Error)> {
        let hash_slot = self.hash_slot;
        let Some(detour) = &mut self.detour else { return Ok(vec![self]) };
        let next = detour.next.clone();
        if next != Next::WithText {
            detour.asked = None;
            detour.turned_away.get_or_insert_with(Instant::now);
        }
        match next {
            Next::WithText => Ok(vec![self]),
            Next::Moved(host) => match cluster.moved(hash_slot, host.as_ref()) {
                Ok(()) => Ok(vec![self]),
                Err(error) => Err((self, error.into())),
            },
            // Redis 6.2 answers ASK as soon as one key is missing. So each of several keys gets its
            // own call, since the others may still be at the source.
            Next::Ask(host) => {
                let mut batches = self.split_by_key();
                if let [Self { detour: Some(detour), .. }] = &mut batches[..] {
                    detour.asked = Some(host);
                }
                Ok(batches)
            }
            Next::Again => {
                let batches = self.split_by_key();
                if let [batch] = &batches[..] {
                    claim(config, hash_slot, &batch.requests[0].request.key).await;
                }
                Ok(batches)
            }
        }
    }

    /// Drops the requests whose time is over. Returns true if any is left.
    fn is_in_time(&mut self, begun: Instant) -> bool {
        let now = Instant::now();
        self.requests.retain(|queued| {
            let is_late = queued.is_settlement() && begun + PATIENCE < now;
            queued.is_wanted(now) && now < queued.deadline && !is_late
        });
        !self.requests.is_empty()
    }

    /// Records that it waits before it is sent again.
    fn record_pause(&self) {
        if let Some(since) = self.detour.as_ref().and_then(|detour| detour.turned_away) {
            self.record(&Stage::TurnedAway(since));
        }
    }
}

/// Sends batches in one write, and distributes the replies. Returns the batches that the server did
/// not run.
async fn exchange(
    config: &Config,
    connection: &dyn SharedConnection,
    batches: Vec<Batch>,
    end: &mut CallEnd,
) -> Vec<Batch> {
    let now = match own_now(config) {
        Ok(now) => now,
        Err(error) => {
            batches.into_iter().for_each(|batch| batch.fail(&error));
            return Vec::new();
        }
    };
    let mut commands = Pipeline::with_capacity(batches.len());
    let append = |batch: Batch| {
        if batch.asked().is_some() {
            commands.add_command(cmd("ASKING"));
        }
        let script = batch.script(config);
        let with_text = batch.is_sent_as_text(script);
        let mut command = if with_text { script.eval() } else { script.evalsha() };
        batch.append_to(config, now, &mut command);
        commands.add_command(command);
        (batch, with_text)
    };
    let sent: Vec<_> = batches.into_iter().map(append).collect();
    let replies = match connection.send_all(commands).await {
        Ok(replies) => replies,
        Err(error) => {
            for (batch, _) in sent {
                batch.complete(config, connection, Err(error.clone()));
            }
            return Vec::new();
        }
    };
    end.was_answered = true;
    let (mut replies, mut redirected) = (replies.into_iter(), Vec::new());
    for (batch, with_text) in sent {
        let reply = match batch.asked() {
            Some(_) => reply_after_asking(&mut replies),
            None => next_reply(&mut replies),
        };
        let next = reply.as_ref().err().and_then(|error| Next::of(error, connection.address()));
        let is_known = |next: &Next| config.pool.client.is_routed() || *next == Next::WithText;
        match next.filter(is_known) {
            Some(next) if !(with_text && next == Next::WithText) => {
                redirected.push(batch.redirected(next, with_text));
            }
            _ => {
                if let (Err(error), Some(cluster)) = (&reply, config.pool.client.cluster())
                    && cannot_serve(error)
                {
                    cluster.doubt(connection.address());
                }
                if with_text && reply.is_ok() {
                    batch.script(config).record_run();
                }
                end.refunds.extend(batch.complete(config, connection, reply));
            }
        }
    }
    redirected
}

/// Creates the keys of a request that no server has. A failure becomes visible when the request is
/// sent.
///
/// So a charge with several keys can be decided while its slot moves from one server to another.
/// Each of the two servers runs a script on several keys only if it has all of them. A new key is
/// on neither server. So each such key is created, with a content that means no state. This write
/// has one key, and the cluster redirects it like any other. The script then runs as soon as the
/// other keys have moved.
async fn claim(config: &Config, hash_slot: u16, keys: &str) {
    let quotas = config.key_prefixes.len();
    if quotas == 1 {
        return;
    }
    let Ok(connection) = config.pool.client.connection(hash_slot).await else { return };
    let suffixes = key_suffixes(keys, quotas).collect::<Vec<_>>();
    let commands = config.key_prefixes.iter().zip(&config.keeps_text).enumerate();
    let commands = commands.map(|(index, (prefix, keeps_text))| {
        let suffix = suffixes.get(index).or(suffixes.last()).copied().unwrap_or_default();
        let mut command = cmd("EVAL");
        command.arg(if *keeps_text { TEXT } else { LOG }).arg(1);
        command.arg(format!("{prefix}{suffix}")).arg(PLACEHOLDER_LIFETIME.as_millis() as u64).take()
    });
    for command in commands.collect::<Vec<Cmd>>() {
        let Ok(reply) = connection.send(command.clone()).await else { return };
        let redirect = reply.extract_error().err();
        let next = redirect.and_then(|error| Next::of(&error, connection.address()));
        if let Some(Next::Ask(host)) = next
            && let Ok(target) = config.pool.client.connection_to(Some(&host), hash_slot).await
        {
            let _ = ask(&*target, command).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::script::{Op, Request};
    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::limiter::configured::ConfiguredAlgorithm;
    use crate::{Pool, Quota};

    /// Redis 6.2 answers ASK as soon as one key is missing. The others may still be at the source.
    #[tokio::test]
    async fn only_a_key_on_its_own_is_asked_for_where_it_moves() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let window = FixedWindow::new(Quota::per_second(1));
        let named = ConfiguredAlgorithm::new("api".into(), window).expect("an algorithm");
        let config = Config::new(pool.clone(), vec!["api".into()], &named);
        let cluster = pool.client.cluster().expect("a cluster");
        let reply = redis::parse_redis_value(b"-ASK 7 127.0.0.1:2\r\n");
        let error = reply.and_then(redis::Value::extract_error).expect_err("it moves");
        let Some(Next::Ask(target)) = Next::of(&error, None) else { panic!("it is asked for") };
        for (keys, expected) in
            [(&["{k}a"][..], vec![Some(target.clone())]), (&["{k}a", "{k}b"], vec![None, None])]
        {
            let queued = |key: &&str| {
                let op = Op::Check { cost: 1, max_wait: 0 };
                let request = Request { key: (*key).into(), quota: None, rule: None, op };
                QueuedRequest::without_receiver(&pool, request, Instant::now())
            };
            let requests = keys.iter().map(queued).collect();
            let batch = Batch::new(pool.client.hash_slot("{k}"), requests);
            let batch = batch.redirected(Next::Ask(target.clone()), false);
            let followed = batch.follow(&config, cluster).await;
            let Ok(batches) = followed else { panic!("it is sent on") };
            let asked: Vec<_> = batches.iter().map(|batch| batch.asked().cloned()).collect();
            assert_eq!(asked, expected);
        }
    }
}
