//! One request and its response: who moves, and who is awaited.
//!
//! | awaited | bound | then |
//! |---|---|---|
//! | the next part of a request's body | `BODY_TIMEOUT` | 408, or the answer breaks off |
//! | all of it | `BODY_TIMEOUT`, and 1 s for each `BODY_RATE` bytes | the same |
//! | the head of the upstream's answer | `UPSTREAM_TIMEOUT` | 504 |
//! | a caller that takes a part of the answer | `BODY_TIMEOUT` | connection or stream ends |
//!
//! An answer that has begun may be quiet for as long as its upstream likes, as events and streams
//! are. The caller of a gRPC call may then be quiet as well.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::port::connections::{Caller, instant, millis, now};
use crate::port::pace::Pace;

/// Shared by all that carry the request and the response.
pub struct Exchange {
    pub caller: Arc<Caller>,
    /// The last instant at which a part of either body moved, in milliseconds.
    moved: AtomicU64,
    /// The next part of the request's body is awaited.
    is_owed: AtomicBool,
    /// The pace of the request's body.
    pace: Pace,
    may_be_slow: AtomicBool,
    may_be_quiet: AtomicBool,
    is_given_up: AtomicBool,
    /// Nothing more of the request's body is sent on.
    is_sent: AtomicBool,
    /// The body goes to the upstream by HTTP/2.
    is_by_http2: AtomicBool,
    /// Wakes who waits until the body has left.
    left: Notify,
    /// The answer was given up, or the upstream takes no more of the body after its answer.
    is_cut: AtomicBool,
    /// Wakes who sends the request's body on.
    sender: Mutex<Option<Waker>>,
    /// The body that the caller sends: see `sent.rs`.
    pub(crate) body: Mutex<Option<Incoming>>,
}

impl Exchange {
    pub(crate) fn new(caller: Arc<Caller>) -> Arc<Self> {
        Arc::new(Self {
            caller,
            moved: AtomicU64::new(now()),
            is_owed: AtomicBool::new(false),
            pace: Pace::default(),
            may_be_slow: AtomicBool::new(false),
            may_be_quiet: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            is_sent: AtomicBool::new(false),
            is_by_http2: AtomicBool::new(false),
            left: Notify::new(),
            is_cut: AtomicBool::new(false),
            sender: Mutex::new(None),
            body: Mutex::new(None),
        })
    }

    /// A part of either body has moved.
    pub(crate) fn moves(&self) {
        self.moved.store(now(), Relaxed);
    }

    /// The bodies are streams, which may have any pace.
    pub fn may_be_slow(&self) {
        self.may_be_slow.store(true, Relaxed);
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.may_be_slow.load(Relaxed)
    }

    /// The answer has begun, and the caller need not send on.
    pub fn may_be_quiet(&self) {
        self.may_be_quiet.store(true, Relaxed);
    }

    /// The request's body was sent on to its end, or nobody wants more of it.
    pub(crate) fn body_has_left(&self) {
        self.is_sent.store(true, Relaxed);
        self.left.notify_one();
    }

    /// Waits until the request's body has left, or the upstream takes nothing of it for `patience`.
    pub(crate) async fn body_leaves(&self, patience: Duration) {
        tokio::select! {
            biased;
            () = self.left.notified() => {}
            () = self.upstream_is_overdue(patience) => {}
        }
    }

    /// Returns true if nothing more of the request's body is sent on.
    pub fn is_sent(&self) -> bool {
        self.is_sent.load(Relaxed)
    }

    /// The request goes to the upstream by HTTP/2, where a cut ends it alone.
    pub fn goes_by_http2(&self) {
        self.is_by_http2.store(true, Relaxed);
    }

    pub(crate) fn is_by_http2(&self) -> bool {
        self.is_by_http2.load(Relaxed)
    }

    /// Returns true if the caller was given up in the middle of its body.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// The rest of the request is given up, even if who sends it on waits for the upstream.
    pub fn cut(&self) {
        // First, so that nobody takes a body that is gone for one that has ended.
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_cut.store(true, Relaxed);
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(body);
        if let Some(sender) = sender.take() {
            sender.wake();
        }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    /// Returns true if the answer was given up; otherwise wakes the task when it is.
    pub(crate) fn poll_cut(&self, cx: &Context<'_>) -> bool {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if !sender.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *sender = Some(cx.waker().clone());
        }
        self.is_cut()
    }

    /// Waits until nothing has moved for `patience`, while the upstream is awaited and not the
    /// caller.
    pub async fn upstream_is_overdue(&self, patience: Duration) {
        let patience = millis(patience);
        loop {
            let from = match self.is_owed.load(Relaxed) {
                true => now(),
                false => self.moved.load(Relaxed),
            };
            let at = from.saturating_add(patience);
            if at <= now() {
                return;
            }
            sleep_until(instant(at)).await;
        }
    }

    async fn caller_is_overdue(&self) {
        let Caller { running, timeouts, .. } = &*self.caller;
        loop {
            let is_ending = running.is_ending();
            if self.may_be_quiet.load(Relaxed) && !is_ending {
                running.ending().await;
                self.moves();
                continue;
            }
            let at = self.moved.load(Relaxed).saturating_add(millis(timeouts.body(running)));
            let too_slow = if self.is_slow() { u64::MAX } else { self.pace.deadline(timeouts) };
            let at = at.min(too_slow);
            if at <= now() {
                return;
            }
            tokio::select! {
                () = sleep_until(instant(at)) => {}
                () = running.ending(), if !is_ending => self.moves(),
            }
        }
    }
}

/// The patience with the caller that sends a body.
pub(crate) struct Patience {
    exchange: Arc<Exchange>,
    /// Set once the caller was waited for.
    overdue: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Patience {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange, overdue: None }
    }

    /// Ready when the caller is given up. Called while it is waited for.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.exchange.is_owed.swap(true, Relaxed) {
            self.exchange.moves();
            self.exchange.pace.begin();
        }
        let overdue = self.overdue.get_or_insert_with(|| {
            let exchange = Arc::clone(&self.exchange);
            Box::pin(async move { exchange.caller_is_overdue().await })
        });
        ready!(overdue.as_mut().poll(cx));
        self.overdue = None;
        self.exchange.is_given_up.store(true, Relaxed);
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the caller is silent"))
    }

    /// The caller has moved, by so many bytes.
    pub(crate) fn renew(&mut self, bytes: usize) {
        if self.exchange.is_owed.swap(false, Relaxed) {
            self.exchange.pace.end();
        }
        self.exchange.pace.moves(bytes);
        self.exchange.moves();
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }
}
