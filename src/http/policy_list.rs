//! The field `RateLimit-Policy`. It changes only with the policies, so each thread keeps the last
//! fields that it wrote.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use http::HeaderValue;

use super::structured;
use crate::core::decision::{PolicyReport, Terms};

/// The most lists that a thread keeps. A new list replaces the oldest.
const MOST: usize = 32;

thread_local! {
    static KEPT: RefCell<VecDeque<Rc<PolicyList>>> = const { RefCell::new(VecDeque::new()) };
}

/// The form of the list's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `"api";q=100;w=60`, as in draft-11.
    Named,
    /// `100;w=60`, as in draft-07 and -06.
    Bare,
}

/// A list of policies, and its field.
pub(super) struct PolicyList {
    form: Form,
    members: Vec<(String, Terms)>,
    /// `None` if the list is empty.
    pub(super) field: Option<HeaderValue>,
    /// The policies' names in the field.
    pub(super) names: Vec<String>,
}

impl PolicyList {
    /// Returns the list of these policies. It is not kept if it has a partition key.
    pub(super) fn of<'a>(
        form: Form,
        policies: impl Iterator<Item = PolicyReport<'a>> + Clone,
    ) -> Rc<Self> {
        let make = || Rc::new(Self::new(form, policies.clone()));
        let kept = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if let Some(list) = kept.iter().find(|list| list.says(form, policies.clone())) {
                return Rc::clone(list);
            }
            let list = make();
            if policies.clone().all(|policy| policy.partition_key().is_none()) {
                if kept.len() == MOST {
                    kept.pop_front();
                }
                kept.push_back(Rc::clone(&list));
            }
            list
        });
        // The thread is ending.
        kept.unwrap_or_else(|_| make())
    }

    fn new<'a>(form: Form, policies: impl Iterator<Item = PolicyReport<'a>> + Clone) -> Self {
        let text = match form {
            Form::Named => structured::policies(policies.clone()),
            Form::Bare => structured::quotas(policies.clone()),
        };
        let names = structured::names(policies.clone());
        let member = |policy: PolicyReport<'_>| (policy.name().to_owned(), policy.terms());
        let field = text.and_then(|text| HeaderValue::try_from(text).ok());
        Self { form, members: policies.map(member).collect(), field, names }
    }

    /// Returns true if it is the list of these policies. A kept list has no partition key.
    fn says<'a>(&self, form: Form, policies: impl Iterator<Item = PolicyReport<'a>>) -> bool {
        let members = self.members.iter().map(|(name, terms)| (&**name, *terms));
        self.form == form && members.eq(policies.map(|policy| (policy.name(), policy.terms())))
    }
}

#[cfg(test)]
mod tests {
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
}
