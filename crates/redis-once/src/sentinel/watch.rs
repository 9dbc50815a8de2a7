//! Watches one sentinel over one connection. A task asks it at least once a second, and at once
//! when the sentinel publishes a change.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{PushInfo, PushKind, RedisResult, Value, cmd, from_redis_value};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::super::address::Host;
use super::super::backoff::{Backoff, with_patience};
use super::super::error::{Error, ErrorKind};
use super::super::error_reply;
use super::super::on_time::unless_busy;
use super::super::server::Server;
use super::super::socket::Socket;
use super::super::times::{ANSWER_TIMEOUT, ASK_AT_MOST_EVERY, ASK_EVERY, MAX_SILENCE};
use super::Sentinels;
use super::reports::SentinelReport;

/// The channels on which a sentinel publishes another primary, in the order of a failover.
const CHANNELS: [&str; 3] = ["+promoted-slave", "+switch-master", "+config-update-from"];

/// A connection to a sentinel, and the notice that it has published a change.
type Connected = Result<(Socket, Arc<Notify>), Error>;

/// The task that watches one sentinel.
pub(super) struct Watch {
    pub(super) number: usize,
    pub(super) server: Server,
    pub(super) service_name: Arc<str>,
    pub(super) sentinels: Weak<Sentinels>,
    /// Notified to ask all sentinels at once.
    pub(super) doubts: Arc<Notify>,
}

impl Watch {
    /// Reports the answers of the sentinel until the pool is gone.
    pub(super) async fn run(self) -> Option<()> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(later) = backoff.retry_at(Instant::now()) {
                sleep_until(later).await;
            }
            backoff.record_attempt(Instant::now());
            let begun = Instant::now();
            let end = begun + self.server.connector.timeout;
            let overdue = || _ = self.report(SentinelReport::Unreachable(no_answer()));
            let connecting = with_patience(self.connect(end), backoff.patience(), overdue);
            let connected = unless_busy(end, connecting).await;
            let error = match connected {
                Ok((connection, news)) => {
                    backoff.record_end(begun, Some(Ok(())));
                    let error = self.ask_again_and_again(connection, &news).await?;
                    backoff.record_unusable(Instant::now(), error.clone());
                    error
                }
                Err(error) => {
                    backoff.record_end(begun, Some(Err(error.clone())));
                    error
                }
            };
            self.report(SentinelReport::Unreachable(error))?;
        }
    }

    /// Connects. If an attempt takes long, another one starts beside it, as for servers.
    async fn connect(&self, end: Instant) -> Connected {
        let another = async {
            sleep(MAX_SILENCE).await;
            self.connect_once(end).await
        };
        select! {
            biased;
            connected = self.connect_once(end) => connected,
            connected = another => connected,
        }
    }

    /// Connects to the sentinel and subscribes. The notice fires when the sentinel publishes a
    /// change, or when the connection ends.
    async fn connect_once(&self, end: Instant) -> Connected {
        let news = Arc::new(Notify::new());
        let (notice, service_name) = (Arc::clone(&news), Arc::clone(&self.service_name));
        let on_push = move |push| {
            if concerns(&push, &service_name) {
                notice.notify_one();
            }
        };
        let closings = &self.server.health.closings;
        let begun = closings.count();
        let (mut socket, _) = self.server.open(on_push).await?;
        // A user without the permission to subscribe learns of a switch at the next question.
        let end = end.min(Instant::now() + ANSWER_TIMEOUT);
        let subscribed = timeout_at(end, socket.connection.subscribe(&CHANNELS)).await;
        match subscribed.map(|outcome| closings.record("SUBSCRIBE", begun, outcome)) {
            Ok(Err(refused)) if refused.code().is_none() => {
                Err(error_reply::from_redis_error(refused, []))
            }
            _ => Ok((socket, news)),
        }
    }

    /// Asks until an answer is missing, and returns why. `None`: the pool is gone.
    async fn ask_again_and_again(&self, mut socket: Socket, news: &Notify) -> Option<Error> {
        let closings = &self.server.health.closings;
        let begun = closings.count();
        loop {
            let end = Instant::now() + ANSWER_TIMEOUT;
            let asking = async {
                let answer = timeout_at(end, self.ask(&mut socket.connection)).await;
                let answer = closings.record("SENTINEL", begun, answer.map_err(|_| no_answer())?);
                answer.map_err(|error| error_reply::from_redis_error(error, []))
            };
            match unless_busy(end, asking).await {
                Ok(report) => {
                    socket.record_reply();
                    self.report(report)?;
                }
                Err(error) => return Some(error),
            }
            sleep(ASK_AT_MOST_EVERY).await;
            select! {
                biased;
                () = news.notified() => {}
                () = self.doubts.notified() => {}
                () = sleep(ASK_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            }
        }
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> RedisResult<SentinelReport> {
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.service_name);
        let answer = connection.req_packed_command(&question).await?.extract_error()?;
        let Some((name, port)) = from_redis_value::<Option<(String, u16)>>(answer)? else {
            return Ok(SentinelReport::UnknownService);
        };
        let mut question = cmd("SENTINEL");
        question.arg("MASTER").arg(&*self.service_name);
        let answer = connection.req_packed_command(&question).await;
        let epoch = match answer.and_then(Value::extract_error) {
            Ok(fields) => epoch(fields),
            // The user may have no permission to ask for the epoch.
            Err(refused) if refused.code().is_some() => 0,
            Err(error) => return Err(error),
        };
        Ok(SentinelReport::Primary { host: Host { name, port }, epoch })
    }

    /// Reports to the pool. `None`: the pool is gone.
    fn report(&self, report: SentinelReport) -> Option<()> {
        self.sentinels.upgrade().map(|sentinels| sentinels.record(self.number, report))
    }
}

