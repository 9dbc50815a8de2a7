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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `"api";q=100;w=60`, as in draft-11.
    Named,
    /// `100;w=60`, as in draft-07 and -06.
    Bare,
}

pub(super) struct PolicyList {
    form: Form,
    members: Vec<(String, Terms)>,
    /// `None` if the list is empty.
    pub(super) field: Option<HeaderValue>,
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
mod tests;
