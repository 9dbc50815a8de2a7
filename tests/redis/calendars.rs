//! Windows by the calendar of a time zone, on real servers and in memory.

use support::cluster::Cluster;
use support::script::{Call, Entry};
use tower_sluice::algorithm::{Calendar, Weekday};

use super::*;

const SECOND: u64 = 1_000_000;
/// 2026-11-01 00:00 in Berlin.
const NOVEMBER: u64 = 1_793_487_600 * SECOND;
/// 2026-12-01 00:00 in Berlin.
const DECEMBER: u64 = NOVEMBER + 30 * 86_400 * SECOND;

fn in_zone(calendar: Calendar, zone: &str) -> Calendar {
    calendar.time_zone(zone).expect("a zone")
}

fn berlin() -> Calendar {
    in_zone(Calendar::month(), "Europe/Berlin")
}

/// The windows of a process. The twins of `tests/algorithms/twins.rs` decide alike in Redis.
fn in_memory(clock: &Arc<AtomicU64>, window: FixedWindow) -> Memory<FixedWindow> {
    Memory::new("calendar", window).clock(support::clock_at(clock))
}

async fn check(limiter: &impl Limiter) -> Decision {
    limiter.check(&Charge::new("key")).await.unwrap()
}

fn denied(seconds: u64) -> Outcome {
    Outcome::Deny { retry_after: Some(Duration::from_secs(seconds)) }
}

/// A limiter was asked for in github.com/bucket4j/bucket4j/issues/506 whose allowance comes back in
/// the first second of a month, however long the last one was. The limiter is as old as the year.
#[tokio::test]
async fn an_allowance_comes_back_with_the_first_second_of_each_month() {
    let clock = Arc::new(AtomicU64::new(0));
    let limiter = in_memory(&clock, FixedWindow::calendar(2, berlin()));
    // From 2023-12-31 23:59:50 in Berlin on; the clocks change in March and in October.
    let mut begin = 1_704_063_600;
    let lengths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for (month, days) in lengths.into_iter().enumerate() {
        clock.store((begin - 10) * SECOND, Relaxed);
        while check(&limiter).await.is_admitted() {}
        assert_eq!(check(&limiter).await.outcome(), denied(10), "month {month}");
        clock.store(begin * SECOND - 1, Relaxed);
        assert!(!check(&limiter).await.is_admitted());
        clock.store(begin * SECOND, Relaxed);
        let hour: i64 = match month {
            2 => -3_600,
            9 => 3_600,
            _ => 0,
        };
        let length = (days * 86_400_i64 + hour) as u64;
        let first = check(&limiter).await;
        assert_eq!(first.remaining(), Some(1), "month {month}");
        assert_eq!(first.reset_after(), Some(Duration::from_secs(length)), "month {month}");
        let quota = first.quota().expect("a quota");
        assert_eq!(quota, Quota::new(2, Duration::from_secs(length)));
        begin += length;
    }
}

/// On a day of 25 hours, a lock until midnight lasted 24.5 hours in
/// github.com/diegosouzapw/OmniRoute/pull/13671, and one of five hours lasted six in
/// github.com/anthropics/claude-code/issues/10845.
#[tokio::test]
async fn a_refusal_on_a_day_of_23_or_25_hours_ends_at_midnight() {
    let clock = Arc::new(AtomicU64::new(0));
    let new_york = in_zone(Calendar::day(), "America/New_York");
    let limiter = in_memory(&clock, FixedWindow::calendar(1, new_york));
    // 2025-11-02 and 2026-03-08, from half past midnight on.
    for (midnight, hours) in [(1_762_056_000, 25), (1_772_946_000, 23)] {
        clock.store((midnight + 1_800) * SECOND, Relaxed);
        assert!(check(&limiter).await.is_admitted());
        assert_eq!(check(&limiter).await.outcome(), denied(hours * 3_600 - 1_800));
        clock.store((midnight + hours * 3_600) * SECOND - 1, Relaxed);
        assert!(!check(&limiter).await.is_admitted());
        clock.fetch_add(1, Relaxed);
        assert!(check(&limiter).await.is_admitted());
    }
}

