//! Calendars: the days, weeks, months or years of a time zone, as windows of a fixed window.
//!
//! The windows of `scripts/calendar.lua`, which gets their edges as arguments.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::core::quota::{Quota, QuotaError};

const DAY: Duration = Duration::from_secs(86_400);

/// The days, weeks, months or years of a time zone. They are the windows of a [`FixedWindow`].
///
/// A window ends at local midnight, or at the first instant of the day if that day has no midnight.
/// So a day has 23 or 25 hours when the clocks change, and a month has 28 to 31 days. A day that a
/// time zone skips has no window. Default: the time zone is UTC.
///
/// ```
/// use tower_sluice::algorithm::{Calendar, FixedWindow, Weekday};
/// use tower_sluice::{Charge, Limiter, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let berlin = Calendar::month().time_zone("Europe/Berlin")?;
/// let api = Memory::new("api", FixedWindow::calendar(10_000, berlin));
/// let decision = api.check(&Charge::new("alice")).await?;
/// assert_eq!(decision.remaining(), Some(9_999));
///
/// // A customer with another plan.
/// let gold = Charge::new("bob").quota(berlin.quota(50_000));
/// assert_eq!(api.check(&gold).await?.remaining(), Some(49_999));
///
/// let weeks = FixedWindow::calendar(500, Calendar::week(Weekday::Monday));
/// let invoices = FixedWindow::calendar(500, Calendar::month_from(15));
/// # let _ = (weeks, invoices);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// **Its cost**: a call to Redis has 6 more arguments, the edges of windows around the present,
/// about 100 bytes. In memory, a decision takes about 0.6 µs more than that of another window, on a
/// time zone with changes of clocks.
///
/// [`FixedWindow`]: super::FixedWindow
#[derive(Clone, Copy)]
#[must_use]
pub struct Calendar {
    span: CalendarPeriod,
    zone: &'static TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CalendarPeriod {
    Day,
    Week(Weekday),
    /// From this day on.
    Month(i8),
    Year,
}

/// A day of the week, with which the weeks of a [`Calendar`] begin. [`FromStr`] reads its English
/// name, such as `monday`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "their names say all")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// The error of [`Calendar::time_zone`] and of the name of a [`Weekday`]: nothing has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    name: String,
    example: &'static str,
}

static UTC: TimeZone = TimeZone::UTC;

impl Calendar {
    /// Days.
    pub const fn day() -> Self {
        Self { span: CalendarPeriod::Day, zone: &UTC }
    }

    /// Weeks that begin with this day.
    pub const fn week(begins: Weekday) -> Self {
        Self { span: CalendarPeriod::Week(begins), zone: &UTC }
    }

    /// Months from their first day on.
    pub const fn month() -> Self {
        Self::month_from(1)
    }

    /// Months from this day on, as invoices have them. In a month that is too short, its last day
    /// counts: months from the 31st begin on January 31, February 28 or 29, March 31, April 30.
    ///
    /// # Panics
    ///
    /// If the day is not from 1 to 31.
    #[track_caller]
    pub const fn month_from(day: u8) -> Self {
        assert!(1 <= day && day <= 31, "a month has no such day");
        Self { span: CalendarPeriod::Month(day.cast_signed()), zone: &UTC }
    }

    /// Years, from January 1 on.
    pub const fn year() -> Self {
        Self { span: CalendarPeriod::Year, zone: &UTC }
    }

