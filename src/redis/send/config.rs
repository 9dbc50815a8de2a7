//! The settings of a limiter in Redis that its batches use.

use std::borrow::Cow;
use std::sync::Arc;

use redis_once::calls::hash_slot;

use super::super::Pool;
use super::super::script::{ReadEntry, ReplyForm, Scripts, keep_text};
use crate::algorithm::{InLua, LATEST};
use crate::core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::limiter::charge_numbers::{CallerClock, micros, system_time};
use crate::limiter::configured::ConfiguredAlgorithm;
use crate::observe::CallWatch;
use crate::redis::key_names::Buckets;

/// The default of the most charges in one call. Redis serves no other client during a run of the
/// script.
const DEFAULT_MAX_BATCH_SIZE: usize = 64;

/// The most charges in one call.
const MAX_BATCH_SIZE: usize = 1_000;

/// The most keys in one call, since a script can pass at most 8,000 arguments to a command.
const MAX_KEYS: usize = 4_000;

/// The default of the most calls at the same time to one server, which only a far one reaches.
const DEFAULT_MAX_IN_FLIGHT: usize = 16;

/// The default of the most charges that wait to be sent.
const DEFAULT_QUEUE_CAPACITY: usize = 16_384;

/// Returns a rule in the form of the script, for a present.
type DatedRule = Arc<dyn Fn(i64) -> Vec<i64> + Send + Sync>;

/// A limiter's settings.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) pool: Pool,
    pub(super) scripts: Scripts,
    pub(super) reader: Arc<dyn ReadEntry>,
    pub(super) reply_form: ReplyForm,
    /// The prefixes of a charge's keys, one for each quota.
    pub(crate) key_prefixes: Vec<String>,
    /// The buckets of a charge's keys: one setting for all keys, or one for each.
    pub(crate) buckets: Vec<Buckets>,
    /// True for each quota whose keys have a text. The keys of other quotas have a sorted set.
    pub(super) keeps_text: Vec<bool>,
    /// The limiter's own rule, in the form of the script.
    rule: Vec<i64>,
    /// The same of a rule that depends on the present.
    dated_rule: Option<DatedRule>,
    pub(crate) clock: Option<CallerClock>,
    /// The most charges in one call.
    pub(crate) max_batch_size: usize,
    /// The most calls at the same time to one server.
    pub(crate) max_in_flight: usize,
    pub(crate) queue_room: Arc<QueueRoom>,
    /// Reports its calls.
    pub(super) calls: CallWatch,
}

impl Config {
    pub(crate) fn new<A: InLua>(
        pool: Pool,
        key_prefixes: Vec<String>,
        named: &ConfiguredAlgorithm<A>,
    ) -> Self {
        let parts = named.parts();
        let clock = pool.has_caller_clock().then(|| Arc::new(system_time) as CallerClock);
        let own = named.own_rule.clone();
        let is_dated = A::is_dated(&own);
        let mut config = Self {
            pool,
            scripts: Scripts::of(&parts),
            reader: Arc::new(named.clone()),
            reply_form: ReplyForm::of(&parts),
            key_prefixes,
            buckets: vec![Buckets::default()],
            keeps_text: keep_text(&parts),
            rule: A::arguments(&own, 0),
            dated_rule: is_dated.then(|| Arc::new(move |now| A::arguments(&own, now)) as _),
            clock,
            max_batch_size: 1,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            queue_room: QueueRoom::new(DEFAULT_QUEUE_CAPACITY),
            calls: CallWatch::new(named.name()),
        };
        config.set_max_batch_size(DEFAULT_MAX_BATCH_SIZE);
        config
    }

    /// Returns the limiter's own rule, in the form of the script.
    pub(super) fn rule(&self) -> Cow<'_, [i64]> {
        match &self.dated_rule {
            None => self.rule.as_slice().into(),
            Some(rule) => rule(self.present()).into(),
        }
    }

    /// Returns now by the limiter's own clock, or by that of this machine.
    pub(crate) fn present(&self) -> i64 {
        micros(self.clock.as_ref().map_or_else(system_time, |clock| clock())).min(LATEST)
    }

    /// Sets the most charges in one call, within the bounds of a script.
    pub(crate) fn set_max_batch_size(&mut self, charges: usize) {
        let max = MAX_BATCH_SIZE.min(MAX_KEYS / self.key_prefixes.len());
        self.max_batch_size = charges.clamp(1, max);
    }

    /// Returns true if one call can decide about keys with these suffixes. In a cluster they must
    /// be in one hash slot. No proxy says which keys are on one server.
    pub(crate) fn share_a_call(&self, key_suffixes: &[String]) -> bool {
        if self.pool.client.keys_apart() == Some(true) {
            return false;
        }
        let mut slots = key_suffixes.iter().map(|suffix| hash_slot(suffix));
        let first = slots.next();
        !self.pool.is_clustered() || slots.all(|slot| Some(slot) == first)
    }
}

/// The number of charges that may still be put into a queue.
pub(crate) struct QueueRoom(AtomicUsize);

/// The share of one charge, until it is dropped.
pub(super) struct QueueShare(Arc<QueueRoom>);

impl QueueRoom {
    pub(crate) fn new(charges: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(charges.max(1))))
    }

    /// Takes the share of one charge. `None`: the queue is full.
    pub(super) fn take(self: &Arc<Self>) -> Option<QueueShare> {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        taken.is_ok().then(|| QueueShare(Arc::clone(self)))
    }
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}
