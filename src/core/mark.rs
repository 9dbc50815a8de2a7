//! The mark of the state that a charge left, which a refund needs.

use super::quota::INEXACT;

/// Identifies the state that a decision wrote, and holds the data that a refund needs of the state
/// before it.
///
/// It has four numbers for each quota; unused ones are 0. It has a list if four numbers are too
/// few. The first number grows from one reservation of a key to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The numbers of the first quota.
    pub(crate) first: [i64; 4],
    /// `None` if both parts are empty, as under one quota of most algorithms.
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rest {
    /// The numbers of the other quotas, if there are any.
    more: Box<[[i64; 4]]>,
    /// The list of each quota; empty if all lists are empty.
    lists: Box<[Box<[i64]>]>,
    /// The birth of each quota's key, or the only one; empty if no key was reset before.
    births: Box<[i64]>,
}

/// The births of the keys of a lease, of which more units are taken. It travels with a penalty,
/// which takes nothing of keys that were reset since.
pub(crate) struct Births(pub(crate) Box<[i64]>);

impl Mark {
    /// The mark of units that are no longer held: those of an era that never comes.
    pub(crate) fn lost() -> Self {
        Self::from([INEXACT as i64 - 1, 0, 0, 0])
    }

    /// The mark of one quota.
    pub(crate) fn of(&self, index: usize) -> Self {
        let numbers = match index {
            0 => self.first,
            _ => self.more().get(index - 1).copied().unwrap_or_default(),
        };
        Self::from(numbers).with_list(self.list(index).into()).with_births(&[self.birth(index)])
    }

    /// The birth of a quota's key: the number of its last reset before the charge. 0 if it was not
    /// reset. A settlement of another birth than the key's does nothing.
    pub(crate) fn birth(&self, index: usize) -> i64 {
        self.births().get(index).copied().unwrap_or(0)
    }

    pub(crate) fn births(&self) -> &[i64] {
        self.rest.as_ref().map_or(&[], |rest| &rest.births)
    }

    /// The list of one quota.
    pub(crate) fn list(&self, index: usize) -> &[i64] {
        let lists = self.rest.as_ref().map_or(&[][..], |rest| &rest.lists);
        lists.get(index).map_or(&[], |list| list)
    }

    /// Sets the births of the keys.
    pub(crate) fn with_births(mut self, births: &[i64]) -> Self {
        if births.iter().any(|birth| *birth > 0) {
            self.rest.get_or_insert_default().births = births.into();
        }
        self
    }

    fn more(&self) -> &[[i64; 4]] {
        self.rest.as_ref().map_or(&[], |rest| &rest.more)
    }

    /// Returns the mark as arguments of a script: four words for each quota.
    #[doc(hidden)]
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (place, numbers) in [&self.first].into_iter().chain(self.more()).enumerate() {
            words.extend(numbers.iter().map(i64::to_string));
            if let list @ [_, ..] = self.list(place) {
                let listed: String = list.iter().map(|units| format!(",{units}")).collect();
                words.pop();
                words.push(listed);
            }
        }
        words
    }

    /// Sets the list of the only quota.
    pub(crate) fn with_list(mut self, list: Box<[i64]>) -> Self {
        if !list.is_empty() {
            self.rest.get_or_insert_default().lists = [list].into();
        }
        self
    }
}

impl From<[i64; 4]> for Mark {
    #[inline]
    fn from(first: [i64; 4]) -> Self {
        Self { first, rest: None }
    }
}

/// The marks of several quotas, in order.
impl From<Vec<Mark>> for Mark {
    fn from(each: Vec<Mark>) -> Self {
        let mut numbers = each.iter().map(|one| one.first);
        let first = numbers.next().unwrap_or_default();
        let more: Box<[_]> = numbers.collect();
        let listed = each.iter().any(|one| !one.list(0).is_empty());
        let lists: Box<[_]> =
            each.iter().filter(|_| listed).map(|one| one.list(0).into()).collect();
        let has_rest = !more.is_empty() || !lists.is_empty();
        Self { first, rest: has_rest.then(|| Rest { more, lists, births: Box::default() }.into()) }
    }
}
