//! The streams of HTTP/2. One whose caller takes nothing of its answer is given up, and with it its
//! connection to the upstream. The other streams of the connection go on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::sleep;

use crate::exchange::Exchange;

/// The pause between two looks at a stream.
const PAUSE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The request of the stream that runs.
    static EXCHANGE: OnceLock<Arc<Exchange>>;
}

/// Runs each stream in a task of its own.
#[derive(Clone, Copy)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(EXCHANGE.scope(OnceLock::new(), async {
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
pub(crate) fn watch(exchange: &Arc<Exchange>) {
    let _ = EXCHANGE.try_with(|own| own.set(Arc::clone(exchange)));
}

async fn overdue() {
    let takes_nothing =
        || EXCHANGE.with(|own| own.get().is_some_and(|exchange| exchange.takes_nothing()));
    while !takes_nothing() {
        let patience = EXCHANGE.with(|own| own.get().map(|one| one.caller.timeouts.body));
        sleep(patience.map_or(PAUSE, |patience| patience.min(PAUSE))).await;
    }
}
