use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::super::script::{Op, ReplyEntry, Request};
use super::super::answer_place::{AnswerReceiver, News, place};
use super::super::batch::ReplyTo;
use super::*;
use crate::algorithm::{Report, Ruling, Verdict};
use crate::core::ErrorKind;
use crate::core::charge::KeepFree;

const TIMEOUT: Duration = Duration::from_secs(60);

fn queued(hash_slot: u16, op: Op) -> (Box<QueuedRequest>, AnswerReceiver) {
    let (reply_to, receiver) = place();
    // Each operation has a key of its own.
    let request = Request {
        key: format!("{op:?}"),
        quota: None,
        rule: None,
        keep_free: KeepFree::default(),
        op,
    };
    let deadline = Instant::now() + TIMEOUT;
    let reply_to = ReplyTo::Caller(reply_to);
    let queued = QueuedRequest {
        request,
        hash_slot,
        deadline: Some(deadline),
        reply_to,
        queue_place: None,
        progress: None,
        answer: None,
    };
    (Box::new(queued), receiver)
}

fn check(cost: i64) -> Op {
    Op::Check { cost, max_wait: 0 }
}

fn refund(mark: i64) -> Op {
    Op::Refund { units: 1, cost: 1, mark: [mark, 0, 0, 0].into() }
}

/// A queue with these operations of one slot, and their receivers.
fn queue(
    (max_batch_size, max_in_flight): (usize, usize),
    ops: impl IntoIterator<Item = Op>,
) -> (Queue, Vec<AnswerReceiver>) {
    let pool = Pool::connect("redis://127.0.0.1:1").unwrap();
    let mut queue = Queue::new(pool, max_batch_size, max_in_flight);
    let push = |op| {
        let (queued, receiver) = queued(0, op);
        queue.push(queued);
        receiver
    };
    let receivers = ops.into_iter().map(push).collect();
    (queue, receivers)
}

/// Returns the operations of a call, in order; empty if there is no call.
fn ops(call: Option<Call>) -> Vec<Op> {
    let Some(call) = call else { return Vec::new() };
    let requests = call.batches.into_iter().flat_map(|batch| batch.requests);
    let ops: Vec<_> = requests.map(|queued| queued.request.op).collect();
    assert!(!ops.is_empty(), "a call without requests");
    assert_eq!(ops.len(), call.requests);
    ops
}

fn next_call(queue: &mut Queue) -> Option<Call> {
    while let Some((partition, _)) = queue.next_partition() {
        if let Some(call) = queue.take_call(partition) {
            return Some(call);
        }
    }
    None
}

#[test]
fn charges_leave_in_order_of_arrival() {
    let (mut queue, _receivers) = queue((2, 2), [check(1), check(2), check(3)]);
    let call = next_call(&mut queue).expect("a call");
    assert!(!call.has_refunds());
    assert_eq!(ops(Some(call)), [check(1), check(2)]);
    assert_eq!(ops(next_call(&mut queue)), [check(3)]);
    assert_eq!(ops(next_call(&mut queue)), []);
}

/// A process that stood still may find such a charge. No caller would use its units.
#[tokio::test(start_paused = true)]
async fn a_charge_whose_time_is_over_never_leaves() {
    let (mut queue, _receivers) = queue((4, 1), [check(1)]);
    let (mut settlement, _receiver) = queued(0, refund(10));
    settlement.reply_to = ReplyTo::Nobody;
    queue.push(settlement);
    advance(TIMEOUT).await;
    let (fresh, _receiver) = queued(0, check(2));
    queue.push(fresh);
    assert_eq!(ops(next_call(&mut queue)), [refund(10), check(2)]);
}

#[test]
fn refunds_leave_first_and_the_latest_before_all() {
    let (mut queue, _receivers) = queue((4, 1), [check(1), refund(10), refund(30), refund(20)]);
    let call = next_call(&mut queue).expect("a call");
    assert!(call.has_refunds());
    assert_eq!(ops(Some(call)), [refund(30), refund(20), refund(10), check(1)]);
}

#[test]
fn refunds_of_one_mark_all_leave() {
    let (mut queue, _receivers) = queue((4, 1), [refund(10), refund(10), refund(10)]);
    assert_eq!(ops(next_call(&mut queue)).len(), 3);
}

#[test]
fn what_was_taken_for_a_caller_who_has_left_is_refunded() {
    let answer = |verdict| {
        let report = Report { remaining: 0, reset_after: 0 };
        let mark = Some([5, 0, 0, 0].into());
        ReplyEntry::Decided(Ruling {
            verdict,
            report,
            members: [].into(),
            mark,
            not_taken: 0,
            paused_until: 0,
            is_blocked: false,
        })
    };
    let given_back = |cost, entry, is_awaited| {
        let (queued, receiver) = queued(0, check(cost));
        let receiver = match is_awaited {
            true => Some(receiver),
            false => receiver.leave().and(None),
        };
        let refund = queued.complete(entry, 0, 0);
        drop(receiver);
        refund.map(|request| request.op)
    };
    let refund = Op::Refund { units: 3, cost: 3, mark: [5, 0, 0, 0].into() };
    let allowed = || answer(Verdict::Allow);
    assert_eq!(given_back(3, allowed(), false), Some(refund.clone()));
    assert_eq!(given_back(3, answer(Verdict::Wait(1)), false), Some(refund));
    assert_eq!(given_back(3, allowed(), true), None);
    assert_eq!(given_back(0, allowed(), false), None);
    assert_eq!(given_back(3, answer(Verdict::Deny(1)), false), None);
    assert_eq!(given_back(3, ReplyEntry::Settled { units: 3 }, false), None);
}

