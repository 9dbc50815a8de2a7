//! Which types are algorithms: those of this crate. Each says so in its own file.

pub trait Sealed {}

/// An algorithm of one quota, as a tuple's members are.
pub trait Single {}
