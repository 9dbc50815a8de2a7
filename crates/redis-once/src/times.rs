//! Every duration of connections, each with its reason. `on_time.rs` has its own durations, for
//! delays of this process.

use std::time::Duration;

pub(super) use super::on_time::MAX_TIMEOUT;

// ---- A connection ----

/// The default of the longest time of an attempt to connect. It is documented.
pub(super) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time that `Pool::ready` waits for connections. It is documented.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(1);

/// The longest time that a call waits for a connection. It is documented. It is also the idle time
/// of a bb8 pool's connection.
pub(super) const MAX_CONNECTION_WAIT: Duration = Duration::from_millis(500);

/// The longest silence of a connection. It is longer than the pauses of a healthy server, such as a
/// fork or a slow command. It is short enough to leave an address that never answers.
///
/// It has the same meaning in four places: after it, nothing waits for the silent server any more.
///
/// - A silent connection is given up.
/// - A second attempt to connect starts beside the first: a network that lost the first may deliver
///   the second, long before the first times out.
/// - The first choice of a primary no longer waits for silent sentinels.
/// - In a cluster, a refund without a reply no longer blocks its hash slot.
pub const MAX_SILENCE: Duration = Duration::from_millis(300);

/// The step in which the silence over a connection of the application counts.
pub(super) const SILENCE_STEP: Duration = Duration::from_millis(10);

/// The idle time after which the system probes a connection, so that firewalls do not forget it.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);

/// The time without a call after which the pool looks for what happened meanwhile. A busier runtime
/// reads its sockets all the time.
pub(super) const MIN_REST: Duration = Duration::from_millis(1);

/// The time without a call after which a new connection comes first. A firewall may have forgotten
/// the old one, in spite of [`KEEPALIVE`].
pub(super) const MAX_REST: Duration = Duration::from_secs(120);

/// The time that passed for the world alone, as while a machine is suspended, after which a new
/// connection comes first. It is longer than a correction of the clock.
pub(super) const MAX_UNSEEN: Duration = Duration::from_secs(10);

// ---- Attempts to connect ----

/// The age from which an attempt blames its server: a call that waits for it learns that in time.
pub(crate) const OVERDUE_AFTER: Duration = Duration::from_millis(400);

/// The same after a refusal by the server, at least.
pub(crate) const HANGS_AFTER: Duration = Duration::from_millis(150);

/// The longest pause after the first failure. The second failure doubles it. Together with the
/// longest silence of a connection, it is below half a second.
pub(super) const MAX_FIRST_PAUSE: Duration = Duration::from_millis(150);

/// The longest pause, so that the pool sees the new state of a server within half a second.
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(300);

/// The pause after an attempt to connect that ended with its runtime, or that load ended, and after
/// connections that were closed before a call.
pub(super) const INTERRUPTED_PAUSE: Duration = Duration::from_millis(10);

/// The time after which a failure no longer makes pauses longer.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(2);

/// The age up to which a failed attempt to connect still counts in a busy process. The pauses
/// between attempts are shorter.
pub(super) const MAX_ERROR_AGE: Duration = Duration::from_secs(1);

/// The time after which a TLS handshake is slow: a probe then checks if the server has TLS. It is
/// at most a third of the connect timeout, so that the rest suffices for the probe.
pub(super) const SLOW_HANDSHAKE: Duration = Duration::from_millis(250);

/// The time for which an address that did not greet comes after the others of its name.
pub(super) const AVOID_SILENT: Duration = Duration::from_secs(10);

/// The head start of those others, as RFC 8305 recommends.
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// The longest time for a probe, since a server that answered the first attempt answers soon.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(250);

/// The shortest time for which a server closes each connection at the same command, before that is
/// a refusal. A network that cuts connections at random lets one answer pass meanwhile.
pub(crate) const MIN_REFUSAL: Duration = Duration::from_secs(3);

// ---- A cluster ----

/// The first pause before an item is sent again to a cluster that has rejected it.
pub(super) const FIRST_RESEND_PAUSE: Duration = Duration::from_millis(1);

/// The longest such pause: a key moves within a few ms.
pub(super) const MAX_RESEND_PAUSE: Duration = Duration::from_millis(8);

/// The time after which another server is also asked for the slot map.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// The longest pause after the slot map was read. Half of it is random.
pub(super) const MAX_MAP_PAUSE: Duration = Duration::from_millis(400);

/// The interval at which a waiting call checks if its server is away. If so, it reads the slot map
/// again. It is also the longest pause before the map is read for a slot whose new server has no
/// known address.
pub(super) const REFRESH_CHECK: Duration = Duration::from_millis(50);

/// The time for which a server without slots stays after a redirect to it, since slots move to it.
pub(super) const KEEP_AFTER_REDIRECT: Duration = Duration::from_secs(60);

// ---- Sentinels ----

/// The average pause between two questions to a sentinel that publishes no change. The longest
/// pause is a quarter longer, so the pool follows a wrong answer for less than a second.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(700);

/// The shortest pause between two questions: a failover has several steps.
pub(super) const ASK_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// The time that a sentinel has for an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The interval of signs that the task that watches the sentinels runs.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(500);

/// The time without such a sign after which another task replaces it. Its runtime has ended, or
/// does not poll it.
pub(super) const WATCHER_IS_GONE: Duration = HEARTBEAT.saturating_mul(6);