/// A cluster may redirect a refund, and a later call could be decided first.
#[test]
fn in_a_cluster_a_slot_waits_for_its_refunds() {
    let pool = Pool::connect("redis-cluster://127.0.0.1:1").unwrap();
    let mut queue = Queue::new(pool, 1, 3);
    let (refunds, _receiver) = queued(0, refund(10));
    let (charge, _receiver) = queued(0, check(1));
    [refunds, charge].into_iter().for_each(|queued| queue.push(queued));
    assert_eq!(ops(next_call(&mut queue)), [refund(10)]);
    assert_eq!(ops(next_call(&mut queue)), []);
    queue.refunds_done(0);
    assert_eq!(ops(next_call(&mut queue)), [check(1)]);
}

#[test]
fn a_slot_waits_in_its_partition_once() {
    let (mut queue, _receivers) = queue((1, 3), [refund(10)]);
    assert_eq!(ops(next_call(&mut queue)), [refund(10)]);
    let (charge, _receiver) = queued(0, check(1));
    queue.push(charge);
    queue.refunds_done(0);
    assert_eq!(ops(next_call(&mut queue)), [check(1)]);
    assert_eq!(queue.next_partition(), None);
}

#[test]
fn a_slot_keeps_its_order_until_all_its_refunds_are_done() {
    let (mut queue, _receivers) = queue((1, 3), [refund(20), refund(10), check(1)]);
    assert!(!queue.has_refunds_in_flight(0));
    assert_eq!(ops(next_call(&mut queue)), [refund(20)]);
    assert_eq!(ops(next_call(&mut queue)), [refund(10)]);
    assert_eq!(ops(next_call(&mut queue)), [check(1)]);
    for is_last in [false, true] {
        assert!(queue.has_refunds_in_flight(0));
        queue.partitions.call_ended(0, 1, None);
        queue.refunds_done(0);
        assert_eq!(queue.has_refunds_in_flight(0), !is_last);
    }
    assert!(queue.is_empty());
}

#[test]
fn a_slot_has_no_more_calls_than_allowed() {
    let (mut queue, _receivers) = queue((1, 1), [check(1), check(2)]);
    assert_eq!(ops(next_call(&mut queue)), [check(1)]);
    assert!(queue.next_partition().is_none());
    queue.partitions.call_ended(0, 1, None);
    assert_eq!(ops(next_call(&mut queue)), [check(2)]);
}

#[test]
fn charges_whose_callers_have_left_are_dropped() {
    let (mut queue, mut receivers) = queue((2, 1), [check(1), check(2), check(3)]);
    receivers.drain(..2);
    assert_eq!(ops(next_call(&mut queue)), [check(3)]);
    queue.partitions.call_ended(0, 1, None);
    assert!(queue.is_empty());
}

#[test]
fn slots_are_forgotten_once_they_are_idle() {
    let (mut queue, receivers) = queue((1, 1), [check(1)]);
    assert!(!queue.is_empty());
    drop(receivers);
    assert_eq!(ops(next_call(&mut queue)), []);
    assert!(queue.is_empty());
}

#[test]
fn a_failure_reaches_all_that_wait() {
    let (mut queue, receivers) = queue((1, 1), [check(1), refund(10), check(2)]);
    assert_eq!(ops(next_call(&mut queue)), [refund(10)]);
    queue.regroup(0, Some(&Error::new(ErrorKind::Infrastructure, "away")));
    assert!(queue.next_partition().is_none());
    let failed = |receiver: AnswerReceiver| {
        matches!(receiver.poll(None), Poll::Ready(News::Answered(Err(_))))
    };
    assert_eq!(
        receivers.into_iter().filter_map(|receiver| failed(receiver).then_some(())).count(),
        2
    );
    queue.partitions.call_ended(0, 1, None);
    assert!(!queue.is_empty());
    queue.refunds_done(0);
    assert!(queue.is_empty());
}

#[test]
fn many_charges_leave_in_two_halves() {
    let (mut queue, _receivers) = queue((64, 2), (1..=40).map(check));
    assert_eq!(ops(next_call(&mut queue)).len(), 20);
    assert_eq!(ops(next_call(&mut queue)).len(), 20);
    // Half of the charges without an answer wait for the answer to the other half.
    let (mut others, _receivers) = self::queue((64, 1), (41..=60).map(check));
    let others = next_call(&mut others).expect("a call").batches.remove(0).requests;
    others.into_iter().for_each(|other| queue.push(other));
    assert!(queue.next_partition().is_none(), "more calls than allowed");
    queue.partitions.call_ended(0, 20, None);
    assert_eq!(ops(next_call(&mut queue)).len(), 20);
}

#[test]
fn charges_of_one_key_leave_in_one_call() {
    let (mut queue, _receivers) = queue((64, 2), [check(1), check(1)]);
    assert_eq!(ops(next_call(&mut queue)).len(), 2);
    let (others, _others): (Vec<_>, Vec<_>) = (0..20).map(|_| queued(0, check(1))).unzip();
    others.into_iter().for_each(|other| queue.push(other));
    assert_eq!(ops(next_call(&mut queue)).len(), 20);
}

#[test]
fn few_charges_leave_in_one_call() {
    let (mut queue, _receivers) = queue((64, 2), (1..=7).map(check));
    assert_eq!(ops(next_call(&mut queue)).len(), 7);
}

#[test]
fn the_calls_of_a_crowd_follow_each_other() {
    let (mut queue, _receivers) = queue((64, 2), (1..=256).map(check));
    for _ in 0..2 {
        assert_eq!(ops(next_call(&mut queue)).len(), 64);
    }
    assert!(queue.next_partition().is_none(), "more calls than allowed");
}
