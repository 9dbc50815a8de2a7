//! The requests that are sent, each with the receiver of its answer and its deadline. Also their
//! batches, and the batches of a call.
//!
//! A batch is for one hash slot, and becomes one run of the script. A call to a cluster carries
//! several batches, and the server may serve other clients between them.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use redis_once::calls::{
    Partition, Progress, Rejected, SharedConnection, Stage, from_error_reply, is_read_only,
};
use redis_once::{ErrorKind as ClientErrorKind, Failure, Script};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::Pool;
use super::super::decision_times::LATE_REPLY_TIMEOUT;
use super::super::script::{BatchReply, Op, ReplyEntry, Request, append_call, key_suffixes};
use super::answer_place::AnswerSender;
use super::config::{Config, QueueShare};
use crate::algorithm::Verdict;
use crate::core::Error;
use crate::core::settlement::{Settled, SettlementSender};
use crate::limiter::charge_numbers::instant;

/// A request that waits to be sent.
pub(crate) struct QueuedRequest {
    pub(crate) request: Request,
    pub(super) hash_slot: u16,
    /// The instant by which the caller needs the answer. Before it is sent, only that of the charge.
    pub(crate) deadline: Option<Instant>,
    pub(super) reply_to: ReplyTo,
    /// The share of the queue's capacity that it occupies.
    pub(super) queue_place: Option<QueueShare>,
    /// Its stage, which the caller reads. `None` outside a cluster.
    pub(super) progress: Option<Arc<Progress>>,
    /// The answer of the script, which moves to the caller in this place: it is large.
    pub(crate) answer: Option<ScriptAnswer>,
}

/// The answer of the script to a request.
pub(crate) struct ScriptAnswer {
    pub(crate) entry: ReplyEntry,
    /// The instant of the decision, in µs since the Unix epoch, by the clock of the decision.
    pub(crate) now: i64,
    /// The request's position in its batch.
    pub(crate) batch_position: u16,
}

/// Receives the answer to a request.
pub(super) enum ReplyTo {
    /// The caller, which may leave.
    Caller(AnswerSender),
    Settlement(SettlementSender),
    /// None: fire and forget.
    Nobody,
}

impl QueuedRequest {
    /// A request without a receiver for its answer.
    #[inline]
    pub(crate) fn without_receiver(
        pool: &Pool,
        request: Request,
        deadline: Option<Instant>,
    ) -> Box<Self> {
        let hash_slot = pool.client.hash_slot(&request.key);
        // Allocated first, so that the request is written in place: it is long.
        let place = Box::new_uninit();
        let queued = Self {
            request,
            hash_slot,
            deadline,
            reply_to: ReplyTo::Nobody,
            queue_place: None,
            progress: None,
            answer: None,
        };
        Box::write(place, queued)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline.expect("set before it is sent")
    }

    /// The refund of units whose caller has left. No answer is awaited.
    pub(super) fn refund(pool: &Pool, request: Request) -> Box<Self> {
        Self::without_receiver(pool, request, Some(Instant::now() + LATE_REPLY_TIMEOUT))
    }

    /// Records its stage.
    pub(super) fn record(&self, stage: &Stage) {
        if let Some(progress) = &self.progress {
            progress.set(stage);
        }
    }

