//! Callers that stop in the middle of a request. While the process ends, nobody waits for them for
//! ever: a caller that owes bytes, or takes none, is given up after a while of silence. Requests
//! that wait for their turn or for the upstream are not meant.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::running::Running;

/// How long a caller may be silent while the process ends.
const SILENCE: Duration = Duration::from_secs(7);

/// Whether anything of a request or of its response has moved. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved(Arc<AtomicBool>);

impl Moved {
    pub(crate) fn mark(&self) {
        self.0.store(true, Relaxed);
    }
}

/// The patience with one caller.
pub(crate) struct Patience {
    running: Running,
    moved: Moved,
    /// Set while the caller is waited for.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Patience {
    pub(crate) fn new(running: Running, moved: Moved) -> Self {
        Self { running, moved, over: None }
    }

    /// Ready when the caller is given up. Called while it is waited for.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let over = self.over.get_or_insert_with(|| {
            let (running, moved) = (self.running.clone(), self.moved.clone());
            Box::pin(async move {
                running.ending().await;
                moved.mark();
                while moved.0.swap(false, Relaxed) {
                    tokio::time::sleep(SILENCE).await;
                }
            })
        });
        ready!(over.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the caller is silent"))
    }

    /// The caller has moved.
    pub(crate) fn renew(&mut self) {
        self.moved.mark();
        self.over = None;
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").finish_non_exhaustive()
    }
}
