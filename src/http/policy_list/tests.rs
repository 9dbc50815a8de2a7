use super::*;
use std::time::Duration;

use crate::core::Quota;
use crate::core::decision::QuotaUnit;

fn field(form: Form, policies: &[PolicyReport<'_>]) -> String {
    let list = PolicyList::of(form, policies.iter().copied());
    list.field.as_ref().unwrap().to_str().unwrap().to_owned()
}

/// Each change of a policy makes another list, even while the old list is kept.
#[test]
fn a_list_says_what_its_policies_say_now() {
    let api = PolicyReport::new("api", Quota::per_second(5));
    let day = PolicyReport::new("day", Quota::per_day(9));
    let burst = PolicyReport::new("api", Quota::per_second(5).burst(7));
    let bytes = api.with_unit(QuotaUnit::ContentBytes);
    for _ in 0..2 {
        for (form, policies, text) in [
            (Form::Named, &[api][..], r#""api";q=5;w=1"#),
            (Form::Bare, &[api], "5;w=1"),
            (Form::Named, &[api, day], r#""api";q=5;w=1, "day";q=9;w=86400"#),
            (Form::Named, &[day, api], r#""day";q=9;w=86400, "api";q=5;w=1"#),
            (Form::Named, &[day], r#""day";q=9;w=86400"#),
            (Form::Named, &[burst], r#""api";q=7;w=2"#),
            (Form::Named, &[bytes], r#""api";q=5;qu="content-bytes";w=1"#),
        ] {
            // The decision is not part of it.
            let decided = policies.iter().map(|one| one.with_report(3, Duration::ZERO));
            assert_eq!(field(form, policies), text);
            assert_eq!(field(form, &decided.collect::<Vec<_>>()), text);
        }
    }
}

#[test]
fn a_list_is_written_once_and_few_are_kept() {
    let names: Vec<String> = (0..2 * MOST).map(|number| format!("api-{number}")).collect();
    let list = |name| {
        let policy = PolicyReport::new(name, Quota::per_second(5));
        PolicyList::of(Form::Named, [policy].into_iter())
    };
    let first = list(&names[0]);
    assert!(Rc::ptr_eq(&first, &list(&names[0])));
    for name in &names {
        assert_eq!(list(name).names, [name.as_str()]);
    }
    assert!(KEPT.with_borrow(|kept| kept.len() == MOST));
    assert!(!Rc::ptr_eq(&first, &list(&names[0])));
}
