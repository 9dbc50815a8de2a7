//! Callers that wait for a refill are answered, whatever becomes of the refill.

use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::recorder::Recorder;

use super::*;

#[tokio::test(start_paused = true)]
async fn many_tasks_share_a_refill() {
    let (limiter, inner, memory) = hot(1_000_000).await;
    inner.close();
    let mut tasks = JoinSet::new();
    for _ in 0..250 {
        let limiter = limiter.clone();
        tasks.spawn(async move { check(&limiter, "hot").await.is_admitted() });
    }
    // Every task waits, and so do the refills: three, since two are too few for all.
    sleep(Duration::from_millis(1)).await;
    assert_eq!(inner.costs(), [100; 3]);
    inner.open();
    assert!(tasks.join_all().await.into_iter().all(|admitted| admitted));
    sleep(SECOND).await;
    assert_eq!(inner.costs(), [100; 3]);
    assert_eq!(taken(&memory, 1_000_000, "hot").await, WARM + 250);
}

/// A refill starts while there are still units, so nobody waits for it.
#[tokio::test(start_paused = true)]
async fn a_steady_caller_never_waits() {
    let (limiter, inner, _) = hot(1_000_000).await;
    let _ = check(&limiter, "hot").await;
    for _ in 0..5_000 {
        let _ = tokio_test::assert_ready!(task::spawn(limiter.check(&Charge::new("hot"))).poll())
            .unwrap();
        yield_now().await;
    }
    assert!(inner.costs().len() < 90, "{:?}", inner.costs());
}

/// Its own call says why there is no answer, and is not ended by a timer outside.
#[tokio::test(start_paused = true)]
async fn who_has_less_time_than_a_refill_asks_alone() {
    let (limiter, inner, _) = hot(1_000_000).await;
    inner.close();
    let within = |millis| limiter.clone().timeout(Duration::from_millis(millis));
    let mut orders = task::spawn(within(500).check(&Charge::new("hot")));
    let mut hasty = task::spawn(within(499).check(&Charge::new("hot")));
    let mut waits = task::spawn(within(500).check(&Charge::new("hot")));
    let mut patient = task::spawn(limiter.check(&Charge::new("hot")));
    for check in [&mut orders, &mut hasty, &mut waits] {
        assert_pending!(check.poll());
        yield_now().await;
    }
    assert_pending!(patient.poll());
    yield_now().await;
    assert_eq!(inner.costs(), [100, 1]);
    inner.open();
    for check in [orders, hasty, waits] {
        assert!(check.await.unwrap().is_admitted());
    }
    assert!(patient.await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_takes_nothing_and_keeps_nobody_waiting() {
    let (limiter, inner, memory) = hot(1_000_000).await;
    inner.close();
    let mut waiters: Vec<_> =
        (0..90).map(|_| task::spawn(limiter.check(&Charge::new("hot")))).collect();
    waiters.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    // The one that started the refill is among those that leave.
    for _ in 0..40 {
        drop(waiters.remove(0));
    }
    inner.open();
    sleep(Duration::from_millis(1)).await;
    // Granted, and not heard of.
    for _ in 0..20 {
        drop(waiters.remove(0));
    }
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_admitted());
    }
    // The units of those that have left are still there.
    for _ in 0..70 {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    assert_eq!(inner.costs(), [100]);
    sleep(SECOND).await;
    assert_eq!(taken(&memory, 1_000_000, "hot").await, WARM + 30 + 70);
}

/// Random histories: whatever is dropped at whatever point, in the end exactly what was admitted
/// is taken.
#[tokio::test(start_paused = true)]
async fn cancelled_anywhere_every_unit_is_accounted_for() {
    for history in 1..=60 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ history);
        let (limiter, inner, memory) = leased(1_000_000);
        let mut admitted = 0;
        for _ in 0..dice.below(300) {
            admitted += u64::from(check(&limiter, "hot").await.is_admitted());
        }
        let mut waiting = Vec::new();
        for _ in 0..400 {
            match dice.below(12) {
                0 => inner.close(),
                1 => inner.let_through(dice.below(3)),
                2 => inner.open(),
                3 => yield_now().await,
                4 => sleep(Duration::from_millis(dice.pick(&[1, 30, 99, 100, 101]))).await,
                5 if !waiting.is_empty() => drop(waiting.swap_remove(dice.below(waiting.len()))),
                6 => limiter.end_leases(),
                7 => inner.trouble(|cost| {
                    (cost > 1).then(|| Error::new(ErrorKind::Infrastructure, "away"))
                }),
                8 => inner.no_trouble(),
                _ => {
                    let cost = dice.pick(&[1, 1, 1, 2, 5, 40]);
                    let check = limiter.check(&Charge::new("hot").cost(cost));
                    waiting.push((cost, task::spawn(check)));
                }
            }
            waiting.retain_mut(|(cost, check): &mut (u64, task::Spawn<_>)| match check.poll() {
                std::task::Poll::Ready(answer) => {
                    admitted += answer.map_or(0, |answer| u64::from(answer.is_admitted()) * *cost);
                    false
                }
                std::task::Poll::Pending => true,
            });
        }
        drop(waiting);
        inner.open();
        sleep(SECOND).await;
        assert_eq!(taken(&memory, 1_000_000, "hot").await, admitted, "history {history}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_goes_to_all_that_wait_and_valid_units_are_spent_on() {
    let (limiter, inner, _) = hot(1_000_000).await;
    assert!(check(&limiter, "hot").await.is_admitted());
    assert_eq!(inner.costs(), [100]);
    inner.trouble(|_| Some(Error::new(ErrorKind::Infrastructure, "away")));
    for _ in 0..99 {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    let mut waiters: Vec<_> =
        (0..20).map(|_| task::spawn(limiter.check(&Charge::new("hot")))).collect();
    waiters.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap_err().kind(), ErrorKind::Infrastructure);
    }
    // One prefetch, which nobody waited for, and one refill at most.
    assert!(inner.costs().len() <= 3, "{:?}", inner.costs());
    inner.no_trouble();
    assert!(check(&limiter, "hot").await.is_admitted());
}