    /// Returns true if the answer is still wanted at this instant. A process that stood still may
    /// find charges whose time is over: no caller would use their units.
    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        match &self.reply_to {
            ReplyTo::Caller(caller) => !caller.is_closed() && now < self.deadline(),
            ReplyTo::Settlement(_) | ReplyTo::Nobody => true,
        }
    }

    /// Returns true if it settles a reservation, so that no caller waits for it.
    pub(super) fn is_settlement(&self) -> bool {
        !matches!(self.reply_to, ReplyTo::Caller(_))
    }

    /// Returns true if it is about the keys of several limiters.
    pub(super) fn has_several_keys(&self) -> bool {
        key_suffixes(&self.request.key, 2).nth(1).is_some()
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: Error) {
        match self.reply_to {
            ReplyTo::Caller(caller) => drop(caller.send(Err(error))),
            ReplyTo::Settlement(sender) => sender.end(Err(error)),
            ReplyTo::Nobody => {}
        }
    }

    /// Sends the answer to the caller. If the caller has left, returns the refund of the taken
    /// units.
    pub(super) fn complete(
        mut self: Box<Self>,
        entry: ReplyEntry,
        now: i64,
        position: usize,
    ) -> Option<Request> {
        let batch_position = u16::try_from(position).unwrap_or(u16::MAX);
        let caller = match mem::replace(&mut self.reply_to, ReplyTo::Nobody) {
            ReplyTo::Caller(caller) => caller,
            ReplyTo::Settlement(sender) => {
                sender.end(Ok(Settled::of(entry.settled())));
                return None;
            }
            ReplyTo::Nobody => return None,
        };
        self.answer = Some(ScriptAnswer { entry, now, batch_position });
        match caller.send(Ok(self)) {
            Err(Ok(completed)) => completed.into_refund(),
            _ => None,
        }
    }

    /// Converts an answered request to the refund of the taken units, if there are any.
    pub(super) fn into_refund(self: Box<Self>) -> Option<Request> {
        let ReplyEntry::Decided(answer) = self.answer?.entry else { return None };
        let Op::Check { cost: cost @ 1.., .. } = self.request.op else { return None };
        let (Verdict::Allow | Verdict::Wait(_)) = answer.verdict else { return None };
        let mut request = self.request;
        request.op = Op::Refund { units: cost, cost, mark: answer.mark.unwrap_or_default() };
        Some(request)
    }
}

/// The requests of a call.
#[allow(clippy::vec_box, reason = "requests are passed on many times, and a box moves faster")]
pub(super) type Requests = Vec<Box<QueuedRequest>>;

/// The requests for one hash slot that are sent in one script call, in the order of the call.
pub(super) struct Batch {
    pub(super) hash_slot: u16,
    pub(super) requests: Requests,
    /// True if later calls for the hash slot no longer wait for its refunds.
    pub(super) frees_hash_slot: bool,
}

/// The batches that are sent together over one connection: several only in a cluster.
pub(super) struct Call {
    pub(super) partition: Partition,
    /// The number of its requests.
    pub(super) requests: usize,
    pub(super) batches: SmallVec<[Batch; 1]>,
}

/// A call that has ended, or that has no reply yet and no longer counts as in flight.
#[derive(Default)]
pub(super) struct CallEnd {
    /// The partition that it occupied until now, and the number of its requests.
    pub(super) partition: Option<(Partition, usize)>,
    /// The hash slots of its refunds, if no reply to them is awaited any more.
    pub(super) refunds_done: Vec<u16>,
    /// The refunds of units that were taken for callers that have left.
    pub(super) refunds: Vec<Request>,
    /// The batches that no server has run, to be sent to another server of the cluster.
    pub(super) unfinished: Vec<Rejected<Batch>>,
    /// True if a server replied, even with an error.
    pub(super) was_answered: bool,
    /// The time until that reply, if the call occupied its partition until then.
    pub(super) took: Option<Duration>,
    /// The rest of the wait, if no reply came by the earliest deadline of the batches.
    pub(super) late_reply: Option<CallFuture>,
}

/// A call, or the rest of it: sends batches, and gives each request its answer. Ends when the reply
/// has come, or when it is given up.
pub(super) type CallFuture = Pin<Box<dyn Future<Output = CallEnd> + Send>>;

impl Batch {
    pub(super) fn new(hash_slot: u16, requests: Requests) -> Self {
        Self { hash_slot, requests, frees_hash_slot: false }
    }

    /// Returns true if it has refunds.
    pub(super) fn has_refunds(&self) -> bool {
        self.requests.iter().any(|queued| matches!(queued.request.op, Op::Refund { .. }))
    }

