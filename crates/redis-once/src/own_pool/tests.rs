//! Tests of attempts to connect to simulated servers in paused time.

use std::future::{pending, poll_fn, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::mpsc;
use tokio::time::{advance, sleep, timeout};

use super::super::dialer::Dialer;
use super::super::fault::{Deadline, Stage};
use super::super::greeting::ServerKind;
use super::super::pool::Pool;
use super::super::server::Login;
use super::super::simulated;
use super::super::times::{MAX_ERROR_AGE, OVERDUE_AFTER, READY_WITHIN};
use super::*;

const CONNECT_TIMEOUT: Duration = MAX_CONNECTION_WAIT.saturating_mul(4);

const SOON: Duration = Duration::from_millis(5);

/// The time that a server keeps a connection.
const LIFE: Duration = Duration::from_secs(1);

/// A pool whose sockets `dialer` opens, and its login.
fn over(dialer: Dialer) -> (Arc<OwnPool>, Login) {
    let connector = simulated::connector(CONNECT_TIMEOUT, dialer);
    let server = connector.server(&simulated::host(1), ServerKind::Plain);
    (Arc::new(OwnPool::new(server.into(), &connector)), connector.login)
}

/// A pool for a server that never answers.
fn silent() -> (Arc<OwnPool>, Login) {
    over(Dialer::new(|_, _| pending::<io::Result<DuplexStream>>()))
}

/// Answers the greeting of a client.
fn greeting(word: &str) -> &'static str {
    if word == "HELLO" { "%1\r\n+role\r\n+master\r\n" } else { "" }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_an_answer_ends_in_time_and_no_pause_follows() {
    let (pool, _) = silent();
    assert!(pool.next(None).is_err());
    sleep(CONNECT_TIMEOUT + SOON).await;
    let facts = pool.facts();
    let Failed { error, at } = facts.failure.expect("it has failed");
    assert_eq!(error.kind(), ErrorKind::Infrastructure);
    // The attempt began long ago, and does not show the current state of the server.
    assert_eq!(lock(&pool.state).backoff.retry_at(Instant::now()), None);
    assert!(at.is_some_and(|at| at.elapsed() <= SOON));
}

/// The server is at fault when the attempt is overdue: before a call stops waiting for it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_has_just_begun_is_no_fault_of_the_server() {
    let (pool, _) = silent();
    assert!(pool.next(None).is_err());
    sleep(OVERDUE_AFTER / 2).await;
    assert!(pool.facts().failure.is_none());
    sleep(MAX_CONNECTION_WAIT - OVERDUE_AFTER / 2).await;
    let kind = pool.facts().failure.map(|failed| failed.error.kind());
    assert_eq!(kind, Some(ErrorKind::Infrastructure));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_changed_is_tried_without_a_pause() {
    let (pool, login) = silent();
    let refused = Error::new(ErrorKind::Configuration, "the password is wrong");
    {
        lock(&pool.state).backoff.record_end(Instant::now(), Some(Err(refused)));
    }
    for is_tried in [false, true] {
        assert!(pool.next(None).is_err());
        assert_eq!(lock(&pool.state).entries().any(|entry| !entry.is_empty()), is_tried);
        assert_eq!(pool.facts().failure.is_none(), is_tried);
        login.set("app", "two");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_end_with_the_pool() {
    let (pool, _) = silent();
    assert!(pool.next(None).is_err());
    let metrics = Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 1);
    drop(pool);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(metrics.num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_last_connection_counts_no_more() {
    let was_asked = AtomicBool::new(false);
    let (pool, _) = over(Dialer::new(move |_, _| {
        if !was_asked.swap(true, Relaxed) {
            return ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let (own, other) = duplex(4_096);
        tokio::spawn(timeout(LIFE, simulated::serve(other, greeting)));
        ready(Ok(own))
    }));
    assert!(pool.next(None).is_err());
    sleep(SOON).await;
    assert!(pool.facts().failure.is_some());
    sleep(LIFE).await;
    assert!(pool.next(None).is_err());
    sleep(SOON).await;
    assert!(pool.next(None).is_ok());
    sleep(LIFE).await;
    assert!(pool.next(None).is_err());
    assert!(pool.facts().failure.is_none());
}

/// A process that is on time gives up instead.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_waits_on_for_its_connection() {
    for (pause, waits_on) in [(Duration::ZERO, false), (2 * MAX_CONNECTION_WAIT, true)] {
        let pool = Pool::new(silent().0, None);
        let waiting = tokio::spawn(pool.connection(0));
        sleep(SOON).await;
        advance(pause).await;
        sleep(MAX_CONNECTION_WAIT.saturating_sub(pause) + SOON).await;
        assert_eq!(!waiting.is_finished(), waits_on, "{pause:?}");
    }
}

/// The last timer may fire in time by chance. Callers that have missed their deadlines may not have
/// recorded the load yet.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_connection_whose_timers_fire_late_is_load() {
    let kind = async |step| {
        let pool = Pool::new(silent().0, None);
        let end = Instant::now() + MAX_CONNECTION_WAIT;
        let running = async {
            while Instant::now() + step < end {
                sleep(Duration::from_millis(1)).await;
                advance(step).await;
            }
        };
        let (connected, ()) = tokio::join!(pool.connection(0), running);
        connected.err().expect("no connection").kind()
    };
    assert_eq!(kind(Duration::ZERO).await, ErrorKind::Infrastructure);
    assert_eq!(kind(Duration::from_millis(80)).await, ErrorKind::Saturation);
}

/// A connection that was given up may still bring the answer.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_although_no_connection_can_be_made() {
    let refused = || ready(Err::<DuplexStream, _>(io::ErrorKind::ConnectionRefused.into()));
    let (own, _) = over(Dialer::new(move |_, _| refused()));
    assert!(own.next(None).is_err());
    sleep(SOON).await;
    let pool = Pool::new(own, None);
    assert!(pool.facts(0).failure.is_some());
    let deadline = Deadline::new(Instant::now() + SOON, 0);
    let answer = async {
        advance(SOON).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        7
    };
    assert_eq!(deadline.wait_for(pin!(answer)).await, Some(7));
}

/// Clients that open sockets until no file is left to the process get nothing admitted.
// Case 174.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_process_without_files_blames_no_server() {
    for (code, kind) in
        [(111, ErrorKind::Infrastructure), (23, ErrorKind::Saturation), (24, ErrorKind::Saturation)]
    {
        let fails = move || ready(Err::<DuplexStream, _>(io::Error::from_raw_os_error(code)));
        let pool = Pool::new(over(Dialer::new(move |_, _| fails())).0, None);
        let deadline = Deadline::new(Instant::now() + 2 * MAX_CONNECTION_WAIT, 0);
        let connected = pool.connection(0).await;
        assert_eq!(connected.err().expect("no connection").kind(), kind, "{code}");
        assert_eq!(pool.missed_error(&deadline, &Stage::Waiting).kind(), kind, "{code}");
    }
}

/// Even a later call with enough time does not blame the server.
#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_while_it_connected_blames_no_server() {
    for (stands_still, kind) in
        [(Duration::ZERO, ErrorKind::Infrastructure), (MAX_CONNECTION_WAIT, ErrorKind::Saturation)]
    {
        let pool = Pool::new(silent().0, None);
        tokio::spawn(pool.connection(0));
        sleep(SOON).await;
        advance(stands_still).await;
        sleep(MAX_CONNECTION_WAIT - stands_still).await;
        let deadline = Deadline::new(Instant::now() + SOON, 0);
        let pending = pin!(pending::<()>());
        assert!(deadline.wait_for(pending).await.is_none());
        assert_eq!(pool.missed_error(&deadline, &Stage::Waiting).kind(), kind, "{stands_still:?}");
    }
}

