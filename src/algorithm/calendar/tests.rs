use super::super::micros;
use super::*;

const HOUR: i64 = 3_600_000_000;

fn in_zone(calendar: Calendar, zone: &str) -> Calendar {
    calendar.time_zone(zone).unwrap()
}

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_microsecond()
}

/// Returns the window that holds an instant, as UTC.
fn window(calendar: Calendar, instant: &str) -> [String; 2] {
    calendar.window(at(instant)).map(|edge| Timestamp::from_microsecond(edge).unwrap().to_string())
}

#[test]
fn a_day_has_23_or_25_hours_when_clocks_change() {
    let berlin = in_zone(Calendar::day(), "Europe/Berlin");
    assert_eq!(
        window(berlin, "2026-03-29T12:00:00Z"),
        ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]
    );
    assert_eq!(
        window(berlin, "2026-10-25T12:00:00Z"),
        ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]
    );
    // The last microsecond, and the first of the next day.
    assert_eq!(window(berlin, "2026-10-25T22:59:59.999999Z")[1], "2026-10-25T23:00:00Z");
    assert_eq!(window(berlin, "2026-10-25T23:00:00Z")[0], "2026-10-25T23:00:00Z");
}

#[test]
fn a_day_that_a_zone_skips_has_no_window() {
    let apia = in_zone(Calendar::day(), "Pacific/Apia");
    let skip = "2011-12-30T10:00:00Z";
    assert_eq!(window(apia, "2011-12-30T09:59:59Z"), ["2011-12-29T10:00:00Z", skip]);
    assert_eq!(window(apia, skip), [skip, "2011-12-31T10:00:00Z"]);
    let edges = apia.edges(at("2011-12-29T11:00:00Z"));
    assert!(edges.windows(2).all(|two| two[1] - two[0] == 24 * HOUR), "{edges:?}");
    // The month has 30 days.
    let month = in_zone(Calendar::month(), "Pacific/Apia").window(at(skip));
    assert_eq!(month[1] - month[0], 30 * 24 * HOUR);
}

#[test]
fn a_day_without_midnight_begins_where_the_clock_goes_on() {
    let sao_paulo = in_zone(Calendar::day(), "America/Sao_Paulo");
    assert_eq!(
        window(sao_paulo, "2018-11-04T03:00:00Z"),
        ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]
    );
    // The clocks went from 23:30 to 0:30.
    let toronto = in_zone(Calendar::day(), "America/Toronto");
    assert_eq!(window(toronto, "1919-03-31T12:00:00Z")[0], "1919-03-31T04:30:00Z");
}

#[test]
fn a_midnight_that_comes_twice_begins_one_day() {
    // The clocks went from 0:01 back to 23:01.
    let st_johns = in_zone(Calendar::day(), "America/St_Johns");
    let begin = "2010-11-07T02:30:00Z";
    assert_eq!(window(st_johns, "2010-11-07T02:30:30Z")[0], begin);
    assert_eq!(window(st_johns, "2010-11-07T03:00:00Z"), [begin, "2010-11-08T03:30:00Z"]);
    // They went from 1:00 back to 0:00.
    let havana = in_zone(Calendar::day(), "America/Havana");
    assert_eq!(
        window(havana, "2025-11-02T05:30:00Z"),
        ["2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"]
    );
}

#[test]
fn weeks_begin_with_their_day() {
    use Weekday::*;
    let all = [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday];
    for (place, begins) in all.into_iter().enumerate() {
        // 2026-11-23 is a Monday.
        let [begin, end] = Calendar::week(begins).window(at("2026-11-29T23:59:59Z"));
        let monday = at("2026-11-23T00:00:00Z");
        assert_eq!(begin, monday + place as i64 * 24 * HOUR, "{begins:?}");
        assert_eq!(end - begin, 7 * 24 * HOUR);
    }
}

#[test]
fn months_and_years_have_their_lengths() {
    let days = |calendar: Calendar, instant| {
        let [begin, end] = calendar.window(at(instant));
        (end - begin) / (24 * HOUR)
    };
    let [month, year] = [Calendar::month(), Calendar::year()];
    assert_eq!(days(month, "2023-02-10T00:00:00Z"), 28);
    assert_eq!(days(month, "2024-02-10T00:00:00Z"), 29);
    assert_eq!(days(month, "2100-02-10T00:00:00Z"), 28);
    assert_eq!(days(month, "2023-12-31T23:59:59Z"), 31);
    assert_eq!(days(year, "2023-02-10T00:00:00Z"), 365);
    assert_eq!(days(year, "2024-12-31T23:59:59Z"), 366);
    assert_eq!(days(year, "2000-01-01T00:00:00Z"), 366);
}

