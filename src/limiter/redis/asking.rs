//! The asker's side of a charge: heard in time, or told why not; and given back if nobody is left to hear.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::dispatch::{Dispatcher, Ticket};
use super::flight::Flight;
use super::lane::{Answer, Word};
use super::request::Request;
use crate::{Class, Error};

pin_project! {
    /// Waits for what is decided of one charge. Nothing is sent until it is polled.
    pub(super) struct Asking {
        dispatcher: Arc<Dispatcher>,
        // What is to be asked.
        request: Option<Request>,
        deadline: Instant,
        ticket: Option<Ticket>,
        // The flight of a charge that found nobody to fly with.
        lone: Option<Flight>,
        #[pin]
        end: Option<Sleep>,
    }

    impl PinnedDrop for Asking {
        fn drop(this: Pin<&mut Self>) {
            this.give_up();
        }
    }
}

impl Asking {
    pub(super) fn new(dispatcher: Arc<Dispatcher>, request: Request, deadline: Instant) -> Self {
        Self { dispatcher, request: Some(request), deadline, ticket: None, lone: None, end: None }
    }

    /// Listens no more: what was or will be decided is undone.
    fn give_up(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(mut ticket) = this.ticket.take() {
            ticket.word.close();
            if let Ok(Word::Told(Ok(answer))) = ticket.word.try_recv() {
                this.dispatcher.undo(answer);
            }
        }
        // What is on its way goes on alone: its answer finds nobody, and is undone. It ends at its deadline.
        if let (Some(lone), Ok(runtime)) = (this.lone.take(), Handle::try_current()) {
            runtime.spawn(lone);
        }
    }
}

impl Future for Asking {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            let Some(ticket) = this.ticket else {
                let request = this.request.take().expect("polled after it was done");
                let (ticket, lone) = this.dispatcher.submit(request, *this.deadline)?;
                // A lone flight keeps to the deadline by itself.
                this.end.set(lone.is_none().then(|| sleep_until(*this.deadline)));
                (*this.ticket, *this.lone) = (Some(ticket), lone);
                continue;
            };
            if let Some(lone) = this.lone
                && lone.as_mut().poll(cx).is_ready()
            {
                *this.lone = None;
            }
            let error = match Pin::new(&mut ticket.word).poll(cx) {
                Poll::Ready(Ok(Word::Told(outcome))) => {
                    *this.ticket = None;
                    return Poll::Ready(outcome);
                }
                Poll::Ready(Ok(Word::Unsent(request))) => {
                    (*this.request, *this.ticket) = (Some(request), None);
                    continue;
                }
                Poll::Ready(Err(_)) => {
                    Error::new(Class::Infrastructure, "the runtime that carried the charge is gone")
                }
                Poll::Pending => {
                    let Some(end) = this.end.as_pin_mut() else { return Poll::Pending };
                    ready!(end.poll(cx));
                    this.dispatcher.too_late(ticket)
                }
            };
            self.give_up();
            return Poll::Ready(Err(error));
        }
    }
}