/// In github.com/astaxie/TokenHub/issues/335 a day began at 8:00 in Shanghai: at midnight in UTC.
#[tokio::test]
async fn the_morning_counts_for_the_day_of_the_zone() {
    // 2026-09-10 07:47 in Shanghai.
    let clock = Arc::new(AtomicU64::new(1_788_997_620 * SECOND));
    let shanghai = in_zone(Calendar::day(), "Asia/Shanghai");
    let limiter = in_memory(&clock, FixedWindow::calendar(2, shanghai));
    assert!(check(&limiter).await.is_admitted());
    clock.fetch_add(2 * 3_600 * SECOND, Relaxed);
    assert_eq!(check(&limiter).await.remaining(), Some(0));
    assert_eq!(check(&limiter).await.outcome(), denied(14 * 3_600 + 13 * 60));
}

#[tokio::test]
async fn a_wait_is_booked_into_the_next_window_and_no_further() {
    let clock = Arc::new(AtomicU64::new(DECEMBER - 30 * SECOND));
    let year = Duration::from_secs(365 * 86_400);
    let window = FixedWindow::calendar(1, in_zone(Calendar::day(), "Europe/Berlin")).horizon(year);
    let limiter = in_memory(&clock, window);
    assert!(check(&limiter).await.is_admitted());
    let patient = Charge::new("key").max_wait(year);
    let mut booked = limiter.check(&patient).await.unwrap();
    assert_eq!(booked.outcome(), Outcome::Wait(Duration::from_secs(30)));
    assert_eq!(limiter.check(&patient).await.unwrap().outcome(), denied(86_430));
    let reservation = booked.take_reservation().expect("booked");
    clock.store(DECEMBER, Relaxed);
    assert_eq!(check(&limiter).await.outcome(), denied(86_400));
    assert_eq!(limiter.settle(reservation, 0).unwrap().await.unwrap().given_back, 1);
    assert!(check(&limiter).await.is_admitted());
}

/// The edges are around the process's present. The server decides by its own.
#[tokio::test]
async fn the_server_may_be_a_window_away_and_no_more() {
    let (_server, mut connection) = Server::connected().await;
    let window = FixedWindow::calendar(1, berlin());
    let (present, day) = (DECEMBER as i64 + 1, 86_400 * SECOND as i64);
    for (away, is_held) in
        [(-61, false), (-59, false), (-29, true), (0, true), (30, true), (61, true), (63, false)]
    {
        let now = present + away * day;
        let call = Call::new(window, Some(now), &["k", "k", "l"]).present(present);
        let call = call.check(1, 0).check(1, 60_000_000).penalize(1);
        let (_, entries) = call.on(&mut connection).await;
        let code = |entry: &Entry| match entry {
            Entry::Failed(code) => Some(code.clone()),
            Entry::Told { .. } => None,
        };
        let expected = (!is_held).then(|| String::from("CALENDAR"));
        assert!(entries.iter().all(|entry| code(entry) == expected), "{away}: {entries:?}");
        let keys: i64 = cmd("DBSIZE").query_async(&mut connection).await.unwrap();
        assert_eq!(keys > 0, is_held, "{away}");
        let () = cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    }
    // A charge with edges of another present than the other charges of its key fails alone or
    // with them, and admits nothing.
    let call = Call::new(window, Some(present), &["k", "k"]).present(present + 90 * day);
    let (_, entries) =
        call.check(1, 0).check_under(berlin().quota(1), 1, 0).on(&mut connection).await;
    assert!(entries.iter().all(|entry| matches!(entry, Entry::Failed(_))), "{entries:?}");
}

#[tokio::test]
async fn the_server_s_own_clock_decides() {
    let (_server, pool) = Server::pooled();
    let calendars =
        [berlin(), Calendar::week(Weekday::Sunday), Calendar::year(), Calendar::month_from(31)];
    for (place, calendar) in calendars.into_iter().enumerate() {
        let window = FixedWindow::calendar(3, calendar);
        let redis = Redis::new(format!("own-{place}"), window, pool.clone());
        let redis = redis.decision_timeout(PATIENT);
        let memory = Memory::new("own", window);
        let charge = Charge::new("key").cost(2);
        let (one, other) = tokio::join!(redis.check(&charge), memory.check(&charge));
        let [one, other] = [one, other].map(|decision| decision.unwrap().reset_after().unwrap());
        // Unless a window ends between the two.
        assert!(one.abs_diff(other) < PATIENT || one.min(other) > Duration::from_secs(6 * 86_400));
        assert_eq!(redis.peek("key").await.unwrap().remaining(), Some(1));
        assert!(!redis.check(&charge).await.unwrap().is_admitted());
    }
}