/// The server may have been reachable all the time.
#[tokio::test(start_paused = true)]
async fn a_process_that_stands_still_while_it_gets_ready_blames_no_server() {
    for (stands_still, kind) in
        [(Duration::ZERO, ErrorKind::Infrastructure), (2 * READY_WITHIN, ErrorKind::Saturation)]
    {
        let pool = Pool::new(silent().0, None);
        let mut ready = Box::pin(pool.ready());
        assert!(poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx).is_pending())).await);
        advance(stands_still).await;
        assert_eq!(ready.await.expect_err("no connection").kind(), kind, "{stands_still:?}");
    }
}

/// A slow way to the server is no reason for an application not to start.
#[tokio::test(start_paused = true)]
async fn a_pool_that_gets_ready_waits_longer_than_calls_do() {
    for (takes, is_ready) in [(READY_WITHIN * 3 / 4, true), (READY_WITHIN * 5 / 4, false)] {
        let slow = move |_, _| async move {
            sleep(takes).await;
            io::Result::Ok(simulated::served(greeting))
        };
        let begun = Instant::now();
        let pool = Pool::new(over(Dialer::new(slow)).0, None);
        assert_eq!(pool.ready().await.is_ok(), is_ready, "{takes:?}");
        assert!(begun.elapsed() <= READY_WITHIN + SOON, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_gets_another_beside_it() {
    let (mut runtimes, mut backoff) = (Vec::new(), Backoff::default());
    let all = RuntimeConnections::of(&mut runtimes, Handle::current().id(), 1);
    let begun = Instant::now();
    let next = begun + MAX_SILENCE;
    // A call that is alone has to be told when the second attempt is due.
    assert_eq!(all.begin_attempts(begun, &mut backoff), (vec![0], next));
    let soon = next - Duration::from_millis(1);
    assert_eq!(all.begin_attempts(soon, &mut backoff), (Vec::new(), next));
    assert_eq!(all.begin_attempts(next, &mut backoff).0, [0]);
    let entry = &mut all.entries[0];
    assert_eq!(entry.attempts[0], begun);
    entry.end_attempt(begun);
    assert_eq!(entry.attempts[0], next);
    entry.end_attempt(next);
    assert!(entry.is_empty());
}

/// After a hang, all other runtimes would pause in turn, and their calls would fail meanwhile.
#[tokio::test(start_paused = true)]
async fn a_runtime_without_a_connection_follows_one_that_has_connected() {
    let (mut runtimes, mut backoff) = (Vec::new(), Backoff::default());
    let all = RuntimeConnections::of(&mut runtimes, Handle::current().id(), 3);
    let now = Instant::now();
    backoff.record_unusable(now, Error::new(ErrorKind::Infrastructure, "it was silent"));
    assert!(all.begin_attempts(now, &mut backoff).0.is_empty());
    // Another one has connected. One attempt follows each success.
    for follows in [0, 1] {
        backoff.record_end(now, Some(Ok(())));
        assert_eq!(all.begin_attempts(now, &mut backoff).0, [follows]);
        assert!(all.begin_attempts(now, &mut backoff).0.is_empty());
    }
    backoff.record_end(now, Some(Ok(())));
    backoff.record_end(now, Some(Err(Error::new(ErrorKind::Infrastructure, "away"))));
    assert!(all.begin_attempts(now, &mut backoff).0.is_empty());
}

/// In a network that loses everything there are few attempts, for every connect timeout.
#[tokio::test(start_paused = true)]
async fn few_attempts_are_under_way_at_once() {
    let (mut runtimes, mut backoff) = (Vec::new(), Backoff::default());
    let all = RuntimeConnections::of(&mut runtimes, Handle::current().id(), 1);
    let (begun, mut started) = (Instant::now(), 0);
    for number in 0..100 {
        let now = begun + number * MAX_SILENCE;
        started += all.begin_attempts(now, &mut backoff).0.len();
    }
    assert_eq!(started, MAX_ATTEMPTS);
    all.entries[0].end_attempt(begun);
    let later = begun + 100 * MAX_SILENCE;
    assert_eq!(all.begin_attempts(later, &mut backoff).0, [0]);
}

/// A busy process has not read it.
#[tokio::test(start_paused = true)]
async fn a_connection_with_a_reply_that_has_arrived_is_not_given_up() {
    for (answers, stays) in [(true, true), (false, false)] {
        let (pool, _) = over(Dialer::new(move |_, _| async move {
            let reply = move |word: &str| match word {
                "GET" if answers => "$-1\r\n",
                word => greeting(word),
            };
            Ok(simulated::served(reply))
        }));
        let connection = Arc::clone(&pool).connection_at(None).await.expect("a connection");
        let mut reply = connection.send(redis::cmd("GET").arg("a").take());
        assert!(poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx).is_pending())).await);
        // The request leaves.
        sleep(Duration::from_millis(1)).await;
        advance(2 * MAX_SILENCE).await;
        connection.record_timeout();
        assert_eq!(connection.is_alive(), stays);
        let kind = pool.facts().failure.map(|failed| failed.error.kind());
        assert_eq!(kind, (!stays).then_some(ErrorKind::Infrastructure));
    }
}

