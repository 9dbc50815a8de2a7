//! A TCP proxy in this process that does to a connection what networks do: delay it, let it trickle, cut it,
//! reset it, or swallow everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What happens to answers on their way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Each piece comes this much later.
    Delay(Duration),
    /// One byte at a time, this far apart.
    Trickle(Duration),
    /// So many bytes pass, then the connection is closed.
    CutAfter(usize),
    /// The connection is reset when an answer comes.
    Reset,
    /// The connection is closed in the answers' direction alone.
    HalfClose,
    /// Nothing passes in either direction, and nobody is told.
    BlackHole,
}

/// A proxy before one server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<watch::Sender<(Fault, u64)>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let faults = Arc::new(watch::Sender::new((Fault::None, 0)));
        let shared = Arc::clone(&faults);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let ((from, to), (back, forth)) = (client.into_split(), server.into_split());
                let epoch = shared.borrow().1;
                tokio::spawn(ask(from, forth, shared.subscribe(), epoch));
                tokio::spawn(answer(back, to, shared.subscribe(), epoch));
            }
        });
        Self { address, faults, task }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Does `fault` to every connection from now on.
    pub fn set(&self, fault: Fault) {
        self.faults.send_modify(|faults| faults.0 = fault);
    }

    /// Swallows everything on the connections that there are; new ones are fine.
    pub fn strand(&self) {
        self.faults.send_modify(|faults| faults.1 += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Faults = watch::Receiver<(Fault, u64)>;

/// Waits while the connection of `epoch` is a black hole.
async fn swallowed(faults: &mut Faults, epoch: u64) -> Fault {
    let passes = |faults: &(Fault, u64)| faults.0 != Fault::BlackHole && faults.1 == epoch;
    match faults.wait_for(passes).await {
        Ok(faults) => faults.0,
        Err(_) => Fault::Reset,
    }
}

async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut faults: Faults, epoch: u64) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        swallowed(&mut faults, epoch).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut faults: Faults, epoch: u64) {
    let mut bytes = [0; 16 * 1024];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let bytes = &bytes[..count];
        let sent = match swallowed(&mut faults, epoch).await {
            Fault::None | Fault::BlackHole => to.write_all(bytes).await,
            Fault::Delay(by) => {
                sleep(by).await;
                to.write_all(bytes).await
            }
            Fault::Trickle(apart) => {
                for byte in bytes {
                    sleep(apart).await;
                    if to.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                }
                Ok(())
            }
            Fault::CutAfter(limit) => {
                let pass = bytes.len().min(limit.saturating_sub(passed));
                passed += pass;
                let _ = to.write_all(&bytes[..pass]).await;
                if passed >= limit {
                    return drop(to.shutdown().await);
                }
                Ok(())
            }
            Fault::Reset => {
                let _ = to.as_ref().set_zero_linger();
                return;
            }
            Fault::HalfClose => return drop(to.shutdown().await),
        };
        if sent.is_err() {
            return;
        }
    }
}
