//! The decision of a call whose refusal is an error.

use std::ops::{Deref, DerefMut};

use crate::core::Decision;

/// The decision of a call that you need not look at: [`acquire`] returns a refusal as its error,
/// and an operation such as [`reset`] has none. The methods of a [`Decision`] read it.
///
/// [`acquire`]: crate::LimiterExt::acquire
/// [`reset`]: crate::LimiterExt::reset
#[derive(Debug)]
pub struct Done(pub Decision);

impl Deref for Done {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

impl DerefMut for Done {
    fn deref_mut(&mut self) -> &mut Decision {
        &mut self.0
    }
}
