//! Two connections that carry another protocol than HTTP, such as WebSocket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use crate::bill::Bill;
use serving::port::Exchange;
use serving::port::Running;

/// A tunnel that is silent for so long is closed when the process ends.
const SILENCE: Duration = Duration::from_secs(3);

/// Copies both ways until both sides have ended, and holds the units of its request until then.
/// While the process ends, silence ends it too.
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
        let heard = AtomicBool::new(false);
        let copied = async {
            tokio::try_join!(
                copy(from_caller, to_upstream, &heard),
                copy(from_upstream, to_caller, &heard)
            )
        };
        let silent = async {
            running.ending().await;
            heard.store(true, Relaxed);
            while heard.swap(false, Relaxed) {
                tokio::time::sleep(SILENCE).await;
            }
        };
        tokio::select! {
            _ = copied => {}
            () = silent => {}
        }
    });
}

/// Copies until the end, and then closes the direction.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heard: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1_024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        heard.store(true, Relaxed);
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
    }
}