/// Another process takes nearly all that is left while a refill is on its way.
#[tokio::test(start_paused = true)]
async fn a_refused_refill_refuses_nobody_who_would_be_admitted_alone() {
    let (limiter, inner, memory) = hot(2_000).await;
    inner.close();
    let mut waiters: Vec<_> =
        (0..50).map(|_| task::spawn(limiter.check(&Charge::new("hot")))).collect();
    waiters.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    let others = memory.check(&Charge::new("hot").cost(2_000 - WARM - 30)).await.unwrap();
    assert!(others.is_admitted());
    inner.open();
    let mut admitted = 0;
    for waiter in waiters {
        admitted += u64::from(waiter.await.unwrap().is_admitted());
    }
    assert_eq!(admitted, 30);
}

/// The store answered the refill, and had too little time for the charge.
#[tokio::test(start_paused = true)]
async fn a_charge_without_time_after_a_refused_refill_blames_no_store() {
    let (leased, inner, memory) = hot(2_000).await;
    let limiter = leased.timeout(Duration::from_millis(20));
    for (is_refused, kind) in [(true, ErrorKind::Saturation), (false, ErrorKind::Infrastructure)] {
        inner.clear();
        inner.close();
        let mut call = held_up(limiter.check(&Charge::new("hot")));
        if is_refused {
            let others = Charge::new("hot").cost(2_000 - WARM);
            assert!(memory.check(&others).await.unwrap().is_admitted());
            sleep(Duration::from_millis(12)).await;
            inner.let_through(1);
            yield_now().await;
            assert_pending!(call.poll());
        }
        let away = |cost| Some(Error::new(ErrorKind::Infrastructure, "away")).filter(|_| cost == 1);
        inner.trouble(away);
        sleep(Duration::from_millis(if is_refused { 8 } else { 20 })).await;
        inner.open();
        assert_eq!(call.await.unwrap_err().kind(), kind, "{:?}", inner.costs());
        inner.no_trouble();
    }
}

