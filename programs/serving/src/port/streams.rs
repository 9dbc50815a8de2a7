//! The streams of HTTP/2. One whose caller takes nothing of its answer is given up, and with it the
//! rest of its request and its place at the upstream. The other streams of the connection go on.
//!
//! The last part of an answer may wait for its caller after the stream has ended here. Then only
//! the connection is given up, where no other request waits for the upstream.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::sleep;

use crate::port::exchange::Exchange;
use crate::port::running::{RunningAnswer, RunningRequest};

/// The pause between two looks at a stream.
const PAUSE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The request of the stream that runs.
    static REQUEST: OnceLock<(Arc<RunningAnswer>, Arc<Exchange>)>;
}

/// Runs each stream in a task of its own.
#[derive(Clone, Copy)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(REQUEST.scope(OnceLock::new(), async {
            // A stream that is dropped is reset.
            tokio::select! {
                biased;
                () = stream => {}
                () = overdue() => {}
            }
        }));
    }
}

/// Gives up the stream that runs where its caller takes nothing of the answer to this request. By
/// HTTP/1.1 the connection is given up.
pub(crate) fn watch(one: &RunningRequest) {
    let request = || (Arc::clone(one.answer()), Arc::clone(one.exchange()));
    let _ = REQUEST.try_with(|own| own.set(request()));
}

async fn overdue() {
    let mut is_ending = false;
    loop {
        let pause = REQUEST.with(|own| {
            let Some((answer, exchange)) = own.get() else { return Some(PAUSE) };
            if exchange.caller.running.is_ending() && !is_ending {
                // From now on it has less time.
                is_ending = true;
                answer.takes_part();
            }
            if answer.takes_nothing(exchange.is_slow()) {
                exchange.cut();
                return None;
            }
            Some(exchange.caller.timeouts.body_timeout.min(PAUSE))
        });
        let Some(pause) = pause else { return };
        sleep(pause).await;
    }
}
