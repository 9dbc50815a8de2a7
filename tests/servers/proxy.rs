//! A TCP proxy in this process that does to a connection what networks do: delay it, let it
//! trickle, cut it, reset it, or swallow everything.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The fault that answers meet on their way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Each piece comes this much later.
    Delay(Duration),
    /// One byte at a time, this far apart.
    Trickle(Duration),
    /// This number of bytes pass, then the connection is closed.
    CutAfter(usize),
    /// The connection is reset when an answer comes.
    Reset,
    /// The connection whose answer comes next is reset. Nothing happens to others.
    ResetNext,
    /// Requests pass, and answers wait until the fault is over.
    Hold,
    /// The connection is closed in the answers' direction alone.
    HalfClose,
    /// Nothing passes in either direction, and neither side notices.
    BlackHole,
}

/// A proxy before one server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<watch::Sender<(Fault, u64)>>,
    connections: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before the server at a port of this machine.
    pub async fn before(port: u16) -> Self {
        Self::before_host(String::from("127.0.0.1"), port).await
    }

    /// A proxy before the server at any host and port.
    pub async fn before_host(host: String, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let faults = Arc::new(watch::Sender::new((Fault::None, 0)));
        let shared = Arc::clone(&faults);
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let Ok(server) = TcpStream::connect((host.as_str(), port)).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let ((from, to), (back, forth)) = (client.into_split(), server.into_split());
                let (shared, asking) = (Arc::downgrade(&shared), shared.subscribe());
                let answering = asking.clone();
                // A connection ends in both directions.
                tokio::spawn(async move {
                    tokio::select! {
                        () = ask(from, forth, asking) => (),
                        () = answer(back, to, answering, shared) => (),
                    }
                });
            }
        });
        Self { address, faults, connections, task }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of connections that clients have made.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Does `fault` to every connection from now on.
    pub fn set(&self, fault: Fault) {
        self.faults.send_modify(|faults| faults.0 = fault);
    }

    /// Returns the present fault.
    pub fn fault(&self) -> Fault {
        self.faults.borrow().0
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

/// Waits while `faults` keep what came over a connection of `epoch`.
async fn swallowed(faults: &mut Faults, epoch: u64, keep: impl Fn(Fault) -> bool) -> Fault {
    match faults.wait_for(|faults| !keep(faults.0) && faults.1 == epoch).await {
        Ok(faults) => faults.0,
        Err(_) => Fault::Reset,
    }
}

/// Returns true if this is the connection that [`Fault::ResetNext`] is for.
fn is_next(faults: &watch::Sender<(Fault, u64)>) -> bool {
    faults.send_if_modified(|faults| {
        let is_next = faults.0 == Fault::ResetNext;
        if is_next {
            faults.0 = Fault::None;
        }
        is_next
    })
}

async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut faults: Faults) {
    let epoch = faults.borrow().1;
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        swallowed(&mut faults, epoch, |fault| fault == Fault::BlackHole).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
}

async fn answer(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut faults: Faults,
    all: Weak<watch::Sender<(Fault, u64)>>,
) {
    let epoch = faults.borrow().1;
    let mut bytes = [0; 16 * 1024];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let bytes = &bytes[..count];
        let keep = |fault| matches!(fault, Fault::BlackHole | Fault::Hold);
        let mut fault = swallowed(&mut faults, epoch, keep).await;
        if fault == Fault::ResetNext {
            let is_next = all.upgrade().is_some_and(|all| is_next(&all));
            fault = if is_next { Fault::Reset } else { Fault::None };
        }
        let sent = match fault {
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
                // Without the end that a dropped half announces.
                return to.forget();
            }
            Fault::HalfClose => {
                let _ = to.shutdown().await;
                return pending().await;
            }
            Fault::None | Fault::ResetNext | Fault::Hold | Fault::BlackHole => {
                to.write_all(bytes).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
