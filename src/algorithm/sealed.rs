//! The traits that mark this crate's types as algorithms.

pub trait Sealed {}

/// An algorithm of one quota, as a tuple's members are.
pub trait Single {}
