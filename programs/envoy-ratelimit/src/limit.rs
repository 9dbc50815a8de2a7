//! A limit: a number of requests for each unit of time, and what counts them.

use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{Algorithm, TokenBucket};

/// A unit of time, by the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    const ALL: [(Self, &'static str, u64); 7] = [
        (Self::Second, "second", 1),
        (Self::Minute, "minute", 60),
        (Self::Hour, "hour", 3_600),
        (Self::Day, "day", 86_400),
        (Self::Month, "month", 30 * 86_400),
        (Self::Year, "year", 365 * 86_400),
        (Self::Week, "week", 7 * 86_400),
    ];

    /// The unit of a number of the protocol.
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().map(|(unit, ..)| unit).find(|unit| *unit as i32 == number)
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let is_it = |(_, name, _): &(_, &str, _)| name.eq_ignore_ascii_case(word);
        Self::ALL.into_iter().find(is_it).map(|(unit, ..)| unit)
    }

    fn row(self) -> (&'static str, u64) {
        let (_, word, seconds) = Self::ALL[self as usize - 1];
        (word, seconds)
    }

    pub(crate) fn word(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(self.row().1)
    }
}

/// What counts the requests of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counting {
    /// In each period of the clock.
    FixedWindow,
    /// At a rate, with at most so many at once.
    TokenBucket { burst: u32 },
}

/// A number of requests for each unit of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) requests: u32,
    pub(crate) unit: Unit,
    pub(crate) counting: Counting,
    pub(crate) name: String,
}

impl Limit {
    /// The quota of a bucket. `None`: a window, also in place of a bucket of nothing.
    pub(crate) fn bucket(&self) -> Option<Quota> {
        let Counting::TokenBucket { burst } = self.counting else { return None };
        let quota = Quota::try_new(self.requests.into(), self.unit.period()).ok()?;
        let quota = quota.try_burst(burst.into()).ok()?;
        TokenBucket::new(quota).rule(quota).is_ok().then_some(quota)
    }
}
