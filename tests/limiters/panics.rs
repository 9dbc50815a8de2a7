//! A programmer's mistake panics at the line that says it, and names the limiter.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use tower_sluice::by_api_key;

use super::*;

thread_local! {
    /// The line of this file that the last panic of this thread showed.
    static SHOWN: RefCell<Option<u32>> = const { RefCell::new(None) };
}

/// Panics at its own line with `text`.
fn shows(line: u32, text: &str, wrong: impl FnOnce()) {
    SHOWN.set(None);
    let panic = catch_unwind(AssertUnwindSafe(wrong)).expect_err(text);
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or(panic.downcast_ref::<&str>().copied()).expect("a text");
    assert!(message.contains(text), "{message}");
    assert_eq!(SHOWN.take(), Some(line), "{message}");
}

/// Notes where a panic happens, and prints nothing.
fn note_lines() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        let here = panic.location().filter(|location| location.file() == file!());
        SHOWN.set(here.map(|location| location.line()));
        if here.is_none() {
            before(panic);
        }
    }));
}

#[test]
fn panics_show_the_callers_line_and_the_limiters_name() {
    note_lines();
    let five = Quota::per_second(5);
    let odd = FixedWindow::new(five.burst(6));
    let none = Duration::ZERO;
    shows(line!(), "a quota of 0", || _ = Quota::per_second(0));
    shows(line!(), "a quota of 0", || _ = Quota::per_minute(0));
    shows(line!(), "a quota of 0", || _ = Quota::per_hour(0));
    shows(line!(), "a quota of 0", || _ = Quota::per_day(0));
    shows(line!(), "the period is 0", || _ = Quota::new(1, none));
    shows(line!(), "a burst of 0", || _ = five.burst(0));
    let why = "limiter `api`: the algorithm cannot follow its quota: a window has no burst";
    shows(line!(), why, || _ = Memory::new("api", odd));
    shows(line!(), "needs a name", || _ = Memory::new("", odd));
    shows(line!(), "invalid name of a header", || _ = by_api_key("a b"));
    shows(line!(), "policy", || _ = Description::new().names(["?"]));
    #[cfg(feature = "redis")]
    {
        use tower_sluice::algorithm::TokenBucket;
        use tower_sluice::redis::AllAtOnce;
        use tower_sluice::{Pool, Redis};
        let pool = |port| Pool::connect(&format!("redis://127.0.0.1:{port}")).expect("an address");
        let one = pool(1);
        shows(line!(), why, || _ = Redis::new("api", odd, one));
        let one = pool(1);
        shows(line!(), "needs a name", || _ = Redis::new("", odd, one));
        let [user, all] = [("user", 1), ("all", 2)]
            .map(|(name, port)| Redis::new(name, TokenBucket::new(five), pool(port)));
        shows(line!(), "`all` has another", || _ = AllAtOnce::of_parts((user, all)));
    }
}

#[test]
fn trying_without_a_name_is_an_error() {
    let odd = FixedWindow::new(Quota::per_second(5).burst(6));
    let error = Memory::try_new("", odd).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "a limiter needs a name");
    #[cfg(feature = "redis")]
    {
        let pool = tower_sluice::Pool::connect("redis://127.0.0.1:1").expect("an address");
        let error = tower_sluice::Redis::try_new("", odd, pool).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "a limiter needs a name");
    }
}
