//! Finds the primary that sentinels name, and follows it when it changes.
//!
//! One task of the pool watches all sentinels. When they name another primary, the pool leaves the
//! old one at once, even if the old one still considers itself primary. The pool uses a new
//! connection only if its server says that it is a primary.

mod reports;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::reports::{Reports, SentinelReport};
use self::watch::Watch;
use super::address::Host;
use super::connection::Connection;
use super::error::{Error, ErrorKind};
use super::event::Event;
use super::greeting::ServerKind;
use super::lock::lock;
use super::on_time::unless_busy;
use super::server::{ConnectFailure, Connector, Server};
use super::times::{HEARTBEAT, MAX_SILENCE, WATCHER_IS_GONE};

/// Sentinels, and the primary that they name.
pub(super) struct Sentinels {
    /// Settings for connecting to a primary.
    connector: Connector,
    servers: Vec<Server>,
    service_name: Arc<str>,
    reports: Mutex<Reports>,
    /// True if every sentinel is unreachable, or does not know the service.
    name_none: AtomicBool,
    primary: channel::Sender<Option<Primary>>,
    /// The number of changes of the primary that sentinels reported.
    switches: AtomicU64,
    /// Notified to ask all sentinels at once.
    doubts: Arc<Notify>,
    start: Instant,
    /// The last sign of the watching task that it runs, in ms since `start`. 0: never.
    heartbeat: AtomicU64,
    /// The watching task. It ends when another one replaces it, and with the pool.
    watcher: Mutex<JoinSet<Option<()>>>,
}

/// The server that is the primary.
#[derive(Clone)]
struct Primary {
    host: Host,
    server: Server,
}

impl Sentinels {
    /// Makes it without connecting yet. `asking` is for the sentinels, and `connector` for the
    /// primary.
    pub(super) fn new(
        sentinels: &[Host],
        asking: &Connector,
        service_name: &str,
        connector: &Connector,
    ) -> Self {
        let start = Instant::now();
        let servers = sentinels.iter().map(|host| asking.server(host, ServerKind::Sentinel));
        let servers: Vec<_> = servers.collect();
        Self {
            connector: connector.clone(),
            reports: Mutex::new(Reports::new(servers.len())),
            servers,
            name_none: AtomicBool::new(false),
            service_name: service_name.into(),
            primary: channel::Sender::new(None),
            switches: AtomicU64::new(0),
            doubts: Arc::default(),
            start,
            heartbeat: AtomicU64::new(0),
            watcher: Mutex::default(),
        }
    }

    /// The name of the primary in errors.
    pub(super) fn address(&self) -> String {
        match &*self.primary.borrow() {
            Some(primary) => primary.server.address(),
            None => format!("the primary of {:?}", self.service_name),
        }
    }

    /// Returns why no primary is known, if no sentinel names one. The last attempt to connect may
    /// have failed for another reason, and the next one is made after a pause.
    pub(super) fn unnamed(&self) -> Option<Error> {
        let is_unnamed = self.name_none.load(Relaxed) && self.primary.borrow().is_none();
        is_unnamed.then(|| lock(&self.reports).error(&self.service_name))
    }

    /// Returns the number of times that a sentinel named another primary, or that the user changed.
    /// Changes that this process found itself do not count. Otherwise it would connect alternately
    /// to two servers that are not primaries, without a pause.
    pub(super) fn switches(&self) -> u64 {
        self.switches.load(Relaxed) + self.connector.login.changes()
    }

