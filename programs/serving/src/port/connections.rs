//! The connections of callers to one port: a bound on their number, and on the silence of each.
//!
//! | a caller | is given up after |
//! |---|---|
//! | sends nothing on a new connection | `FIRST_BYTE_TIMEOUT` |
//! | does not finish a head | `HEAD_TIMEOUT` |
//! | keeps a connection without a request | `IDLE_TIMEOUT` |
//! | takes nothing of an answer | `BODY_TIMEOUT` |
//!
//! `exchange.rs` bounds what happens within a request.
//!
//! Where as many connections are open as the port allows, a new one takes the place of the one that
//! has had no request for the longest time. So silent callers keep nobody out.
//!
//! Where all have a request, a new one takes the place of the longest one of the address that has
//! the most, if its own address has less by two. A further one of such an address is closed, so
//! that it keeps no other waiting. So slow requests of one address keep nobody out.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::log::Log;
use crate::port::bounds::Bounds;
use crate::port::peer::Peer;
use crate::port::running::Running;
use crate::port::timeouts::Timeouts;

/// The time that connections without a request may take to close.
const CLOSING: Duration = Duration::from_secs(2);
/// The time that a caller may be silent within a request while the process ends.
const ENDING_SILENCE: Duration = Duration::from_secs(7);
/// The time that a connection may be silent before a new one may take its place, in milliseconds.
const UNDISTURBED: u64 = 100;
/// The pause of a new connection between two looks for such a place.
const TURN: Duration = Duration::from_millis(20);

static FULL: Log = Log::new();
static SHARE: Log = Log::new();

