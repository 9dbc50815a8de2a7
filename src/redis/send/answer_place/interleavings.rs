//! Tests of all interleavings of a caller, its sender and its alarm.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Wake;

use super::*;
use crate::core::ErrorKind;
use crate::core::sync::interleavings::{each, thread};

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn answer() -> AnsweredRequest {
    Err(Error::new(ErrorKind::State, "an answer"))
}

#[test]
fn an_answer_is_the_callers_or_comes_back_to_the_sender() {
    each("answer_place", || {
        let (sender, receiver) = place();
        let sending = thread::spawn(move || sender.send(answer()).is_ok());
        let is_answered = match receiver.poll(None) {
            Poll::Ready(News::Answered(_)) => true,
            _ => receiver.leave().is_some(),
        };
        assert_eq!(is_answered, sending.join().unwrap());
    });
}

#[test]
fn a_caller_that_waits_is_woken_and_finds_an_answer_that_came_after_its_deadline() {
    each("answer_wakes", || {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let (sender, receiver) = place();
        let alarm = receiver.alarm();
        let sending = thread::spawn(move || sender.send(answer()).is_ok());
        let ringing = thread::spawn(move || alarm.ring());
        let first = receiver.poll(Some(&Context::from_waker(&waker)));
        ringing.join().unwrap();
        assert!(sending.join().unwrap());
        if first.is_pending() {
            assert!(woken.0.load(SeqCst));
        }
        if !matches!(first, Poll::Ready(News::Answered(_))) {
            assert!(matches!(receiver.poll(None), Poll::Ready(News::Answered(_))));
        }
    });
}
