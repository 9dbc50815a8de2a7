//! The traits that mark this crate's types as algorithms.

pub trait Sealed {}

/// An algorithm of one quota, such as a member of a tuple.
pub trait Single {}