/// A pool with one connection to a server that lives.
async fn connected() -> Arc<OwnPool> {
    let (pool, _) = over(Dialer::new(|_, _| ready(Ok(simulated::served(greeting)))));
    assert!(pool.next(None).is_err());
    sleep(SOON).await;
    assert!(pool.next(None).is_ok());
    pool
}

/// Behind one address, a proxy of RESP2 may be beside a server of RESP3.
#[tokio::test(start_paused = true)]
async fn one_connection_of_resp2_keeps_keys_apart() {
    fn old(word: &str) -> &'static str {
        match word {
            "HELLO" | "ROLE" => "-ERR unknown command\r\n",
            "PING" => "+PONG\r\n",
            _ => "",
        }
    }
    let dialed = AtomicUsize::new(0);
    let (pool, _) = over(Dialer::new(move |_, _| {
        // One attempt asks by RESP3, and then by RESP2.
        let reply = if dialed.fetch_add(1, Relaxed) < 2 { old } else { greeting };
        let (own, other) = duplex(4_096);
        tokio::spawn(timeout(LIFE, simulated::serve(other, reply)));
        ready(Ok(own))
    }));
    for is_resp2 in [true, false] {
        let connection = Arc::clone(&pool).connection_at(None).await.expect("a connection");
        assert_eq!(connection.keys_apart(), is_resp2);
        assert_eq!(pool.keys_apart(), Some(true));
        sleep(LIFE + SOON).await;
    }
}

