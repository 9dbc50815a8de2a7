//! What only some worlds have. Each kind has dice of its own, so that the others stay as they are.

use std::time::Duration;
#[cfg(feature = "calendar")]
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tower_sluice::Quota;
use tower_sluice::algorithm::{Algorithm as _, AnyAlgorithm, Concurrency, FixedWindow};
#[cfg(feature = "calendar")]
use tower_sluice::algorithm::{Calendar, InLua as _, Weekday};

use super::super::account::Limit;
use super::super::network::Odds;
use super::super::servers::{Strike, StrikeKind, Topology};
use super::{Ask, Asking, Ban, FIRST_FAULT, Follows as _, MILLISECOND, Plan, Then, Way, max_hold};

impl Plan {
    /// The same world, in which some leave units to others.
    pub(super) fn keeping_units_free(mut self, dice: &mut Rng) -> Self {
        if dice.u32(0..6) > 0 || self.asking == Asking::Policies {
            return self;
        }
        let most = (self.limits[0].algorithms[0].quota().as_slice()[0].burst_size() / 2).max(1);
        for ask in &mut self.asks {
            let is_asked = dice.bool() && !matches!(ask.way, Way::Penalize | Way::Peek);
            ask.keep_free = if is_asked { dice.u64(1..=most) } else { 0 };
        }
        self
    }

    /// The same world, in which units are held: at most so many at the same time, in one limit of
    /// it.
    pub(super) fn with_holds(mut self, dice: &mut Rng) -> Self {
        if dice.u32(0..4) == 0 {
            let limit = dice.usize(0..self.limits.len());
            let limit = &mut self.limits[limit];
            let member = dice.usize(0..limit.algorithms.len());
            // A table with a charge that never fits is an error.
            let least = self.tables.first().map_or(1, |(_, table)| table.cost);
            let units = dice.u64(1..8).max(least);
            let max_hold = MILLISECOND * dice.u32(100..2_000);
            let own = Quota::at_once(units + dice.u64(1..4));
            limit.algorithms[member] = Concurrency::new(units).max_hold(max_hold).into();
            for quotas in &mut limit.own_quotas {
                quotas[member] = own;
            }
        }
        let holds = |one: &AnyAlgorithm| max_hold(*one);
        let max_hold = self.limits.iter().flat_map(|limit| &limit.algorithms).find_map(holds);
        let Some(max_hold) = max_hold else { return self };
        for ask in &mut self.asks {
            let time = max_hold.mul_f64(2.0 * dice.f64());
            ask.then = match dice.u32(0..10) {
                0..3 => Then::Hold(time),
                3 => Then::Renew(dice.u32(1..6), max_hold.mul_f64(dice.f64())),
                4..7 => Then::Settle(0, time.min(MILLISECOND * 300)),
                // Its holder ends without a release.
                7 => Then::Keep,
                _ => ask.then,
            };
        }
        self
    }

    /// The same world, in which some give units of a key back.
    pub(super) fn with_grants(mut self, dice: &mut Rng) -> Self {
        let is_at_once = |one: &AnyAlgorithm| matches!(one, AnyAlgorithm::Concurrency(_));
        // Nothing can be granted of them.
        let are_at_once = |limit: &Limit| limit.algorithms.iter().all(is_at_once);
        let can = self.tables.is_empty() && !self.limits.iter().any(are_at_once);
        if !can || dice.u32(0..6) > 0 {
            return self;
        }
        for ask in &mut self.asks {
            if dice.u32(0..20) == 0 {
                ask.way = Way::Grant;
                ask.own_quota = None;
            }
        }
        self
    }

    /// The same world, in which a key is blocked that is refused too often.
    pub(super) fn with_a_ban(mut self, dice: &mut Rng) -> Self {
        let is_taken = self.stack.is_shadow || !self.stack.switches.is_empty();
        if !self.tables.is_empty() || is_taken || dice.u32(0..8) > 0 {
            return self;
        }
        self.stack.ban = Some(Ban {
            refusals: dice.u64(2..12),
            window: MILLISECOND * dice.u32(50..1_000),
            time: MILLISECOND * dice.u32(20..800),
        });
        self
    }

    /// The same world, in which the charges of some bring a quota of nothing.
    pub(super) fn with_suspended_plans(mut self, dice: &mut Rng) -> Self {
        let limit = &mut self.limits[0];
        let follows = limit.algorithms.iter().all(|one| one.rule_of(Quota::none()));
        let is_plain = self.tables.is_empty() && self.asking == Asking::Alone && follows;
        if !is_plain || dice.u32(0..12) > 0 {
            return self;
        }
        limit.own_quotas = vec![vec![Quota::none(); limit.algorithms.len()]];
        for ask in &mut self.asks {
            let is_charge = matches!(ask.way, Way::Acquire | Way::Layer | Way::Estimate);
            ask.own_quota = (is_charge && dice.u32(0..4) == 0).then_some(0);
        }
        self
    }

