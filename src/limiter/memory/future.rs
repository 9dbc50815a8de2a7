//! The future of a decision in this process.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::store::Store;
use crate::algorithm::Algorithm;
use crate::limiter::Operation;
use crate::{Charge, Decision, Error};

/// The future of a decision in [`Memory`](crate::Memory).
///
/// It decides when it is polled first, and is then ready: dropped before, it takes nothing.
#[must_use = "nothing is decided until it is awaited"]
pub struct MemoryFuture<A: Algorithm> {
    store: Arc<Store<A>>,
    /// The operation. `None` for a check.
    operation: Option<Operation>,
    charge: Charge,
    is_done: bool,
}

impl<A: Algorithm> MemoryFuture<A> {
    #[inline]
    pub(super) fn new(store: Arc<Store<A>>, operation: Option<Operation>, charge: Charge) -> Self {
        Self { store, operation, charge, is_done: false }
    }
}

impl<A: Algorithm> Future for MemoryFuture<A> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!mem::replace(&mut this.is_done, true), "polled after it was done");
        Poll::Ready(match this.operation {
            None => this.store.decide(&mut this.charge),
            Some(operation) => this.store.change(operation, &this.charge),
        })
    }
}

debug_by_name!([A: Algorithm] MemoryFuture<A>);