/// A panic (in a resolver, say) is a configuration error, so that no fallback admits.
impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "a panic ended the attempt to connect to a sentinel";
            self.report(SentinelReport::Unreachable(Error::new(ErrorKind::Configuration, message)));
        }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Infrastructure, "the sentinel did not answer in time")
}

/// Returns true if a message is about the service, or is the last one of a connection.
fn concerns(push: &PushInfo, service_name: &str) -> bool {
    match &push.kind {
        PushKind::Disconnection => true,
        PushKind::Message => push.data.last().is_none_or(|text| match text {
            Value::BulkString(text) => {
                text.split(|byte| *byte == b' ').any(|word| word == service_name.as_bytes())
            }
            _ => true,
        }),
        _ => false,
    }
}

/// Returns the number of the last switch, from the answer to `SENTINEL MASTER`; 0 without one.
fn epoch(fields: Value) -> u64 {
    let fields: HashMap<String, String> = from_redis_value(fields).unwrap_or_default();
    fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::time::advance;

    use super::super::super::dialer::Dialer;
    use super::super::super::lock::lock;
    use super::super::super::simulated;
    use super::*;

    /// Greets a client, and then answers no questions.
    fn reply(word: &str) -> &'static str {
        match word {
            "HELLO" => "%1\r\n+mode\r\n+sentinel\r\n",
            "SUBSCRIBE" => "-NOPERM no\r\n",
            _ => "",
        }
    }

    /// The sentinel may have answered while this process stood still.
    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_a_busy_process_reads_late_is_not_at_fault() {
        let host = simulated::host(1);
        for (is_busy, kind) in [(false, ErrorKind::Infrastructure), (true, ErrorKind::Saturation)] {
            let dialer = Dialer::new(|_, _| async { Ok(simulated::served(reply)) });
            let connector = simulated::connector(ANSWER_TIMEOUT, dialer);
            let hosts = std::slice::from_ref(&host);
            let sentinels = Arc::new(Sentinels::new(hosts, &connector, "main", &connector));
            sentinels.keep_watching(&Handle::current());
            sleep(ASK_AT_MOST_EVERY).await;
            let asked = Instant::now();
            while asked.elapsed() < ANSWER_TIMEOUT {
                if is_busy {
                    advance(ANSWER_TIMEOUT / 5).await;
                }
                sleep(Duration::from_millis(1)).await;
            }
            let error = lock(&sentinels.reports).error("main");
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
