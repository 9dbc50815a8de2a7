//! The traits that mark this crate's types as algorithms. Each type implements them in its own
//! file.

pub trait Sealed {}

/// An algorithm of one quota, as a tuple's members are.
pub trait Single {}