/// Milliseconds since the process began.
pub fn now() -> u64 {
    u64::try_from(BEGIN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The instant of [`now`], not before it.
pub(crate) fn instant(millis: u64) -> Instant {
    *BEGIN + Duration::from_millis(millis.saturating_add(1))
}

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Timeouts {
    /// The bounds of a connection that is about to close.
    fn closing(self) -> Self {
        let soon = |timeout: Duration| timeout.min(CLOSING);
        Self {
            first_byte_timeout: soon(self.first_byte_timeout),
            head_timeout: soon(self.head_timeout),
            idle_timeout: soon(self.idle_timeout),
            ..self
        }
    }

    /// The bound of silence within a request.
    pub(crate) fn body(&self, running: &Running) -> Duration {
        match running.is_ending() {
            true => self.body_timeout.min(ENDING_SILENCE),
            false => self.body_timeout,
        }
    }
}

/// The open connections of a port.
pub(crate) struct OpenConnections {
    port: &'static str,
    bounds: Bounds,
    room: Arc<Semaphore>,
    open: Arc<Mutex<OpenPlaces>>,
    /// The most places that an address had when nobody was silent. `usize::MAX` if somebody was.
    most: AtomicUsize,
    number: AtomicU64,
    /// The instant from which on silent ones may be ended again, in milliseconds: each worker may
    /// look for a place.
    next_turn: AtomicU64,
}

#[derive(Default)]
struct OpenPlaces {
    callers: HashMap<u64, Arc<Caller>>,
    /// The number of those of each address, but of proxies, and of those that wait.
    of_address: HashMap<IpAddr, usize>,
}

impl OpenPlaces {
    fn places_of(&self, address: Option<IpAddr>) -> usize {
        address.and_then(|address| self.of_address.get(&address)).copied().unwrap_or(0)
    }
}

/// The place of one connection, free again when it is dropped.
pub(crate) struct ConnectionPlace {
    number: u64,
    share: Share,
    _permit: OwnedSemaphorePermit,
}

/// One connection in the number of those of its address.
struct Share {
    address: Option<IpAddr>,
    open: Arc<Mutex<OpenPlaces>>,
}

impl Share {
    /// `None` if the address has `most` already.
    fn take(open: &Arc<Mutex<OpenPlaces>>, address: Option<IpAddr>, most: usize) -> Option<Self> {
        if let Some(address) = address {
            let mut open = lock(open);
            let places = open.of_address.entry(address).or_default();
            if *places >= most {
                return None;
            }
            *places += 1;
        }
        Some(Self { address, open: Arc::clone(open) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        if let Entry::Occupied(mut places) = lock(&self.open).of_address.entry(address) {
            *places.get_mut() -= 1;
            if *places.get() == 0 {
                places.remove();
            }
        }
    }
}

impl OpenConnections {
    /// `port` names it in logs.
    pub(crate) fn new(port: &'static str, bounds: Bounds) -> Self {
        let room = Arc::new(Semaphore::new(bounds.connections));
        let (number, next_turn) = (AtomicU64::new(0), AtomicU64::new(0));
        let most = AtomicUsize::new(usize::MAX);
        Self { port, bounds, room, open: Arc::default(), most, number, next_turn }
    }

    /// Waits for a place for `caller`. `None` if its address has too many.
    pub(crate) async fn enter(&self, caller: &Arc<Caller>) -> Option<ConnectionPlace> {
        let address = self.bounds.caller(caller.peer.address);
        let most = self.bounds.of_address.unwrap_or(usize::MAX);
        let Some(share) = Share::take(&self.open, address, most) else {
            SHARE.say(|| format!("{} has {most} connections of one address", self.port));
            return None;
        };
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
                break permit;
            }
            let most = self.bounds.connections;
            FULL.say(|| format!("{} has {most} connections, its most", self.port));
            if !self.makes_room(address) {
                return None;
            }
            if let Ok(Ok(permit)) = timeout(TURN, Arc::clone(&self.room).acquire_owned()).await {
                break permit;
            }
        };
        caller.since.store(now(), Relaxed);
        let number = self.number.fetch_add(1, Relaxed);
        lock(&self.open).callers.insert(number, Arc::clone(caller));
        Some(ConnectionPlace { number, share, _permit: permit })
    }

    /// Lets each connection see that the process ends.
    pub(crate) fn wake(&self) {
        lock(&self.open)
            .callers
            .values()
            .filter_map(|caller| caller.waker.get())
            .for_each(Waker::wake_by_ref);
    }

    /// Ends those that have had no request for the longest time: several at once where many are
    /// silent, so that a flood of connections is not a flood of searches. Where nobody is silent,
    /// it ends a request of the address that has the most. Returns false if `address` has too many
    /// itself.
    fn makes_room(&self, address: Option<IpAddr>) -> bool {
        let now = now();
        let next = self.next_turn.load(Relaxed);
        let is_turn = now >= next
            && self.next_turn.compare_exchange(next, now + millis(TURN), Relaxed, Relaxed).is_ok();
        let open = lock(&self.open);
        // Without the one that waits.
        let own = open.places_of(address).saturating_sub(1);
        if !is_turn {
            return own == 0 || own + 2 <= self.most.load(Relaxed);
        }
        let (mut silent, mut is_young) = (Vec::new(), false);
        for caller in open.callers.values().filter(|caller| caller.has_no_request()) {
            match caller.since.load(Relaxed) + UNDISTURBED <= now {
                true => silent.push(caller),
                false => is_young = true,
            }
        }
        silent.sort_unstable_by_key(|caller| caller.since.load(Relaxed));
        let several = (silent.len() / 8).clamp(1, 32);
        silent.iter().take(several).for_each(|caller| caller.end_for_another());
        if is_young || !silent.is_empty() {
            self.most.store(usize::MAX, Relaxed);
            return true;
        }
        let places = open.of_address.iter().map(|(address, places)| (*places, Some(*address)));
        let (most, greediest) = places.max().unwrap_or_default();
        self.most.store(most, Relaxed);
        if most < own + 2 {
            return own == 0;
        }
        let of_it = |caller: &&Arc<Caller>| {
            self.bounds.caller(caller.peer.address) == greediest && !caller.is_ended.load(Relaxed)
        };
        let longest = open.callers.values().filter(of_it);
        if let Some(caller) = longest.min_by_key(|caller| caller.since.load(Relaxed)) {
            let whose = caller.peer.address;
            SHARE.say(|| format!("{} has {most} connections of {whose}, one ended", self.port));
            caller.end_for_another();
        }
        true
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        lock(&self.share.open).callers.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kinds of what a connection without a request waits for: its first byte, a head, or the next
/// request.
const FIRST_BYTE: u8 = 0;
const HEAD: u8 = 1;
const NEXT: u8 = 2;

/// One connection, as the port waits for its caller.
pub struct Caller {
    pub peer: Peer,
    pub running: Running,
    pub timeouts: Timeouts,
    /// Cancelled once the connection has ended.
    pub over: CancellationToken,
    /// What the program keeps for the connection.
    own: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The number of requests that run.
    requests: AtomicUsize,
    /// The number of requests with a part of an answer that is not taken.
    untaken: AtomicUsize,
    awaited: AtomicU8,
    /// Since when it waits, in milliseconds.
    since: AtomicU64,
    /// True by HTTP/2, where bytes that leave say nothing about an answer.
    has_streams: AtomicBool,
    /// True while the socket takes no more bytes.
    is_blocked: AtomicBool,
    /// The number of heads that came, up to one that states a length beside a transfer coding.
    heads: AtomicU64,
    /// The number of requests that began.
    asked: AtomicU64,
    is_tunnel: AtomicBool,
    is_ended: AtomicBool,
    task: OnceLock<AbortHandle>,
    /// Wakes that task.
    waker: OnceLock<Waker>,
}

impl Caller {
    pub(crate) fn new(peer: SocketAddr, running: Running, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            peer: Peer::new(peer),
            running,
            timeouts,
            requests: AtomicUsize::new(0),
            over: CancellationToken::new(),
            own: OnceLock::new(),
            untaken: AtomicUsize::new(0),
            awaited: AtomicU8::new(FIRST_BYTE),
            since: AtomicU64::new(now()),
            has_streams: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            is_tunnel: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            task: OnceLock::new(),
            waker: OnceLock::new(),
        })
    }

    /// What the program keeps for this connection, of one type in the whole program.
    pub fn own<T: Default + Send + Sync + 'static>(&self) -> &T {
        let own = self.own.get_or_init(|| Box::<T>::default());
        own.downcast_ref().expect("one type")
    }

    /// The task of the connection, which ends where its place is needed.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
        // Its place may have been needed before: one of both sees what the other one set.
        fence(SeqCst);
        if self.is_ended.load(Relaxed) {
            self.end_for_another();
        }
    }

    /// Ends the connection, whose place another one needs.
    fn end_for_another(&self) {
        self.is_ended.store(true, Relaxed);
        fence(SeqCst);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Bytes came, while no request runs. By HTTP/2 they may be anything: after the first request,
    /// they are no begin of the next one.
    pub(crate) fn hears(&self) {
        if !self.has_streams.load(Relaxed) && self.awaited.swap(HEAD, Relaxed) != HEAD {
            self.since.store(now(), Relaxed);
        }
    }

    /// So many heads came that have one framing.
    pub(crate) fn has_heads(&self, heads: u64) {
        self.heads.store(heads, Relaxed);
    }

    /// Counts a request, and returns true if its head is not among those with one framing.
    pub(crate) fn asks_with_two_framings(&self) -> bool {
        self.asked.fetch_add(1, Relaxed) >= self.heads.load(Relaxed)
    }

    /// Bytes left, or had to wait. A caller that takes an answer is not silent. By HTTP/2 it takes
    /// bytes of the connection without taking any answer, such as the question whether it is there.
    pub(crate) fn takes(&self, is_blocked: bool) {
        let was_blocked = self.is_blocked.swap(is_blocked, Relaxed);
        if is_blocked || self.has_streams.load(Relaxed) && !was_blocked {
            return;
        }
        let has_answer = self.untaken.load(Relaxed) > 0 || self.awaited.load(Relaxed) == NEXT;
        if was_blocked || has_answer {
            self.since.store(now(), Relaxed);
        }
    }

    /// A request begins.
    pub(crate) fn begin(&self, has_streams: bool) {
        self.has_streams.store(has_streams, Relaxed);
        self.requests.fetch_add(1, Relaxed);
    }

    /// A request and its answer have ended.
    pub(crate) fn end(&self) {
        if self.requests.fetch_sub(1, Relaxed) == 1 {
            self.awaited.store(NEXT, Relaxed);
            self.since.store(now(), Relaxed);
        }
    }

    /// An answer has parts that wait for the caller, from now on.
    pub(crate) fn has_parts(&self) {
        self.untaken.fetch_add(1, Relaxed);
        self.takes_part();
    }

    /// Something of a part has left.
    pub(crate) fn takes_part(&self) {
        self.since.store(now(), Relaxed);
    }

    /// All parts of that answer have left.
    pub(crate) fn took_parts(&self) {
        self.untaken.fetch_sub(1, Relaxed);
    }

    /// Returns true if it has neither a request nor bytes of an answer that must still leave.
    fn has_no_request(&self) -> bool {
        !self.is_running()
            && !self.is_blocked.load(Relaxed)
            && !self.is_tunnel()
            && !self.is_ended.load(Relaxed)
    }

    /// It carries another protocol from now on, whose two directions close one by one.
    pub fn become_tunnel(&self) {
        self.is_tunnel.store(true, Relaxed);
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.is_tunnel.load(Relaxed)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Returns the instant at which the caller is given up; none while nothing is awaited of it. By
    /// HTTP/2 a caller is given up that takes nothing of any answer, where no other request waits
    /// for the upstream; `streams.rs` gives up the answers one by one.
    fn deadline(&self, timeouts: &Timeouts) -> Option<u64> {
        let (requests, untaken) = (self.requests.load(Relaxed), self.untaken.load(Relaxed));
        let patience = match self.awaited.load(Relaxed) {
            _ if requests > untaken && (untaken == 0 || self.has_streams.load(Relaxed)) => {
                return None;
            }
            _ if requests > 0 || self.is_blocked.load(Relaxed) => timeouts.body(&self.running),
            FIRST_BYTE => timeouts.first_byte_timeout,
            HEAD => timeouts.head_timeout,
            _ => timeouts.idle_timeout,
        };
        Some(self.since.load(Relaxed).saturating_add(millis(patience)))
    }

    /// Waits until the caller is given up, or `is_over`. It is polled whenever the connection is,
    /// so a deadline that moves forward costs nothing: the timer is set anew when it fires, or for
    /// an earlier one.
    async fn overdue(&self, timeouts: &Timeouts, is_over: impl Fn() -> bool) {
        let first = timeouts.first_byte_timeout.min(timeouts.head_timeout);
        let shortest = first.min(timeouts.idle_timeout);
        let later = || now().saturating_add(millis(shortest.min(timeouts.body_timeout)));
        let mut at = self.deadline(timeouts).unwrap_or_else(later);
        let mut timer = pin!(sleep_until(instant(at)));
        let mut is_set = false;
        poll_fn(|cx| {
            // Before it looks whether it is over, so that it is woken after.
            self.waker.get_or_init(|| cx.waker().clone());
            loop {
                let deadline = self.deadline(timeouts);
                if is_over() {
                    return Poll::Ready(());
                }
                if let Some(earlier) = deadline.filter(|deadline| *deadline < at) {
                    at = earlier;
                    timer.as_mut().reset(instant(at));
                } else if is_set && !timer.is_elapsed() {
                    return Poll::Pending;
                }
                is_set = true;
                ready!(timer.as_mut().poll(cx));
                if deadline.is_some_and(|deadline| deadline <= now()) {
                    return Poll::Ready(());
                }
                at = deadline.unwrap_or_else(later);
                timer.as_mut().reset(instant(at));
            }
        })
        .await;
    }

    /// Runs a connection until it ends, its caller is given up, or the process ends. `graceful`
    /// lets the requests that run finish.
    pub(crate) async fn drive<C: Future>(&self, connection: C, graceful: impl FnOnce(Pin<&mut C>)) {
        let _over = self.over.clone().drop_guard();
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            () = self.overdue(&self.timeouts, || self.running.is_ending()) => {}
        }
        // A caller that takes nothing leaves nothing to finish.
        if self.is_running() && !self.running.is_ending() {
            return;
        }
        self.since.store(now(), Relaxed);
        graceful(connection.as_mut());
        let soon = self.timeouts.closing();
        tokio::select! {
            biased;
            _ = connection => {}
            () = self.overdue(&soon, || false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::port::lingering::Lingering;

    #[tokio::test]
    async fn a_connection_that_ended_before_it_ran_does_not_run() {
        let peer = "127.0.0.1:1".parse().unwrap();
        let caller = Caller::new(peer, Running::default(), Timeouts::default());
        caller.end_for_another();
        let task = tokio::spawn(std::future::pending::<()>());
        caller.set_task(task.abort_handle());
        assert!(task.await.unwrap_err().is_cancelled());
    }

    /// The last bytes of an answer, whose request has ended.
    #[tokio::test]
    async fn bytes_that_must_still_leave_are_an_answer_that_is_not_taken() {
        let timeouts = Timeouts {
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(1),
            ..Timeouts::default()
        };
        let caller = Caller::new("127.0.0.1:1".parse().unwrap(), Running::default(), timeouts);
        let patience =
            || caller.deadline(&timeouts.closing()).unwrap() - caller.since.load(Relaxed);
        let (mut reader, stream) = duplex(64);
        let mut stream = Lingering::new(stream, Arc::clone(&caller), None);
        caller.begin(false);
        caller.end();
        assert_eq!((caller.has_no_request(), patience()), (true, 1_000));
        let mut writing = pin!(stream.write_all(&[0; 100]));
        let is_blocked = poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx).is_pending())).await;
        assert!(is_blocked);
        assert_eq!((caller.has_no_request(), patience()), (false, 60_000));
        let mut taken = [0; 100];
        let (written, read) = tokio::join!(writing, reader.read_exact(&mut taken));
        written.and(read).unwrap();
        assert_eq!((caller.has_no_request(), patience()), (true, 1_000));
    }
}
