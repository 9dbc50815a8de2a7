//! Rows whose windows are those of a calendar.

use tower_sluice::algorithm::{AnyAlgorithm, Calendar, FixedWindow, Weekday};

use super::*;

fn algorithm(fields: &str) -> AnyAlgorithm {
    let row = format!("{{ name = 'p', algorithm = 'fixed_window', limit = 5, {fields} }}");
    let policies = policies(&row);
    policies.policies()[0].policy().chosen_algorithm().expect("not Java's")
}

fn error(fields: &str) -> String {
    let row = format!("{{ name = 'p', algorithm = 'fixed_window', limit = 5, {fields} }}");
    Policies::builder().build(&rows(&row)).unwrap_err().to_string()
}

#[test]
fn a_row_names_its_calendar_and_its_time_zone() {
    let window = |calendar| AnyAlgorithm::from(FixedWindow::calendar(5, calendar));
    let berlin = |calendar: Calendar| calendar.time_zone("Europe/Berlin").expect("a zone");
    for (fields, calendar) in [
        ("calendar = 'day'", Calendar::day()),
        ("calendar = 'week'", Calendar::week(Weekday::Monday)),
        ("calendar = 'week', week_begins = 'sunday'", Calendar::week(Weekday::Sunday)),
        ("calendar = 'month'", Calendar::month()),
        ("calendar = 'month', time_zone = 'Europe/Berlin'", berlin(Calendar::month())),
        ("calendar = 'month', month_begins = 31", Calendar::month_from(31)),
        ("calendar = 'year', time_zone = 'Europe/Berlin'", berlin(Calendar::year())),
    ] {
        assert_eq!(algorithm(fields), window(calendar), "{fields}");
    }
}

#[test]
fn a_wrong_calendar_names_its_field() {
    for (fields, field, why) in [
        ("calendar = 'fortnight'", "calendar", "unknown variant `fortnight`"),
        ("calendar = 'day', period = '1day'", "period", "not both"),
        ("calendar = 'day', anchored = true", "anchored", "does not fit"),
        ("calendar = 'day', week_begins = 'monday'", "week_begins", "does not fit"),
        ("calendar = 'week', month_begins = 3", "month_begins", "does not fit"),
        ("calendar = 'week', week_begins = 'Mon'", "week_begins", "the name `Mon`"),
        ("calendar = 'month', month_begins = 32", "month_begins", "from 1 to 31"),
        ("calendar = 'month', time_zone = 'Berlin'", "time_zone", "the name `Berlin`"),
        ("period = '1h', time_zone = 'UTC'", "time_zone", "does not fit"),
    ] {
        let error = error(fields);
        assert!(error.contains(&format!("{field}: ")) && error.contains(why), "{fields}: {error}");
    }
    let bucket = "{ name = 'p', limit = 5, calendar = 'day' }";
    let error = Policies::builder().build(&rows(bucket)).unwrap_err().to_string();
    assert!(error.contains("calendar: a token_bucket has no such setting"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_limited_until_the_window_ends() {
    let policies = policies(
        "{ name = 'p', algorithm = 'fixed_window', limit = 2, calendar = 'year', \
           time_zone = 'Europe/Berlin' }",
    );
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 3).await, (2, vec![], 1));
    let refused = decide(&policies, &call).await;
    let longest = Duration::from_secs(366 * 86_400);
    assert!(refused.retry_after().is_some_and(|wait| wait <= longest));
    let window = refused.quota().expect("a quota").period().as_secs();
    assert!([365, 366].contains(&(window / 86_400)), "{window}");
}

/// A suspended plan, alone and beside others.
#[tokio::test(start_paused = true)]
async fn a_limit_of_0_admits_nothing_in_a_calendar() {
    for plans in [
        "limit = 0",
        "limit = 5, plan = 'header:plan', quotas = { free = 0 }",
        "limit = 0, plan = 'header:plan', quotas = { gold = 5 }",
    ] {
        let row = "{ name = 'p', algorithm = 'fixed_window', calendar = 'month', ";
        let policies = policies(&format!("{row} {plans} }}"));
        let refused = decide(&policies, &request("GET", "/", &["plan: free"])).await;
        assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None }, "{plans}");
        let gold = decide(&policies, &request("GET", "/", &["plan: gold"])).await;
        assert_eq!(gold.is_admitted(), plans != "limit = 0", "{plans}");
    }
}