/// The network cuts two greetings of a server that has greeted before, and no other answer.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_greeted_is_taken_for_no_proxy() {
    let greeted = Arc::new(AtomicUsize::new(0));
    let (pool, _) = over(Dialer::new(move |_, _| {
        let (own, mut other) = duplex(4_096);
        let greeted = Arc::clone(&greeted);
        tokio::spawn(timeout(LIFE, async move {
            let (mut request, mut is_first) = ([0; 4_096], true);
            while let Ok(length @ 1..) = other.read(&mut request).await {
                let is_hello = request[..length].windows(5).any(|word| word == b"HELLO");
                let begins = is_hello && std::mem::take(&mut is_first);
                if begins && [1, 2].contains(&greeted.fetch_add(1, Relaxed)) {
                    return;
                }
                let reply = if is_hello { greeting("HELLO") } else { "+PONG\r\n" };
                let _ = other.write_all(reply.as_bytes()).await;
            }
        }));
        ready(Ok(own))
    }));
    for _ in 0..2 {
        let connection = Arc::clone(&pool).connection_at(None).await;
        assert!(!connection.is_ok_and(|one| one.keys_apart()));
        sleep(LIFE + SOON).await;
    }
    let connection = Arc::clone(&pool).connection_at(None).await.expect("a connection");
    assert!(!connection.keys_apart());
    assert_eq!(pool.keys_apart(), Some(false));
}

/// A network may have forgotten the old one without a sign.
#[tokio::test(start_paused = true)]
async fn after_minutes_without_a_call_a_new_connection_comes_first() {
    let pool = connected().await;
    advance(MAX_REST - SOON).await;
    assert!(pool.next(None).is_ok());
    advance(MAX_REST).await;
    assert!(pool.next(None).is_err());
    assert!(pool.facts().failure.is_none(), "no server is at fault");
    sleep(SOON).await;
    assert!(pool.next(None).is_ok());
}