/// One route has little time, and another one has much of it. The store answers in between.
#[tokio::test(start_paused = true)]
async fn a_charge_with_much_time_does_not_fail_with_one_that_had_little() {
    let (leased, inner, _) = hot(1_000_000).await;
    let [little, much] = [5, 500].map(|ms| leased.clone().timeout(Duration::from_millis(ms)));
    inner.clear();
    inner.close();
    inner.trouble(|cost| {
        Some(Error::new(ErrorKind::Infrastructure, "it is late")).filter(|_| cost > 1)
    });
    let mut calls =
        [&little, &little, &much].map(|limiter| task::spawn(limiter.check(&Charge::new("hot"))));
    calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
    sleep(Duration::from_millis(6)).await;
    inner.open();
    let [first, second, third] = calls;
    assert_eq!(first.await.unwrap_err().kind(), ErrorKind::Infrastructure);
    assert_eq!(second.await.unwrap_err().kind(), ErrorKind::Infrastructure);
    assert!(third.await.unwrap().is_admitted());
    assert_eq!(inner.costs(), [100, 1]);
}

/// A slow refill: it is answered after the time of its units.
#[tokio::test(start_paused = true)]
async fn units_of_a_slow_refill_go_only_to_those_who_asked_in_time() {
    let (limiter, inner, memory) = hot(1_000_000).await;
    inner.close();
    let early = held_up(limiter.check(&Charge::new("hot")));
    sleep(VALIDITY + Duration::from_millis(1)).await;
    let late = held_up(limiter.check(&Charge::new("hot")));
    inner.open();
    assert!(early.await.unwrap().is_admitted() && late.await.unwrap().is_admitted());
    assert_eq!(inner.costs(), [100, 1]);
    sleep(SECOND).await;
    assert_eq!(inner.settled(), [(100, 1)]);
    assert_eq!(taken(&memory, 1_000_000, "hot").await, WARM + 2);
}

#[tokio::test(start_paused = true)]
async fn a_refill_that_panics_sends_those_who_wait_to_the_limiter() {
    let (limiter, inner, _) = hot(1_000_000).await;
    inner.trouble(|cost| if cost > 1 { panic!("as planned") } else { None });
    for _ in 0..50 {
        assert!(check(&limiter, "hot").await.is_admitted());
    }
    inner.no_trouble();
    assert!(check(&limiter, "hot").await.is_admitted());
}

#[test]
fn a_runtime_that_ends_or_stands_still_keeps_nobody_waiting() {
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (limiter, inner, _) = leased(1_000_000);
    first.block_on(warm_up(&limiter, &inner, "hot"));
    inner.close();
    let mut waiter = task::spawn(limiter.check(&Charge::new("hot")));
    first.block_on(async {
        assert_pending!(waiter.poll());
        // The refill is on its way.
        yield_now().await;
    });
    // The first runtime stands still with the refill: the second asks on its own.
    let mut other = task::spawn(limiter.check(&Charge::new("hot")));
    second.block_on(async {
        assert_pending!(other.poll());
        // The refill is the first to be let through, and does not move.
        inner.let_through(2);
        assert!(other.await.unwrap().is_admitted());
    });
    // It ends, and takes the refill along.
    drop(first);
    assert!(waiter.is_woken());
    inner.open();
    assert!(second.block_on(waiter).unwrap().is_admitted());
    assert!(second.block_on(limiter.acquire("hot")).is_ok());
}

#[test]
fn without_a_runtime_every_charge_asks_alone() {
    let (limiter, inner, _) = leased(1_000_000);
    for _ in 0..100 {
        let mut check = task::spawn(limiter.check(&Charge::new("hot")));
        assert!(tokio_test::assert_ready!(check.poll()).unwrap().is_admitted());
    }
    assert_eq!(inner.costs(), [1; 100]);
}

/// A charge that may wait is served from a refill where that is possible. Else the inner limiter
/// reserves its slot.
#[tokio::test(start_paused = true)]
async fn a_charge_that_may_wait_gets_its_exact_slot() {
    let quota = Quota::new(1_500, 30 * SECOND);
    let inner = Recorder::new(Memory::new("api", FixedWindow::new(quota).anchored()));
    let limiter = inner.clone().lease(100);
    warm_up(&limiter, &inner, "hot").await;
    let mut admitted = 0;
    let charge = Charge::new("hot").max_wait(40 * SECOND);
    let wait = loop {
        let decision = limiter.check(&charge).await.unwrap();
        match decision.waited() {
            Duration::ZERO => admitted += 1,
            wait => break wait,
        }
    };
    assert_eq!(admitted, 500);
    assert_eq!(wait, 30 * SECOND);
    assert_eq!(inner.waits().last(), Some(&(40 * SECOND)));
    assert!(inner.costs().len() < 60, "{} calls", inner.costs().len());
}