// Invoices of the 31st were sent on March 3, or not at all, in github.com/dubinc/dub/issues/374 and
// github.com/useautumn/autumn/pull/2115; dust-tt/dust/pull/28757 charged March 2 to no period.
#[test]
fn months_from_the_31st_keep_their_day_over_short_months() {
    let from_31 = Calendar::month_from(31);
    let mut instant = at("2023-01-31T00:00:00Z");
    let days = ["01-31", "02-28", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31"];
    for two in days.windows(2) {
        let [begin, end] = [two[0], two[1]].map(|day| at(&format!("2023-{day}T00:00:00Z")));
        assert_eq!(from_31.window(instant), [begin, end], "{two:?}");
        assert_eq!(from_31.window(end - 1), [begin, end], "{two:?}");
        instant = end;
    }
    assert_eq!(window(from_31, "2024-03-02T00:00:00Z")[0], "2024-02-29T00:00:00Z");
    assert_eq!(window(Calendar::month_from(15), "2024-01-14T23:59:59Z")[0], "2023-12-15T00:00:00Z");
}

/// In every zone: windows follow one another without a gap, and none is shorter than the longest
/// wait.
#[test]
fn windows_of_every_zone_follow_one_another() {
    let (mut zones, mut shortest) = (0, [i64::MAX; 4]);
    for name in jiff::tz::db().available() {
        let calendars = [
            Calendar::day(),
            Calendar::week(Weekday::Sunday),
            Calendar::month_from(29),
            Calendar::year(),
        ];
        for (place, calendar) in calendars.into_iter().enumerate() {
            let calendar = in_zone(calendar, name.as_str());
            for year in [1993, 2011, 2026] {
                let begin = at(&format!("{year}-01-01T12:34:56Z"));
                let mut window = calendar.window(begin);
                while window[1] < begin + 370 * 24 * HOUR {
                    let next = calendar.window(window[1]);
                    assert_eq!(next[0], window[1], "{name} {calendar:?}");
                    assert_eq!(calendar.window(next[1] - 1), next, "{name} {calendar:?}");
                    shortest[place] = shortest[place].min(next[1] - next[0]);
                    window = next;
                }
            }
        }
        zones += 1;
    }
    assert!(zones > 400, "{zones} zones");
    let calendars =
        [Calendar::day(), Calendar::week(Weekday::Sunday), Calendar::month(), Calendar::year()];
    for (calendar, shortest) in calendars.into_iter().zip(shortest) {
        assert!(micros(calendar.shortest()) <= shortest, "{calendar:?}");
    }
}

#[test]
fn edges_hold_the_window_before_and_three_more() {
    let berlin = in_zone(Calendar::month(), "Europe/Berlin");
    let edges = berlin.edges(at("2026-11-29T12:00:00Z"));
    let expected = [
        "2026-09-30T22",
        "2026-10-31T23",
        "2026-11-30T23",
        "2026-12-31T23",
        "2027-01-31T23",
        "2027-02-28T23",
    ];
    assert_eq!(edges, expected.map(|hour| at(&format!("{hour}:00:00Z"))));
    assert_eq!(berlin.end_after(at("2026-11-29T12:00:00Z"), 2), edges[4]);
}

#[test]
fn a_name_that_nothing_has_is_an_error() {
    let unknown = Calendar::day().time_zone("Europe/Berlln").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "nothing has the name `Europe/Berlln`: a valid name is the time zone `Europe/Berlin`"
    );
    assert!(Calendar::day().time_zone("").is_err());
    assert!(Calendar::day().time_zone("../../../etc/passwd").is_err());
    assert_eq!("sunday".parse(), Ok(Weekday::Sunday));
    assert!("Sun".parse::<Weekday>().is_err());
    // One zone has several spellings.
    assert_eq!(
        in_zone(Calendar::day(), "europe/berlin"),
        in_zone(Calendar::day(), "Europe/Berlin")
    );
}
