//! Sends batches for several hash slots, or one for each key, in one write. The client sends those
//! again that a server did not run.

use std::sync::Arc;

use redis::{Cmd, Value, cmd};
use redis_once::calls::{Items, Rejected, SharedConnection, Stage};
use redis_once::{Error as ClientError, ErrorKind as ClientErrorKind, Failure, Script};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::decision_times::{PATIENCE, PLACEHOLDER_LIFETIME};
use super::super::script::key_suffixes;
use super::batch::{Batch, CallEnd, QueuedRequest, own_now};
use super::config::Config;
use crate::core::{Error, ErrorKind};

/// Creates a key unless it exists. The scripts read `none` as no state.
const TEXT: &str = "return redis.call('SET', KEYS[1], 'none', 'PX', ARGV[1], 'NX')";

/// Creates a sorted set unless it exists. The scripts read its one member as no state, since
/// charges never leave such a total.
const LOG: &str = "if redis.call('ZCARD', KEYS[1]) == 0 then \
    redis.call('ZADD', KEYS[1], 0, '00000000000000000000:1') \
    redis.call('PEXPIRE', KEYS[1], ARGV[1]) end";

/// Sends batches over a connection, whose server holds their hash slots.
pub(super) async fn send(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    mut batches: SmallVec<[Batch; 1]>,
) -> CallEnd {
    if config.pool.client.keys_apart_over(&*connection) {
        batches = batches.into_iter().flat_map(|batch| batch.keys_apart(&config)).collect();
    }
    let mut all = Batches::new(&config, None);
    let rejected = config.pool.client.send_each(&mut all, &*connection, batches).await;
    if config.pool.client.is_routed() {
        all.end.unfinished = rejected;
    } else {
        // Behind a proxy, one queue counts the calls that have refunds. A batch that is sent again
        // later would not be in that count.
        for Rejected { item, .. } in rejected {
            let message = "the cluster is moving the key to another server";
            let error = ClientError::new(ClientErrorKind::Infrastructure, message);
            all.answered(item, Err(Failure::Answered(error)));
        }
    }
    all.end
}

/// Sends a batch to the server that the cluster names, until a server runs it or its time is over.
pub(super) async fn follow(config: Arc<Config>, rejected: Rejected<Batch>) -> CallEnd {
    let mut all = Batches::new(&config, Some(Instant::now()));
    config.pool.client.send_again(&mut all, vec![rejected]).await;
    all.end
}

/// The batches of a call.
struct Batches<'a> {
    config: &'a Config,
    /// The instant since which they are sent again.
    again_since: Option<Instant>,
    /// The instant of the call by the limiter's own clock, if it has one.
    now: Option<i64>,
    end: CallEnd,
}

impl<'a> Batches<'a> {
    fn new(config: &'a Config, again_since: Option<Instant>) -> Self {
        Self { config, again_since, now: None, end: CallEnd::default() }
    }
}

impl Items for Batches<'_> {
    type Item = Batch;

    fn hash_slot(&self, batch: &Batch) -> u16 {
        batch.hash_slot
    }

    fn prepare(&mut self, mut batch: Batch) -> Option<Batch> {
        batch.prepare(self.config);
        if let Some(since) = self.again_since {
            batch.drop_late(since);
        }
        if batch.requests.is_empty() {
            return None;
        }
        // A server that does not know the script is asked again at once: that is the same call.
        if self.now.is_none() || self.again_since.is_some() {
            match own_now(self.config) {
                Ok(now) => self.now = now,
                Err(error) => {
                    batch.fail(&error);
                    return None;
                }
            }
        }
        Some(batch)
    }

    fn script(&self, batch: &Batch) -> Option<&Script> {
        Some(batch.script(self.config))
    }

    fn append(&self, batch: &Batch, command: &mut Cmd) {
        batch.append_to(self.config, self.now, command);
    }

    fn secrets(&self, batch: &Batch) -> Vec<String> {
        batch.keys().map(str::to_owned).collect()
    }

    fn answered(&mut self, batch: Batch, answer: Result<(Value, &dyn SharedConnection), Failure>) {
        self.end.was_answered |= matches!(answer, Ok(_) | Err(Failure::Answered(_)));
        self.end.refunds.extend(batch.complete(self.config, answer));
    }

    fn record(&mut self, batch: &Batch, stage: &Stage) {
        self.end.was_answered |= matches!(stage, Stage::TurnedAway(_));
        batch.record(stage);
    }

    fn split(&mut self, batch: Batch) -> Vec<Batch> {
        batch.split_by_key()
    }

    /// Creates the keys of a request that no server has. A failure becomes visible when the request
    /// is sent.
    ///
    /// So a charge with several keys can be decided while its slot moves: each of the two servers
    /// runs a script only if it has all of its keys, and a new key is on neither. So each is
    /// created, with a content that means no state, by a write that the cluster redirects.
    async fn claim(&mut self, batch: &mut Batch) {
        let Config { key_prefixes, keeps_text, pool, .. } = self.config;
        let (request, deadline) = (&batch.requests[0].request, batch.requests[0].deadline());
        if key_prefixes.len() == 1 {
            return;
        }
        let suffixes = key_suffixes(&request.key, key_prefixes.len()).collect::<Vec<_>>();
        let keys = key_prefixes.iter().zip(keeps_text).enumerate();
        let commands = keys.map(|(index, (prefix, keeps_text))| {
            let suffix = suffixes.get(index).or(suffixes.last()).copied().unwrap_or_default();
            let (mut command, key) = (cmd("EVAL"), format!("{prefix}{suffix}"));
            command.arg(if *keeps_text { TEXT } else { LOG }).arg(1).arg(&key);
            (command.arg(PLACEHOLDER_LIFETIME.as_millis() as u64).take(), key)
        });
        for (command, key) in commands.collect::<Vec<_>>() {
            let _ = pool.client.send(command, &key, deadline).await;
        }
    }
}

impl Batch {
    /// Returns a batch for each key: each may be on another server behind a proxy.
    fn keys_apart(mut self, config: &Config) -> Vec<Self> {
        self.prepare(config);
        let joins = |queued: &QueuedRequest| config.buckets.len() > 1 && queued.has_several_keys();
        let (joined, own) = self.requests.into_iter().partition(|queued| joins(queued));
        // They were put together before the first connection showed the proxy.
        let message =
            "this charge of several keys came before a connection to this proxy: ask again";
        Self { requests: joined, ..self }.fail(&Error::new(ErrorKind::Saturation, message));
        Self { requests: own, ..self }.split_by_key()
    }

    /// Drops the requests whose time is over.
    fn drop_late(&mut self, since: Instant) {
        let now = Instant::now();
        self.requests.retain(|queued| {
            now < queued.deadline() && !(queued.is_settlement() && since + PATIENCE < now)
        });
    }
}