/// The clock of the process stands while the machine is suspended, and that of the world goes on.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_a_new_connection_comes_first() {
    let pool = connected().await;
    for (unseen, stays) in [(MAX_UNSEEN / 2, true), (2 * MAX_UNSEEN, false)] {
        let Clocks(own, world) = Clocks::now();
        lock(&pool.state).runtimes[0].clocks = Clocks(own, world - unseen);
        advance(MIN_REST).await;
        assert_eq!(pool.next(None).is_ok(), stays, "{unseen:?}");
    }
    // A new connection is not given up for the same suspend.
    let pool = connected().await;
    let Clocks(own, world) = Clocks::now();
    lock(&pool.state).runtimes[0].clocks = Clocks(own, world - 2 * MAX_UNSEEN);
    advance(MAX_REST).await;
    assert!(pool.next(None).is_err());
    sleep(SOON).await;
    assert!(pool.next(None).is_ok());
    let before = Clocks::now();
    let [none, second, hour] = [0, 1, 3_600].map(Duration::from_secs);
    for (own, world, unseen) in [(second, second, none), (none, hour, hour), (hour, second, none)] {
        assert_eq!({ before }.unseen(Clocks(before.0 + own, before.1 + world)), unseen);
    }
    assert_eq!({ before }.unseen(Clocks(before.0 + second, before.1 - hour)), none, "set back");
}

/// A pool of two connections to a server that greets, and answers no call.
async fn greeted() -> (Arc<OwnPool>, [Arc<dyn SharedConnection>; 2]) {
    let dialer = Dialer::new(|_, _| ready(Ok(simulated::served(greeting))));
    let connector = Connector { size: 2, ..simulated::connector(CONNECT_TIMEOUT, dialer) };
    let server = connector.server(&simulated::host(1), ServerKind::Plain);
    let pool = Arc::new(OwnPool::new(server.into(), &connector));
    let _ = Arc::clone(&pool).connection_at(Some(0)).await;
    sleep(SOON).await;
    let each = [0, 1].map(|place| pool.ready_at(Some(place)).expect("a connection"));
    (pool, each)
}

/// Sends a command, and drops the call.
async fn send_and_leave(connection: &dyn SharedConnection) {
    let mut reply = connection.send(redis::cmd("GET").arg("a").take());
    assert!(poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx).is_pending())).await);
    sleep(Duration::from_millis(1)).await;
}

/// Returns the kind of the error of a late call that misses its deadline now.
async fn missed(pool: &OwnPool) -> ErrorKind {
    let deadline = Deadline::new(Instant::now() - 2 * SOON, 0);
    advance(SOON).await;
    deadline.missed_error(&pool.facts(), &Stage::Waiting).kind()
}

/// Later calls use the other connection. Calls that still wait for the silent one have to know it,
/// until another call is answered.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up_once_it_is_seen() {
    let (pool, [first, second]) = greeted().await;
    send_and_leave(&*first).await;
    advance(2 * MAX_SILENCE).await;
    pool.facts();
    assert_eq!((first.is_alive(), second.is_alive()), (false, true));
    assert!(pool.facts().failure.is_some());
    // The pause counts from its silence, however late that is seen.
    assert_eq!(lock(&pool.state).backoff.retry_at(Instant::now()), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_greets_stays_silent() {
    let (pool, connections) = greeted().await;
    for connection in &connections {
        send_and_leave(&**connection).await;
    }
    advance(2 * MAX_SILENCE).await;
    for connection in connections {
        connection.record_timeout();
    }
    assert_eq!(missed(&pool).await, ErrorKind::Infrastructure);
    let _ = Arc::clone(&pool).connection_at(None).await;
    assert_eq!(missed(&pool).await, ErrorKind::Infrastructure);
}

/// A server greets each connection, and closes it. A busy process notices that before it sends a
/// call. The first connection may have been idle for long, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_server_that_closes_what_it_has_greeted_is_at_fault() {
    let (pool, _) = over(Dialer::new(|_, _| {
        let (own, other) = duplex(4_096);
        tokio::spawn(timeout(SOON, simulated::serve(other, greeting)));
        ready(Ok(own))
    }));
    let (mut kinds, mut pauses) = (Vec::new(), Vec::new());
    for is_used in [false, false, false, true, false, false] {
        let connection = Arc::clone(&pool).connection_at(None).await.expect("greeted");
        if is_used {
            send_and_leave(&*connection).await;
        }
        sleep(2 * SOON).await;
        kinds.push(missed(&pool).await);
        pauses.push(lock(&pool.state).backoff.retry_at(Instant::now()).is_some());
    }
    let (unknown, at_fault) = (ErrorKind::Saturation, ErrorKind::Infrastructure);
    assert_eq!(kinds, [unknown, at_fault, at_fault, unknown, unknown, at_fault]);
    assert_eq!(pauses, [false, false, true, false, false, false]);
}