    /// Starts the task that watches the sentinels, unless it already runs.
    pub(super) fn keep_watching(self: &Arc<Self>, runtime: &Handle) {
        let now = self.now();
        let last = self.heartbeat.load(Relaxed);
        if last > 0 && now.saturating_sub(last) < WATCHER_IS_GONE.as_millis() as u64 {
            return;
        }
        if self.heartbeat.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            let mut watcher = JoinSet::new();
            watcher.spawn_on(watch_all(Arc::downgrade(self)), runtime);
            *lock(&self.watcher) = watcher;
        }
    }

    /// Returns the time since `start` in ms, at least 1.
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + 1
    }

    /// Connects to the primary. The wait for its name and the attempt to connect may each take the
    /// connect timeout. So each has its own timers, which show if this process is busy.
    pub(super) async fn connect(&self) -> Result<Connection, ConnectFailure> {
        let mut changes = self.primary.subscribe();
        loop {
            let end = Instant::now() + self.connector.timeout;
            let primary = match unless_busy(end, self.wait_for_primary(&mut changes, end)).await {
                Ok(primary) => primary,
                Err(error) => return Err(ConnectFailure { address: self.address(), cause: error }),
            };
            let end = Instant::now() + self.connector.timeout;
            let connected = select! {
                biased;
                // The sentinels now name another primary.
                _ = changes.changed() => continue,
                connected = unless_busy(end, primary.server.connect()) => connected,
            };
            let error = match connected {
                Ok(connection) if connection.is_primary => {
                    let mut reports = lock(&self.reports);
                    // A switch that was just reported is newer than the followed primary.
                    if changes.has_changed().is_ok_and(|changed| changed) {
                        continue;
                    }
                    reports.follow(&primary.host);
                    return Ok(connection);
                }
                Ok(_) => {
                    let mut reports = lock(&self.reports);
                    reports.refute(&primary.host);
                    let next = self.choose(&reports);
                    drop(reports);
                    self.show(next);
                    let message = "the server that the sentinels name is not a primary";
                    Error::new(ErrorKind::Infrastructure, message)
                }
                // It may be a primary that has just died.
                Err(error) => error,
            };
            self.doubts.notify_waiters();
            return Err(ConnectFailure { address: primary.server.address(), cause: error });
        }
    }

    async fn wait_for_primary(
        &self,
        changes: &mut channel::Receiver<Option<Primary>>,
        deadline: Instant,
    ) -> Result<Primary, Error> {
        let first_choice = deadline.min(Instant::now() + MAX_SILENCE);
        if let Some(primary) = self.known_primary(changes, first_choice).await {
            return Ok(primary);
        }
        // A sentinel is silent. The other reports must suffice.
        self.choose(&lock(&self.reports));
        let known = self.known_primary(changes, deadline).await;
        known.ok_or_else(|| lock(&self.reports).error(&self.service_name))
    }

    /// Waits for a primary until `deadline`. Ends early if no sentinel names one.
    async fn known_primary(
        &self,
        changes: &mut channel::Receiver<Option<Primary>>,
        deadline: Instant,
    ) -> Option<Primary> {
        let is_decided =
            |primary: &Option<Primary>| primary.is_some() || self.name_none.load(Relaxed);
        timeout_at(deadline, changes.wait_for(is_decided)).await.ok()?.ok()?.clone()
    }

    /// Records the report of a sentinel.
    fn record(&self, sentinel: usize, report: SentinelReport) {
        let mut reports = lock(&self.reports);
        reports.record(sentinel, report);
        let may_choose = self.primary.borrow().is_some() || reports.are_complete();
        let next = if may_choose { self.choose(&reports) } else { None };
        if next.is_some() {
            self.switches.fetch_add(1, Relaxed);
        }
        self.name_none.store(reports.name_none(), Relaxed);
        if self.primary.borrow().is_none() {
            // Wakes callers that wait for a primary: they get an error if no sentinel names one.
            self.primary.send_modify(|_| ());
        }
        drop(reports);
        self.show(next);
    }

    /// Shows a choice to a subscriber of events, which may take its time or ask for a connection:
    /// so no lock is held.
    fn show(&self, choice: Option<(String, bool)>) {
        if let Some((address, true)) = choice {
            let service = &self.service_name;
            self.connector.listener.tell(&Event::PrimaryChanged { service, address: &address });
        }
    }

    /// Follows the primary that the reports name, and leaves the old one. Returns the address of
    /// the new one, and true if there was an old one. `None` if the primary stays.
    fn choose(&self, reports: &Reports) -> Option<(String, bool)> {
        let host = reports.choose()?;
        let current = self.primary.borrow().clone();
        if current.as_ref().is_some_and(|current| current.host == host) {
            return None;
        }
        let server = self.connector.server(&host, ServerKind::Primary);
        let address = server.address();
        self.primary.send_replace(Some(Primary { host, server }));
        if let Some(old) = &current {
            old.server.health.leave();
        }
        Some((address, current.is_some()))
    }
}

/// Watches all sentinels. `None`: the pool is gone.
async fn watch_all(sentinels: Weak<Sentinels>) -> Option<()> {
    loop {
        let mut tasks = JoinSet::new();
        let all = sentinels.upgrade()?;
        for (number, server) in all.servers.iter().cloned().enumerate() {
            let (service_name, doubts) = (Arc::clone(&all.service_name), Arc::clone(&all.doubts));
            let sentinels = Weak::clone(&sentinels);
            tasks.spawn(Watch { number, server, service_name, sentinels, doubts }.run());
        }
        drop(all);
        // Only a panic, for example in a resolver, ends one of them early. All are restarted soon,
        // since even an idle process follows its primary.
        while timeout(HEARTBEAT, tasks.join_next()).await.is_err() {
            let all = sentinels.upgrade()?;
            all.heartbeat.store(all.now(), Relaxed);
        }
        sleep(HEARTBEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;
    use std::time::Duration;

    use tokio::io::DuplexStream;
    use tokio::time::advance;

    use super::super::dialer::Dialer;
    use super::super::simulated;
    use super::*;

    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// The sentinels name the primary shortly before the connect timeout, and no server answers.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_busy_once_it_knows_the_primary_blames_no_server() {
        let host = simulated::host(1);
        for (is_busy, kind) in [(false, ErrorKind::Infrastructure), (true, ErrorKind::Saturation)] {
            let dialer = Dialer::new(|_, _| pending::<io::Result<DuplexStream>>());
            let connector = simulated::connector(CONNECT_TIMEOUT, dialer);
            let hosts = std::slice::from_ref(&host);
            let sentinels = Arc::new(Sentinels::new(hosts, &connector, "main", &connector));
            let connecting = Arc::clone(&sentinels);
            let attempt = tokio::spawn(async move { connecting.connect().await.err() });
            sleep(CONNECT_TIMEOUT * 9 / 10).await;
            let server = sentinels.connector.server(&host, ServerKind::Primary);
            sentinels.primary.send_replace(Some(Primary { host: host.clone(), server }));
            let named = Instant::now();
            while named.elapsed() < CONNECT_TIMEOUT {
                if is_busy {
                    advance(CONNECT_TIMEOUT / 5).await;
                }
                sleep(Duration::from_millis(1)).await;
            }
            let failure = attempt.await.expect("no panic").expect("no connection");
            assert_eq!(failure.cause.kind(), kind, "{:?}", failure.cause);
        }
    }
}
