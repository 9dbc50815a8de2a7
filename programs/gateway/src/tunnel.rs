//! Two connections that carry another protocol than HTTP, such as WebSocket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Notify;

use crate::bill::Bill;
use serving::port::Exchange;
use serving::port::Running;

/// A tunnel that is silent for so long is closed when the process ends.
const SILENCE: Duration = Duration::from_secs(3);

/// Copies both ways until both sides have ended, and holds the units of its request until then.
/// While the process ends, silence ends it too. So does silence after one side has ended: the other
/// one may never notice that its peer is gone.
pub(crate) fn open(
    caller: OnUpgrade,
    upstream: OnUpgrade,
    exchange: Arc<Exchange>,
    held: Option<Bill>,
    running: &Running,
) {
    let (one, running) = (running.begin(), running.clone());
    tokio::spawn(async move {
        let _one = (one, held);
        let Ok((caller, upstream)) = tokio::try_join!(caller, upstream) else { return };
        exchange.caller.become_tunnel();
        let (from_caller, to_caller) = split(TokioIo::new(caller));
        let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
        let copied = Copied::default();
        let both = async {
            tokio::try_join!(
                copied.copy(from_caller, to_upstream),
                copied.copy(from_upstream, to_caller)
            )
        };
        let in_the_end = async {
            running.ending().await;
            copied.silence(SILENCE).await;
        };
        let after_one_side = async {
            copied.one_ended.notified().await;
            copied.silence(exchange.caller.timeouts.body_timeout).await;
        };
        tokio::select! {
            _ = both => {}
            () = in_the_end => {}
            () = after_one_side => {}
        }
    });
}

/// What both directions have copied.
#[derive(Default)]
struct Copied {
    parts: AtomicUsize,
    one_ended: Notify,
}

impl Copied {
    /// Waits until nothing was copied for so long.
    async fn silence(&self, time: Duration) {
        let mut before = None;
        while before != Some(self.parts.load(Relaxed)) {
            before = Some(self.parts.load(Relaxed));
            tokio::time::sleep(time).await;
        }
    }

    /// Copies until the end, and then closes the direction.
    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 16 * 1_024];
        loop {
            let read = from.read(&mut buffer).await?;
            if read == 0 {
                self.one_ended.notify_one();
                return to.shutdown().await;
            }
            self.parts.fetch_add(1, Relaxed);
            to.write_all(&buffer[..read]).await?;
            to.flush().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_begins_anew_with_each_part() {
        let (copied, begun) = (Copied::default(), Instant::now());
        let parts = async {
            for _ in 0..5 {
                sleep(Duration::from_secs(9)).await;
                copied.parts.fetch_add(1, Relaxed);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = copied.silence(Duration::from_secs(10)) => {}
            () = parts => {}
        }
        let lasted = begun.elapsed().as_secs();
        assert!((55..=65).contains(&lasted), "{lasted}");
    }
}
