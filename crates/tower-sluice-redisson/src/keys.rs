//! The names of a limiter's keys, equal to Redisson's.

use std::sync::Arc;

use tower_sluice::{Error, ErrorKind};

/// The longest name in bytes.
const MAX_NAME_LENGTH: usize = 64 * 1024;

/// The keys of one limiter: its name, the shared value and permits, and the value and permits of
/// one client.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    keys: Arc<[String; 5]>,
}

impl Keys {
    /// The keys of the limiter called `name`, for the client with this id.
    ///
    /// # Errors
    ///
    /// If a cluster would store them on several servers.
    pub(super) fn new(name: &str, client: &str) -> Result<Self, Error> {
        check_name(name)?;
        let keeps_together = match name.split_once('{') {
            Some((_, rest)) => rest.split_once('}').is_some_and(|(tag, _)| !tag.is_empty()),
            None => !name.contains('}'),
        };
        if !keeps_together {
            let message = "the braces of the name put its keys into several slots of a cluster";
            return Err(Error::new(ErrorKind::Request, message));
        }
        let stem = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let (value, permits) = (format!("{stem}:value"), format!("{stem}:permits"));
        let (own_value, own_permits) = (format!("{value}:{client}"), format!("{permits}:{client}"));
        Ok(Self { keys: [name.to_owned(), value, permits, own_value, own_permits].into() })
    }

    pub(super) fn name(&self) -> &str {
        &self.keys[0]
    }

    pub(super) fn all(&self) -> &[String] {
        &*self.keys
    }
}

/// Checks the length of a name.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let refuse = |message| Err(Error::new(ErrorKind::Request, message));
    match name.len() {
        0 => refuse("the key is empty"),
        1..=MAX_NAME_LENGTH => Ok(()),
        _ => refuse("the key is longer than 64 KiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis_once::calls::hash_slot;

    #[test]
    fn keys_are_those_of_redisson() {
        let keys = Keys::new("orders", "id").unwrap();
        let expected = [
            "orders",
            "{orders}:value",
            "{orders}:permits",
            "{orders}:value:id",
            "{orders}:permits:id",
        ];
        assert_eq!(keys.all(), expected);
        assert_eq!(Keys::new("a:{b}:c", "id").unwrap().all()[1], "a:{b}:c:value");
    }

    #[test]
    fn names_whose_keys_a_cluster_would_separate_are_errors() {
        for name in ["", "a{b", "{}x", "a}b", "{", "}", "a{}b{c}", &"x".repeat(64 * 1024 + 1)] {
            assert_eq!(Keys::new(name, "id").unwrap_err().kind(), ErrorKind::Request, "{name:.9}");
        }
        for name in ["a", "a b", "{a}", "a{b}c", "{a}b}c", "{{a}", "é", "a:b"] {
            let keys = Keys::new(name, "i}{d").unwrap();
            assert!(keys.all().iter().all(|key| hash_slot(key) == hash_slot(name)), "{keys:?}");
        }
    }
}