    /// The same world, at the end of a window of a calendar, such as a day or a month: some limits
    /// have such windows.
    ///
    /// A client finds its window by the clock of its machine, which shows the present. So the world
    /// begins shortly before the begin or the end of that window.
    #[cfg(feature = "calendar")]
    pub(super) fn by_the_calendar(mut self, has_days_alone: bool, dice: &mut Rng) -> Self {
        let mut found = false;
        let begins = MILLISECOND * dice.u32(0..4_000);
        let is_chosen = dice.u32(0..4) == 0;
        let calendar = if has_days_alone { Calendar::day() } else { calendar(dice) };
        for limit in self.limits.iter_mut().filter(|_| is_chosen && self.tables.is_empty()) {
            for algorithm in &mut limit.algorithms {
                if let AnyAlgorithm::FixedWindow(_) = algorithm {
                    let units = algorithm.quota().as_slice()[0].limit();
                    *algorithm = FixedWindow::calendar(units, calendar).into();
                    limit.own_quotas.clear();
                    found = true;
                }
            }
        }
        if found {
            let micros = |time: Duration| i64::try_from(time.as_micros()).expect("before 2112");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            self.present = micros(now);
            let window = FixedWindow::calendar(1, calendar);
            let rule = window.rule(window.quota()).expect("a rule");
            let [_, _, _, begin, end, ..] = FixedWindow::arguments(&rule, self.present)[..] else {
                panic!("a calendar has edges");
            };
            let is_begin = has_days_alone || dice.bool();
            let edge = if is_begin { begin } else { end };
            self.edge = Some(edge);
            self.begins_at = edge - micros(begins);
            for ask in &mut self.asks {
                ask.own_quota = None;
            }
        }
        self
    }

    /// The same world, in which a process is killed.
    pub(super) fn with_a_death(mut self, dice: &mut Rng) -> Self {
        if dice.u32(0..8) == 0 {
            let at = FIRST_FAULT + MILLISECOND * dice.u32(0..3_000);
            self.deaths.push((at, dice.usize(0..self.processes)));
        }
        self
    }

    /// The same world, in which some callers pause a key.
    pub(super) fn with_pauses(mut self, dice: &mut Rng) -> Self {
        // A policy keeps its operations to itself.
        if !self.tables.is_empty() || dice.u32(0..4) > 0 {
            return self;
        }
        for ask in &mut self.asks {
            if dice.u32(0..30) == 0 {
                ask.way = Way::Pause;
            }
        }
        self
    }

    /// The same world. If its network does nothing, slots move to a master that is replaced soon
    /// after, and then others move.
    pub(super) fn with_a_lost_master(mut self, dice: &mut Rng) -> Self {
        let Topology::Cluster { masters, replicas: 1 } = self.topology else { return self };
        let is_quiet = self.odds == Odds::default() && self.freezes.is_empty();
        if self.is_flooded || !is_quiet || dice.bool() {
            return self;
        }
        // A pool is built with the first two.
        let target = dice.usize(2..masters);
        let source = (target + dice.usize(1..masters)) % masters;
        let further = (target + masters - source - 1) % masters;
        let moving = (source + masters * further) as u32;
        let mut strike = |kind, place, from: u32| {
            let lasting = MILLISECOND * dice.u32(50..300);
            let at = FIRST_FAULT + MILLISECOND * dice.u32(from..from + 300);
            (at, Strike { kind, place, lasting })
        };
        self.strikes = vec![
            strike(StrikeKind::TakeSlots, moving, 0),
            strike(StrikeKind::NodeFailover, target as u32, 500),
        ];
        // Its replica is the last one of the masters then.
        for (number, from) in [1_300, 1_700, 2_100].into_iter().enumerate() {
            let further = (masters - 1 + masters * number) as u32;
            self.strikes.push(strike(StrikeKind::TakeSlots, further, from));
        }
        self
    }

