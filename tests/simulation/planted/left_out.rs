//! Mends that no world can show undone, and why.

/// The commits, and why their mend is not undone.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    ("c509707 cluster: leave no server that another runtime reaches", TWO_RUNTIMES),
    ("c9398a6 redis: give each runtime connections of its own", TWO_RUNTIMES),
    ("bb09386 grace_period: see a thread that has just gone on", SEVERAL_THREADS),
    ("41f6655 grace_period: a paused thread opens no gate", SEVERAL_THREADS),
    ("01039e7 memory: read the clock under the lock", SEVERAL_THREADS),
    ("c2b8d22 line: drop and clone wakers without the lock", SEVERAL_THREADS),
    ("4662512 redis: a reply ends a silence that begins at that moment", SEVERAL_THREADS),
    ("46ed495 batcher: keep the flag while a request waits", SEVERAL_THREADS),
    ("ec1edbc redis: refuse rediss:// without a crypto provider", TLS),
    ("b0df3ff server: find out about TLS in the time to connect", TLS),
    ("4153476 redis: replace the connections of a given pool", GIVEN_CONNECTIONS),
    ("b2a3305 redis: the own timer of a client opens no gate", GIVEN_CONNECTIONS),
    ("caaf68e redis: classify an error reply however it is worded", OTHER_SERVERS),
    ("a17c63d sentinel: a server without a role is a wrong setting", OTHER_SERVERS),
    ("7df37d7 cluster: report a refused ASKING", RIGHTS),
    ("d68ef92 redis: an odd number in a reply fails its own charge", OTHER_SERVERS),
    ("ba71bdf redis: one worker task owns the queue", PLACE_IS_GONE),
    ("5684ced redis: decide over a cluster of the crate's own", PLACE_IS_GONE),
    ("6060f63 redisson: a release ends whatever a server answers", OTHER_SERVERS),
    ("aa393ef admission: refuse a longer wait than was asked for", OWN_LIMITER),
    ("d88f90f acquire: ask when first polled", OWN_LIMITER),
    ("6f83621 settle: refuse to take where the limiter cannot", OWN_LIMITER),
    ("7c5c1a7 within: let a busy runtime catch up before the backstop fails", OWN_LIMITER),
    ("6c4071d sliding_log: a partial refund removes what has expired", ARITHMETIC),
    ("62b8b11 several: restore what a booked wait found", ARITHMETIC),
    ("812db53 sliding_counter: restore only what nobody was booked into", ARITHMETIC),
    ("5bc2d6e policy: let the longest wait say if it is reserved", ARITHMETIC),
    ("18d8fc5 policy: give all policies of a process one clock", ARITHMETIC),
    ("96ff34f settlement: wake before observers are called", OBSERVERS),
    ("5186a99 line: wake one waiter for a change, not all behind it", WORK_ALONE),
    ("5f0b75f line: look for past slots once all of them are past", WORK_ALONE),
    ("1641a11 breaker: keep the failure itself as the cause", WORK_ALONE),
    ("a013ae8 breaker: count calls that are polled", WORK_ALONE),
    ("a9861b7 reservation: keep its keys over a failed settlement", WORK_ALONE),
    ("622bfb6 deny_cache: replace the oldest, and hold max_keys exactly", WORK_ALONE),
    ("bbbb6f7 policy: drop switches that nobody uses", WORK_ALONE),
    ("2fb8778 policy: ask many policies in few calls", WORK_ALONE),
    ("6db7556 redis: one bound on all that waits of a combination", WORK_ALONE),
    ("fb47ed9 cluster: say each slot that has moved", WORK_ALONE),
];

const TWO_RUNTIMES: &str = "a world has one runtime";
const SEVERAL_THREADS: &str = "a world has one thread";
const TLS: &str = "a simulated socket has no TLS";
const GIVEN_CONNECTIONS: &str = "a world opens the connections of the crate's own pool";
const OBSERVERS: &str = "a world installs no recorder and no subscriber, which could panic";
const OTHER_SERVERS: &str = "simulated servers answer as Redis 7.0, and correctly";
const RIGHTS: &str = "simulated servers have one user with all rights";
const PLACE_IS_GONE: &str = "the code was replaced since, and what it did has no place";
const OWN_LIMITER: &str = "it needs a limiter of the application's own that breaks its contract";
const ARITHMETIC: &str = "the arithmetic has twins and an oracle of its own";
const WORK_ALONE: &str = "it costs work, memory or a count, and no promise of a decision";
