//! Calendars by the rules of four time zones, from the Gregorian calendar alone.

const HOUR: i128 = 3_600_000_000;
const DAY: i128 = 24 * HOUR;

/// Windows of local time.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    pub span: Span,
    pub zone: Zone,
}

#[derive(Clone, Copy, Debug)]
pub enum Span {
    Day,
    /// From this day on, Monday being 0.
    Week(i128),
    /// From this day of the month on, or from its last day.
    Month(i128),
    Year,
}

/// A time zone, as its rules have been since 2007. None of them changes its clocks at midnight.
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    Utc,
    /// Ahead by an hour, and by two from the last Sunday of March to that of October, 1:00 UTC.
    Berlin,
    /// Behind by five hours, and by four from the second Sunday of March to the first one of
    /// November, 2:00 of the time before.
    NewYork,
    /// Ahead by five and a half hours.
    Kolkata,
}

impl Zone {
    pub fn name(self) -> &'static str {
        match self {
            Self::Utc => "UTC",
            Self::Berlin => "Europe/Berlin",
            Self::NewYork => "America/New_York",
            Self::Kolkata => "Asia/Kolkata",
        }
    }

    /// The time by which the zone is ahead of UTC.
    fn ahead(self, at: i128) -> i128 {
        let (year, ..) = date(at.div_euclid(DAY));
        let within = |from: i128, to: i128| (from..to).contains(&at);
        let summer = match self {
            Self::Utc => return 0,
            Self::Kolkata => return 11 * HOUR / 2,
            Self::Berlin => {
                within(sunday(year, 3, 25) * DAY + HOUR, sunday(year, 10, 25) * DAY + HOUR)
            }
            Self::NewYork => {
                within(sunday(year, 3, 8) * DAY + 7 * HOUR, sunday(year, 11, 1) * DAY + 6 * HOUR)
            }
        };
        let winter = if matches!(self, Self::Berlin) { HOUR } else { -5 * HOUR };
        winter + if summer { HOUR } else { 0 }
    }

    /// The instant of a local midnight.
    fn midnight(self, day: i128) -> i128 {
        let instant = |ahead| day * DAY - ahead;
        let guess = instant(self.ahead(day * DAY));
        instant(self.ahead(guess))
    }
}

impl Calendar {
    /// The begin of the window that holds an instant.
    pub fn begin(self, at: i128) -> i128 {
        let day = (at + self.zone.ahead(at)).div_euclid(DAY);
        self.zone.midnight(self.first(day))
    }

    /// The end of the window that begins at an instant.
    pub fn end(self, begin: i128) -> i128 {
        let first = (begin + self.zone.ahead(begin)).div_euclid(DAY);
        let next = (first + 1..).find(|day| self.first(*day) != first).expect("it ends");
        self.zone.midnight(next)
    }

    /// The first day of the window of a day.
    fn first(self, day: i128) -> i128 {
        let (year, month, _) = date(day);
        match self.span {
            Span::Day => day,
            // 1970 began with a Thursday.
            Span::Week(begins) => day - (day + 3 - begins).rem_euclid(7),
            Span::Month(from) => {
                let own = in_month(year, month, from);
                let before = if month == 1 { (year - 1, 12) } else { (year, month - 1) };
                if own <= day { own } else { in_month(before.0, before.1, from) }
            }
            Span::Year => number(year, 1, 1),
        }
    }
}

/// The first Sunday from this day of a month on.
fn sunday(year: i128, month: i128, from: i128) -> i128 {
    let day = number(year, month, from);
    day + (3 - day).rem_euclid(7)
}

/// This day of a month, or its last one.
fn in_month(year: i128, month: i128, day: i128) -> i128 {
    let next = if month == 12 { number(year + 1, 1, 1) } else { number(year, month + 1, 1) };
    (number(year, month, 1) + day - 1).min(next - 1)
}

/// The days from the epoch to a date.
fn number(year: i128, month: i128, day: i128) -> i128 {
    const BEFORE: [i128; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |years: i128| years / 4 - years / 100 + years / 400;
    let is_leap = leaps(year) > leaps(year - 1);
    let leap = i128::from(is_leap && month > 2);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + BEFORE[month as usize - 1] + leap + day
        - 1
}

/// The year, the month and the day of a number of days.
fn date(days: i128) -> (i128, i128, i128) {
    let year = (1970 + days / 366..).find(|year| number(year + 1, 1, 1) > days).expect("a year");
    let month = (1..=12).rev().find(|month| number(year, *month, 1) <= days).expect("a month");
    (year, month, days - number(year, month, 1) + 1)
}