/// A server fell silent, and was then reached again. That it was silent says nothing of a call that
/// a busy process sends too late, long after that, or whose reply this process has not read.
#[tokio::test(start_paused = true)]
async fn a_busy_process_does_not_blame_a_server_that_was_silent() {
    let (opened, mut others) = mpsc::unbounded_channel();
    let (pool, _) = over(Dialer::new(move |_, _| {
        let (own, other) = duplex(4_096);
        opened.send(other).expect("awaited");
        ready(Ok(own))
    }));
    let mut connected = async || {
        let mut connection = tokio::spawn(Arc::clone(&pool).connection_at(None));
        let (mut other, mut bytes) = (others.recv().await.expect("a socket"), [0; 64]);
        loop {
            tokio::select! {
                biased;
                connection = &mut connection => {
                    return (connection.expect("no panic").expect("greeted"), other);
                }
                _ = other.read(&mut bytes) => {
                    other.write_all(greeting("HELLO").as_bytes()).await.expect("room");
                }
            }
        }
    };
    let (silent, _other) = connected().await;
    send_and_leave(&*silent).await;
    advance(2 * MAX_SILENCE).await;
    silent.record_timeout();
    let (connection, mut other) = connected().await;
    assert_eq!(missed(&pool).await, ErrorKind::Infrastructure);
    advance(MAX_ERROR_AGE).await;
    assert_eq!(missed(&pool).await, ErrorKind::Saturation);
    send_and_leave(&*connection).await;
    let on_time = Deadline::new(Instant::now() + SOON, 0);
    advance(SOON).await;
    let kind = || on_time.missed_error(&pool.facts(), &Stage::Waiting).kind();
    assert_eq!(kind(), ErrorKind::Infrastructure);
    other.write_all(b"+OK\r\n").await.expect("room");
    assert_eq!(kind(), ErrorKind::Saturation);
}

/// A stream that notes if its pool is locked while it is polled.
struct Noting(DuplexStream, Arc<std::sync::OnceLock<Weak<OwnPool>>>, Arc<AtomicBool>);

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pool = self.1.get().and_then(Weak::upgrade);
        let is_locked = pool.is_some_and(|pool| pool.state.try_lock().is_err());
        self.2.fetch_or(is_locked, Relaxed);
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The stream is the application's, and may take its time, or ask for a connection.
#[tokio::test(start_paused = true)]
async fn no_stream_is_polled_under_the_lock_of_the_pool() {
    let (known, was_locked) = (Arc::default(), Arc::<AtomicBool>::default());
    let (its_pool, noted) = (Arc::clone(&known), Arc::clone(&was_locked));
    let (pool, _) = over(Dialer::new(move |_, _| {
        let stream = simulated::served(greeting);
        ready(Ok(Noting(stream, Arc::clone(&its_pool), Arc::clone(&noted))))
    }));
    known.set(Arc::downgrade(&pool)).expect("it is set once");
    let connection = Arc::clone(&pool).connection_at(None).await.expect("a connection");
    send_and_leave(&*connection).await;
    advance(MAX_SILENCE / 2).await;
    assert_eq!(pool.facts().silent_for.as_millis(), MAX_SILENCE.as_millis() / 2 + 1);
    assert!(!was_locked.load(Relaxed));
}
