//! What is heard over a connection of the application, whose bytes nobody sees: only replies show
//! that the server answers.
//!
//! A reply passes three tasks before anybody knows of it. So in a busy process a server seems to be
//! silent, though its reply has long arrived. Silence counts in small steps, and only those steps
//! whose timer fired on time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::RedisResult;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::error_reply::is_reply;
use super::lock::lock;
use super::on_time::is_late;
use super::times::{MAX_SILENCE, SILENCE_STEP};

/// What is heard over connections of the application, which share it.
#[derive(Debug, Default)]
pub(super) struct Hearing(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// The calls that have no outcome yet.
    in_flight: usize,
    /// The time without a reply while calls were in flight and this process was on time.
    silent: Duration,
    /// The task that counts the silence. It ends when no call is in flight.
    counting: Option<JoinHandle<()>>,
}

impl Hearing {
    /// Returns the time for which the server is silent. A short silence does not count: this
    /// process may not have read the reply yet.
    pub(super) fn silent_for(&self) -> Duration {
        Some(lock(&self.0).silent).filter(|silent| *silent >= MAX_SILENCE).unwrap_or_default()
    }

    /// Adds a call that is in flight until the guard is dropped.
    fn begin(self: &Arc<Self>) -> InFlight {
        let mut heard = lock(&self.0);
        heard.in_flight += 1;
        let is_counting = heard.counting.as_ref().is_some_and(|task| !task.is_finished());
        if !is_counting {
            let runtime = Handle::try_current();
            heard.counting = runtime.ok().map(|it| it.spawn(Arc::clone(self).count()));
        }
        InFlight(Arc::clone(self))
    }

    /// Counts the silence until no call is in flight.
    async fn count(self: Arc<Self>) {
        loop {
            let due = Instant::now() + SILENCE_STEP;
            sleep_until(due).await;
            let mut heard = lock(&self.0);
            if heard.in_flight == 0 {
                heard.counting = None;
                return;
            }
            if !is_late(due) {
                heard.silent += SILENCE_STEP;
            }
        }
    }
}

/// A call that is in flight.
struct InFlight(Arc<Hearing>);

impl InFlight {
    fn record<T>(&self, outcome: &RedisResult<T>) {
        if is_reply(outcome) {
            lock(&self.0.0).silent = Duration::ZERO;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.0.0).in_flight -= 1;
    }
}

/// A call in a box.
type BoxedCall<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

/// Returns a call whose reply is heard, even if the caller has left.
pub(super) fn heard<T: Send + 'static>(
    hearing: &Arc<Hearing>,
    call: impl Future<Output = RedisResult<T>> + Send + 'static,
) -> BoxedCall<T> {
    let hearing = Arc::clone(hearing);
    let call = async move {
        let in_flight = hearing.begin();
        let outcome = call.await;
        in_flight.record(&outcome);
        outcome
    };
    Box::pin(HeardCall { call: Some(Box::pin(call)), is_sent: false })
}

struct HeardCall<T: Send + 'static> {
    /// `None` after the reply.
    call: Option<BoxedCall<T>>,
    is_sent: bool,
}

impl<T: Send + 'static> Future for HeardCall<T> {
    type Output = RedisResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_sent = true;
        let call = self.call.as_mut().expect("it is polled until it is ready");
        let outcome = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send + 'static> Drop for HeardCall<T> {
    fn drop(&mut self) {
        if let (Some(call), true, Ok(runtime)) =
            (self.call.take(), self.is_sent, Handle::try_current())
        {
            // Not without an end: the client may reconnect first, and then send many of them.
            runtime.spawn(timeout(MAX_SILENCE, call));
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::{RedisFuture, Value};
    use tokio::time::{advance, sleep};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// A call that has its reply after some time.
    fn call(hearing: &Arc<Hearing>, after: Duration) -> BoxedCall<Value> {
        let reply: RedisFuture<'static, Value> = Box::pin(async move {
            sleep(after).await;
            Ok(Value::Okay)
        });
        heard(hearing, reply)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_the_time_without_a_reply_while_calls_are_in_flight() {
        let hearing = Arc::default();
        timeout(2 * MAX_SILENCE, call(&hearing, 4 * MAX_SILENCE)).await.expect_err("silent");
        let silent = hearing.silent_for();
        assert!(silent > 2 * MAX_SILENCE - 2 * SILENCE_STEP, "{silent:?}");
        // The call that was left ends, and then nobody asks.
        sleep(100 * MAX_SILENCE).await;
        assert!(hearing.silent_for() <= 3 * MAX_SILENCE + SILENCE_STEP);
        call(&hearing, SOON).await.expect("a reply");
        assert_eq!(hearing.silent_for(), Duration::ZERO);
    }

    /// Otherwise the next call that a busy process answers late would blame the server.
    #[tokio::test(start_paused = true)]
    async fn a_reply_is_heard_even_if_its_caller_has_left() {
        let hearing = Arc::default();
        for _ in 0..2 * MAX_SILENCE.as_millis() / SOON.as_millis() {
            timeout(SOON, call(&hearing, 2 * SOON)).await.expect_err("too late");
        }
        assert_eq!(hearing.silent_for(), Duration::ZERO);
    }

    /// The reply has arrived, and waits behind other tasks.
    #[tokio::test(start_paused = true)]
    async fn the_delays_of_a_busy_process_are_no_silence() {
        let hearing = Arc::default();
        let mut call = call(&hearing, 20 * MAX_SILENCE);
        for _ in 0..10 {
            timeout(Duration::ZERO, &mut call).await.expect_err("in flight");
            advance(MAX_SILENCE).await;
        }
        assert_eq!(hearing.silent_for(), Duration::ZERO);
    }
}