    /// Sets the time zone by its name in the IANA database, such as `Europe/Berlin`. Default: UTC.
    ///
    /// The rules of the zone are read once for each process: from the database of the system, or
    /// from the one that is compiled in if the system has none.
    ///
    /// # Errors
    ///
    /// If no time zone has this name.
    pub fn time_zone(self, name: &str) -> Result<Self, UnknownName> {
        // A calendar is `Copy`, so zones stay for ever. There are some hundred of them.
        static KNOWN: Mutex<Vec<&'static TimeZone>> = Mutex::new(Vec::new());
        let unknown =
            |_| UnknownName { name: name.to_owned(), example: "the time zone `Europe/Berlin`" };
        let zone = TimeZone::get(name).map_err(unknown)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|one| one.iana_name() == zone.iana_name());
        let place = place.unwrap_or_else(|| {
            known.push(Box::leak(Box::new(zone)));
            known.len() - 1
        });
        Ok(Self { zone: known[place], ..self })
    }

    /// A quota of `limit` units per window, for a [charge](crate::Charge::quota) that brings its
    /// own. Its period is the mean length of a window.
    ///
    /// # Panics
    ///
    /// If [`Calendar::try_quota`] returns an error; in a `const`, at compile time.
    #[track_caller]
    pub const fn quota(&self, limit: u64) -> Quota {
        Quota::new(limit, self.mean())
    }

    /// A quota of `limit` units per window, or the reason why that is invalid.
    ///
    /// # Errors
    ///
    /// If the limit exceeds 2^50 units. A limit of 0 admits [nothing](Quota::none).
    pub const fn try_quota(&self, limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, self.mean())
    }

    /// The mean length of a window: 365.2425 days for a year.
    pub(super) const fn mean(&self) -> Duration {
        match self.span {
            CalendarPeriod::Day => DAY,
            CalendarPeriod::Week(_) => DAY.saturating_mul(7),
            CalendarPeriod::Month(_) => Duration::from_secs(2_629_746),
            CalendarPeriod::Year => Duration::from_secs(31_556_952),
        }
    }

    /// Less than the length of any window. So what comes sooner is in this window or the next one.
    pub(super) const fn shortest(&self) -> Duration {
        match self.span {
            CalendarPeriod::Day => Duration::from_secs(43_200),
            CalendarPeriod::Week(_) => DAY.saturating_mul(6),
            CalendarPeriod::Month(_) => DAY.saturating_mul(27),
            CalendarPeriod::Year => DAY.saturating_mul(364),
        }
    }

    /// Returns the begin and the end of the window that holds an instant, in µs since the Unix
    /// epoch.
    pub(super) fn window(&self, at: i64) -> [i64; 2] {
        let date = Timestamp::from_microsecond(at).map(|at| self.zone.to_datetime(at).date());
        let mut first = self.first_day(date.unwrap_or(Date::MAX));
        let mut begin = self.begin(first);
        loop {
            first = self.next(first);
            let end = self.begin(first);
            // Not true of a window of a day that the zone skips. And not where clocks are set back
            // over midnight: then a day is over, and its last hour comes again.
            if at < end {
                return [begin, end];
            }
            begin = end;
        }
    }

    /// Returns the edges of the windows that a script may need: the one before the present, the
    /// present one, and three more.
    ///
    /// The server's clock may differ from that of this process, so that it is in the window before
    /// or in the next one. A wait ends in the next window of the server. If its clock is set back
    /// after that, that window is the second one from there.
    pub(super) fn edges(&self, present: i64) -> [i64; 6] {
        let [begin, end] = self.window(present);
        let mut edges = [self.window(begin - 1)[0], begin, end, 0, 0, 0];
        for index in 3..edges.len() {
            edges[index] = self.window(edges[index - 1])[1];
        }
        edges
    }

    /// Returns the end of the window that is `windows` after the one of this instant.
    pub(super) fn end_after(&self, at: i64, windows: usize) -> i64 {
        (0..windows).fold(self.window(at)[1], |end, _| self.window(end)[1])
    }

    fn first_day(&self, day: Date) -> Date {
        match self.span {
            CalendarPeriod::Day => day,
            CalendarPeriod::Week(begins) => {
                let past = day.weekday().to_monday_zero_offset() - begins as i8;
                let mut first = day;
                for _ in 0..past.rem_euclid(7) {
                    first = first.yesterday().unwrap_or(first);
                }
                first
            }
            CalendarPeriod::Month(from) => {
                let own = in_month(day.first_of_month(), from);
                if own <= day {
                    return own;
                }
                let before = day.first_of_month().yesterday().unwrap_or(day);
                in_month(before.first_of_month(), from)
            }
            CalendarPeriod::Year => day.first_of_year(),
        }
    }

    fn next(&self, first: Date) -> Date {
        let after = |days: i8| (0..days).fold(first, |day, _| day.tomorrow().unwrap_or(day));
        match self.span {
            CalendarPeriod::Day => after(1),
            CalendarPeriod::Week(_) => after(7),
            CalendarPeriod::Month(from) => {
                let next = first.last_of_month().tomorrow().unwrap_or(first);
                in_month(next, from)
            }
            CalendarPeriod::Year => first.last_of_year().tomorrow().unwrap_or(first),
        }
    }

    /// Returns the first instant of a day, in µs since the Unix epoch.
    fn begin(&self, day: Date) -> i64 {
        let midnight = self.zone.to_ambiguous_timestamp(day.at(0, 0, 0, 0));
        let is_skipped = matches!(midnight.offset(), AmbiguousOffset::Gap { .. });
        // Midnight may come twice, of which the first counts. Or it is skipped, and the day begins
        // where the clock goes on.
        let begin = midnight.earlier().map(|before| match is_skipped {
            true => self.zone.following(before).next().map_or(before, |next| next.timestamp()),
            false => before,
        });
        begin.unwrap_or(Timestamp::MAX).as_microsecond()
    }
}

/// Returns this day of the month that begins with `first`, or its last day if it is too short.
fn in_month(first: Date, day: i8) -> Date {
    let day = day.min(first.days_in_month());
    Date::new(first.year(), first.month(), day).unwrap_or(first)
}

/// The error of a call whose edges do not hold the server's present.
pub(crate) fn clocks_differ(server: i64, own: i64) -> String {
    let time = |at| {
        Timestamp::from_microsecond(at)
            .map_or_else(|_| String::from("an unknown time"), |at| format!("{at:.3}"))
    };
    format!(
        "the clock of redis is at {}, the clock of this process at {}: too far apart for windows by the calendar",
        time(server),
        time(own),
    )
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.span == other.span && self.zone.iana_name() == other.zone.iana_name()
    }
}

impl Eq for Calendar {}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        f.debug_struct("Calendar").field("span", &self.span).field("zone", &zone).finish()
    }
}

impl FromStr for Weekday {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Ok(match name {
            "monday" => Self::Monday,
            "tuesday" => Self::Tuesday,
            "wednesday" => Self::Wednesday,
            "thursday" => Self::Thursday,
            "friday" => Self::Friday,
            "saturday" => Self::Saturday,
            "sunday" => Self::Sunday,
            _ => return Err(UnknownName { name: name.to_owned(), example: "the day `monday`" }),
        })
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing has the name `{}`: a valid name is {}", self.name, self.example)
    }
}

impl Error for UnknownName {}

#[cfg(test)]
mod tests;
