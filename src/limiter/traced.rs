//! A limiter whose decisions are events.

use std::sync::Arc;

use tokio::time::Instant;

use super::Limiter;
use super::wrapped::{Around, Begin, Wrapped};
use crate::core::digest::digest_of;
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;
use crate::core::{Charge, Decision, Error};
use crate::observe::{AskedCharge, Tracer, shows_decisions};

/// Makes events of decisions: every [`Limiter`] has this method with the feature `tracing`.
pub trait TraceExt: Limiter + Sized {
    /// Makes an event of each decision of this limiter with the crate
    /// [`tracing`](https://docs.rs/tracing), with `limiter` as a field. See [`Traced`].
    ///
    /// Write it after all wrappers that decide, including `or_else`, `shadow` and `switch`, so that
    /// it shows their decisions. Only `inspect`, `metrics` and `trace` may come later.
    #[must_use]
    fn trace(self, limiter: impl Into<Arc<str>>) -> Traced<Self> {
        let tracer = Arc::new(Tracer::new(limiter.into()));
        let around = Events { tracer, shown_key: ShownKey::None };
        Wrapped { inner: self, around }
    }
}

impl<L: Limiter> TraceExt for L {}

/// A limiter whose decisions are events. Made by [`TraceExt::trace`].
///
/// [Metrics and alerts][page] lists the events, with their fields. Refusals, and errors of kind
/// [`Request`](crate::ErrorKind::Request), are at DEBUG, so that callers cannot fill a log. Peeks,
/// operations, settlements that took everything and dropped futures make no events.
///
/// By default events do not show keys.
///
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/metrics_and_alerts/
pub type Traced<L> = Wrapped<L, Events>;

/// Makes events of the decisions of a limiter.
#[derive(Clone, Debug)]
pub struct Events {
    tracer: Arc<Tracer>,
    shown_key: ShownKey,
}

#[derive(Clone, Copy, Debug)]
enum ShownKey {
    None,
    Digest,
    Raw,
}

impl<L> Traced<L> {
    /// Shows a digest of each key: `h:` and the first half of its SHA-256 in hexadecimal digits.
    /// Default: keys are not shown.
    ///
    /// So you can find the events of one caller. A reader who guesses a key can compute its digest,
    /// and for IP addresses can try all of them. Several keys of one charge have commas between
    /// them; an absent key has an empty place.
    #[must_use]
    pub fn key_digests(self) -> Self {
        self.showing(ShownKey::Digest)
    }

    /// Shows each key itself. Default: keys are not shown.
    ///
    /// Use it only if keys are neither secret nor personal.
    #[must_use]
    pub fn raw_keys(self) -> Self {
        self.showing(ShownKey::Raw)
    }

    fn showing(mut self, shown_key: ShownKey) -> Self {
        self.around.shown_key = shown_key;
        self
    }
}

impl ShownKey {
    /// Returns the keys as one text, with commas between several keys.
    fn of(self, charge: &Charge) -> Option<String> {
        match self {
            Self::None => None,
            _ if charge.has_parts() => {
                let of = |part: &Option<Charge>| self.of(part.as_ref()?);
                let parts = charge.parts().iter().map(|part| of(part).unwrap_or_default());
                Some(parts.collect::<Vec<_>>().join(","))
            }
            Self::Digest => Some(digest_of(charge.key())),
            Self::Raw => Some(charge.key().to_owned()),
        }
    }
}

impl Around for Events {
    type Open = Trace;

    fn open(&self, charge: &Charge) -> Begin<Trace> {
        let asked = AskedCharge::of(charge);
        if asked.is_peek() {
            return Begin::Unseen;
        }
        let is_shown = shows_decisions();
        let key = if is_shown { self.shown_key.of(charge) } else { None };
        let tracer = Arc::clone(&self.tracer);
        Begin::Seen(Trace { tracer, asked, is_shown, key, begun: None })
    }

    fn begin(open: &mut Trace) -> Result<(), Error> {
        open.begun = open.is_shown.then(Instant::now);
        Ok(())
    }

    fn close(open: Trace, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        let Trace { tracer, asked, key, begun, .. } = open;
        tracer.record(&asked, key.as_deref(), begun, answer.as_ref());
        answer
    }

    fn settle(
        &self,
        reservation: Reservation,
        actual: u64,
        settle: impl FnOnce(Reservation) -> Result<Settlement, Reservation>,
    ) -> Result<Settlement, Reservation> {
        let is_more = actual > reservation.cost();
        let mut settlement = settle(reservation)?;
        if is_more && shows_decisions() {
            self.tracer.record_settlement(&mut settlement);
        }
        Ok(settlement)
    }

    fn keyless(&self, why: &Error, ask: impl FnOnce() -> Option<Decision>) -> Option<Decision> {
        let answer = ask();
        self.tracer.record_keyless(answer.as_ref().ok_or(why));
        answer
    }
}

/// A charge without an answer yet.
#[derive(Debug)]
pub struct Trace {
    tracer: Arc<Tracer>,
    asked: AskedCharge,
    /// True if a subscriber listens to decisions.
    is_shown: bool,
    key: Option<String>,
    begun: Option<Instant>,
}