    /// Drops the requests whose answer is no longer wanted, and puts the others in the order of the
    /// call.
    pub(super) fn prepare(&mut self, config: &Config) {
        let now = Instant::now();
        self.requests.retain(|queued| queued.is_wanted(now));
        group(&mut self.requests, config.key_prefixes.len());
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|queued| &*queued.request.key)
    }

    pub(super) fn script<'a>(&self, config: &'a Config) -> &'a Script {
        config.scripts.choose(self.requests.iter().map(|queued| &queued.request))
    }

    /// Appends keys and arguments. `now` is the time by the caller's clock, if there is one.
    pub(super) fn append_to(&self, config: &Config, now: Option<i64>, command: &mut Cmd) {
        let requests: SmallVec<[_; 1]> = self.requests.iter().map(|one| &one.request).collect();
        append_call(command, now, &config.key_prefixes, &config.rule(), &requests);
    }

    /// Gives each request its answer. Returns refunds of the units that were taken for callers that
    /// have left.
    pub(super) fn complete(
        self,
        config: &Config,
        answer: Result<(Value, &dyn SharedConnection), Failure>,
    ) -> Vec<Request> {
        // A client library has its own timeout, which a busy process fires before it reads the
        // reply. So a caller whose deadline has passed chooses its error itself.
        let has_timed_out = answer.as_ref().is_err_and(|failure| {
            failure.may_have_run() && failure.error().kind() == ClientErrorKind::Saturation
        });
        let answer = answer.as_ref().map_err(|failure| Error::from(failure.error().clone()));
        let read = answer.and_then(|(reply, connection)| {
            Ok((BatchReply::read(reply, self.requests.len(), config.reply_form)?, *connection))
        });
        match read {
            Ok((reply, connection)) => distribute(config, connection, self.requests, &reply),
            Err(error) => {
                let now = Instant::now();
                let is_late = |queued: &QueuedRequest| has_timed_out && queued.deadline() <= now;
                let in_time = self.requests.into_iter().filter(|queued| !is_late(queued));
                in_time.for_each(|queued| queued.fail(error.clone()));
                Vec::new()
            }
        }
    }

    /// Records the stage of its requests.
    pub(super) fn record(&self, stage: &Stage) {
        self.requests.iter().for_each(|queued| queued.record(stage));
    }

    /// Answers all requests with an error.
    pub(super) fn fail(self, error: &Error) {
        self.requests.into_iter().for_each(|queued| queued.fail(error.clone()));
    }

    /// Splits it into batches of one key each.
    pub(super) fn split_by_key(self) -> Vec<Self> {
        let Self { hash_slot, requests, frees_hash_slot } = self;
        let mut batches: Vec<Self> = Vec::new();
        for queued in requests {
            match batches.last_mut() {
                Some(batch) if batch.requests[0].request.key == queued.request.key => {
                    batch.requests.push(queued);
                }
                _ => {
                    batches.push(Self { hash_slot, requests: vec![queued], frees_hash_slot });
                }
            }
        }
        batches
    }
}

impl Call {
    pub(super) fn has_refunds(&self) -> bool {
        self.batches.iter().any(Batch::has_refunds)
    }
}

/// Returns the instant of a call by the limiter's own clock, if it has one.
pub(super) fn own_now(config: &Config) -> Result<Option<i64>, Error> {
    config.clock.as_ref().map(|clock| instant(clock())).transpose()
}

/// Sorts requests into the order of a call. Requests of one key are adjacent, in the order of their
/// arrival.
///
/// Requests with several quotas may share one of their keys with others, so they keep their order.
fn group(requests: &mut Requests, quotas: usize) {
    if quotas == 1 && requests.len() > 1 && may_share_keys(requests) {
        requests.sort_by(|one, other| one.request.key.cmp(&other.request.key));
    }
}

/// Returns true if two of the requests may have the same key. The keys of a batch almost always
/// differ.
fn may_share_keys(requests: &[Box<QueuedRequest>]) -> bool {
    let keys = requests.iter().map(|queued| queued.request.key.as_str());
    let mut fingerprints: Vec<_> = keys.map(fingerprint).collect();
    fingerprints.sort_unstable();
    fingerprints.windows(2).any(|pair| pair[0] == pair[1])
}

/// Returns a number that is the same for equal keys, and almost always different for other keys. An
/// attacker can choose keys with the same number. These cost a sort, and nothing else.
fn fingerprint(key: &str) -> u64 {
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (words, rest) = key.as_bytes().as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Gives each charge its answer. Returns refunds of the units that were taken for callers that have
/// left.
fn distribute(
    config: &Config,
    connection: &dyn SharedConnection,
    requests: Requests,
    reply: &BatchReply<'_>,
) -> Vec<Request> {
    if reply.texts().any(|text| is_read_only(&text)) {
        connection.mark_read_only();
    }
    let complete = |(position, queued): (usize, Box<QueuedRequest>)| match reply.entry(
        position,
        &queued.request,
        &*config.reader,
        |text| from_error_reply(text, [&*queued.request.key]).into(),
    ) {
        Ok(entry) => queued.complete(entry, reply.now, position),
        Err(error) => {
            queued.fail(error);
            None
        }
    };
    requests.into_iter().enumerate().filter_map(complete).collect()
}