    /// The same world, with settings of its algorithms that come into play within it: a default
    /// time of a minute is longer than a world.
    pub(super) fn with_settings(mut self, dice: &mut Rng) -> Self {
        // The rows of a table have no such settings.
        if !self.tables.is_empty() {
            return self;
        }
        for algorithm in self.limits.iter_mut().flat_map(|limit| &mut limit.algorithms) {
            let (is_other, cells) = (dice.u32(0..3) == 0, [1, 2, 3, 60][dice.usize(0..4)]);
            let (max_hold, store) = (dice.u32(200..3_000), dice.u32(1..3_000));
            let horizon = MILLISECOND * dice.u32(20..1_000);
            let other = match *algorithm {
                // An era of units that nobody settles ends.
                AnyAlgorithm::Budget(one) => one.max_hold(MILLISECOND * max_hold).into(),
                AnyAlgorithm::FixedWindow(one) if is_other => one.anchored().into(),
                AnyAlgorithm::SlidingWindow(one) if is_other => one.cells(cells).into(),
                AnyAlgorithm::SmoothBursty(one) if is_other => {
                    let one = one.max_burst(MILLISECOND * store);
                    if store % 2 == 0 { one.wait_for_own_cost() } else { one.start_empty() }.into()
                }
                AnyAlgorithm::SmoothWarmingUp(one) if is_other => {
                    one.cold_factor(f64::from(store) / 300.0).into()
                }
                AnyAlgorithm::TokenBucket(one) if is_other => one.horizon(horizon).into(),
                AnyAlgorithm::SlidingLog(one) if is_other => one.horizon(horizon).into(),
                AnyAlgorithm::SlidingCounter(one) if is_other => one.horizon(horizon).into(),
                other => other,
            };
            // A store of less than one permit is an error.
            let quota = other.quota().as_slice()[0];
            if other.rule_of(quota) {
                *algorithm = other;
            }
        }
        self
    }

    /// The same world, with what only some worlds have.
    pub(super) fn varied(mut self, last_fault: Duration, dice: &mut Rng) -> Self {
        let passes_all = self.stack.is_shadow || !self.stack.switches.is_empty();
        if dice.u32(0..5) == 0 && !passes_all {
            for ask in &mut self.asks {
                if matches!(ask.way, Way::Acquire | Way::Layer) && dice.u32(0..6) == 0 {
                    ask.way = if dice.bool() { Way::Unready } else { Way::Refunded };
                }
            }
        }
        self.stack.max_keys = (dice.u32(0..3) == 0).then(|| dice.usize(1..3));
        let slow_after = MILLISECOND * dice.u32(20..150);
        self.stack.slow_after = (dice.u32(0..3) == 0).then_some(slow_after);
        if dice.u32(0..6) == 0 && !self.is_flooded {
            self.queue_capacity = dice.usize(20..60);
        }
        // Nothing fails but that answers are late.
        if dice.u32(0..8) == 0 && !self.is_flooded {
            self.odds = Odds { stall: dice.u32(5..60), ..Odds::default() };
            (self.strikes, self.freezes) = (Vec::new(), Vec::new());
        }
        // Slots move again and again, under many that ask.
        if dice.u32(0..2) == 0 && matches!(self.topology, Topology::Cluster { .. }) {
            for _ in 0..dice.u32(1..5) {
                let kinds = [StrikeKind::MoveSlots, StrikeKind::MoveSlots, StrikeKind::TakeSlots];
                let lasting = MILLISECOND * dice.u32(50..1_000);
                let strike = Strike { kind: kinds[dice.usize(0..3)], place: dice.u32(..), lasting };
                self.strikes.push((FIRST_FAULT + MILLISECOND * dice.u32(1..2_000), strike));
            }
        }
        // What opens connections panics.
        if dice.u32(0..12) == 0 && !self.is_flooded {
            let lasting = MILLISECOND * dice.u32(100..1_500);
            let strike = Strike { kind: StrikeKind::DialerPanics, place: dice.u32(..), lasting };
            self.strikes.push((FIRST_FAULT + MILLISECOND * dice.u32(1..500), strike));
        }
        // Eras of budgets end, and holds with them.
        for limit in &mut self.limits {
            for algorithm in &mut limit.algorithms {
                if let AnyAlgorithm::Budget(budget) = algorithm {
                    *budget = budget.max_hold(MILLISECOND * dice.u32(200..3_000));
                }
            }
        }
        // Some ask again, when all has been quiet for long.
        if dice.u32(0..4) == 0 && !self.is_flooded {
            let plain = self.asks.iter().filter(|ask| ask.way == Way::Acquire).cloned();
            let plain: Vec<_> = plain.collect();
            for _ in 0..dice.usize(1..30).min(plain.len()) {
                let ask = plain[dice.usize(0..plain.len())].clone();
                let at = last_fault + MILLISECOND * dice.u32(2_500..6_000);
                self.asks.push(Ask { at, ..ask });
            }
            self.asks.sort_by_key(|ask| ask.at);
        }
        self
    }
}

/// Draws a calendar. Some time zones change their clocks, one of them by half an hour; Apia skipped
/// a day.
#[cfg(feature = "calendar")]
fn calendar(dice: &mut Rng) -> Calendar {
    const ZONES: [&str; 6] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let calendar = match dice.u32(0..5) {
        0 => Calendar::day(),
        1 => Calendar::week([Weekday::Monday, Weekday::Sunday][dice.usize(0..2)]),
        2 => Calendar::month(),
        3 => Calendar::month_from(dice.u8(1..=31)),
        _ => Calendar::year(),
    };
    calendar.time_zone(ZONES[dice.usize(..ZONES.len())]).expect("a time zone")
}