#[tokio::test]
async fn a_charge_brings_a_limit_of_the_same_calendar() {
    let clock = Arc::new(AtomicU64::new(NOVEMBER));
    let limiter = in_memory(&clock, FixedWindow::calendar(1, berlin()));
    let gold = Charge::new("key").quota(berlin().quota(3));
    assert!(check(&limiter).await.is_admitted());
    assert_eq!(limiter.check(&gold).await.unwrap().remaining(), Some(1));
    assert_eq!(check(&limiter).await.outcome(), denied(30 * 86_400));
    let mut last = limiter.check(&gold).await.unwrap();
    let reservation = last.take_reservation().expect("taken");
    assert_eq!(limiter.settle(reservation, 0).unwrap().await.unwrap().given_back, 1);
    clock.store(DECEMBER, Relaxed);
    assert_eq!(limiter.check(&gold).await.unwrap().remaining(), Some(2));
    let daily = Charge::new("key").quota(Quota::per_day(3));
    let error = limiter.check(&daily).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
}

/// The units of a key stay when its limit changes from windows of the clock to a calendar.
#[tokio::test]
async fn a_change_to_a_calendar_keeps_what_was_taken() {
    let (_server, pool) = Server::pooled();
    let clock = Arc::new(AtomicU64::new(NOVEMBER + 43_200 * SECOND));
    let of = |window: FixedWindow| by_clock(&clock, &pool, "api", window);
    let plain = of(FixedWindow::new(Quota::per_day(5)));
    assert_eq!(check(&plain).await.remaining(), Some(4));
    let calendar = of(FixedWindow::calendar(5, in_zone(Calendar::day(), "Europe/Berlin")));
    assert_eq!(check(&calendar).await.remaining(), Some(3));
    assert_eq!(check(&plain).await.remaining(), Some(2));
    assert_eq!(check(&of(FixedWindow::calendar(5, berlin()))).await.remaining(), Some(1));
}

#[tokio::test]
async fn with_other_limits_all_or_nothing_on_one_server_and_on_a_cluster() {
    let (server, cluster) = (Server::start(), Cluster::start().await);
    for pool in [server.pool(), Pool::connect(&cluster.url()).expect("a cluster")] {
        let month = FixedWindow::calendar(3, berlin());
        let rate = TokenBucket::new(Quota::new(10, HOUR));
        let tuple = Redis::new("tuple", (rate, month), pool.clone()).decision_timeout(PATIENT);
        for left in [2, 1, 0] {
            assert_eq!(tuple.check(&Charge::new("a")).await.unwrap().remaining(), Some(left));
        }
        let refused = tuple.check(&Charge::new("a")).await.unwrap();
        assert_eq!((refused.is_admitted(), refused.tightest().unwrap().name()), (false, "tuple-2"));
        let reset = refused.retry_after().expect("the end of the month");
        assert!(reset <= Duration::from_secs(31 * 86_400 + 3_600));

        let user = Redis::new("user", month, pool.clone()).decision_timeout(PATIENT);
        let all = Redis::new("all", rate, pool.clone()).decision_timeout(PATIENT);
        let members = (user.clone(), all.clone());
        let both = AllAtOnce::new(members, |charge| [charge.clone(), Charge::new("all").cost(2)]);
        for _ in 0..3 {
            assert!(both.check(&Charge::new("a")).await.unwrap().is_admitted());
        }
        let refused = both.check(&Charge::new("a")).await.unwrap();
        assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("user")));
        eventually("the units of the other", async || {
            all.peek("all").await.unwrap().remaining() == Some(4)
        })
        .await;
        assert_eq!(user.peek("a").await.unwrap().remaining(), Some(0));
    }
}
