//! A guard of held units: it renews them while it lives, and releases them when it is dropped.
//!
//! A task sleeps until a third of the hold is over. The tasks of a limiter wake at common instants,
//! so that their renewals share calls. The reservation is in the guard, except while it is renewed:
//! the guard then tells the task what to settle.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Limiter, runtime};
use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement, SettlementSender};
use crate::core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::core::sync::{Mutex, lock};
use crate::core::{Error, ErrorKind};

/// Settles and renews reservations, for a limiter of any type.
pub(crate) trait SettleBy: Send + Sync {
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation>;
    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal>;
}

impl<L: Limiter + Send + Sync> SettleBy for L {
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        Limiter::settle(self, reservation, actual)
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        Limiter::renew(self, reservation)
    }
}

/// Settles a reservation, or says why the limiter cannot.
pub(crate) fn settle(by: &dyn SettleBy, reservation: Reservation, actual: u64) -> Settlement {
    by.settle(reservation, actual).unwrap_or_else(|_| {
        let message = "the limiter cannot settle what the request took";
        Settlement::from(Err(Error::new(ErrorKind::Configuration, message)))
    })
}

/// The units of an admission, held until this is dropped: see
/// [`LimiterExt::hold`](crate::LimiterExt::hold).
///
/// If they are units of a [`Concurrency`](crate::algorithm::Concurrency) or a
/// [`Budget`](crate::algorithm::Budget), they are renewed every third of `max_hold`. Renewals need
/// the runtime in which the guard was made, wherever it is dropped.
///
/// A drop settles the full cost. That releases units of a `Concurrency`. Units of other algorithms
/// stay taken, in a tuple too. [`settle`](Hold::settle) states another cost.
///
/// ```
/// use tower_sluice::algorithm::Concurrency;
/// use tower_sluice::{LimiterExt, Memory};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let exports = Memory::new("exports", Concurrency::new(2));
/// let mut admitted = exports.acquire("alice").await?;
/// let held = admitted.take_reservation().map(|units| exports.hold(units));
/// // The export runs, for minutes.
/// assert_eq!(exports.peek("alice").await?.remaining(), Some(1));
/// drop(held);
/// assert_eq!(exports.peek("alice").await?.remaining(), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "the units are released when it is dropped"]
pub struct Hold {
    cost: u64,
    shared: Arc<HeldUnits>,
    task: Option<AbortHandle>,
}

struct HeldUnits {
    by: Arc<dyn SettleBy>,
    place: Mutex<ReservationAt>,
    are_held: AtomicBool,
}

enum ReservationAt {
    Here(Reservation),
    /// The task renews it. Afterwards it settles these units.
    WithTask(Option<(u64, SettlementSender)>),
    Settled,
}

impl Hold {
    pub(crate) fn new(by: Arc<dyn SettleBy>, mut reservation: Reservation) -> Self {
        let (cost, renewal) = (reservation.cost(), by.renew(&mut reservation));
        let place = Mutex::new(ReservationAt::Here(reservation));
        let shared = Arc::new(HeldUnits { by, place, are_held: AtomicBool::new(true) });
        let task = renewal.zip(Handle::try_current().ok()).map(|(renewal, runtime)| {
            runtime.spawn(Arc::clone(&shared).renew(renewal)).abort_handle()
        });
        Self { cost, shared, task }
    }

    /// The units that were charged.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns false once a renewal did not find all units. A failover of the store lost them, it
    /// was emptied, the key was reset, or this process stood still for `max_hold`. They count no
    /// more, and are not taken anew: end the job, or charge again. True after an error of a renewal.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shared.are_held.load(Relaxed)
    }

    /// Settles the charge, and ends the hold: see [`Limiter::settle`].
    pub fn settle(self, actual: u64) -> Settlement {
        self.end(actual).unwrap_or_else(|| Settlement::gave_back(0))
    }

    /// Ends the hold. `None` if it had ended before.
    fn end(&self, actual: u64) -> Option<Settlement> {
        let mut place = lock(&self.shared.place);
        match mem::replace(&mut *place, ReservationAt::Settled) {
            ReservationAt::Here(reservation) => {
                drop(place);
                self.task.iter().for_each(AbortHandle::abort);
                Some(settle(&*self.shared.by, reservation, actual))
            }
            ReservationAt::WithTask(None) => {
                let (sender, settlement) = Settlement::begin();
                *place = ReservationAt::WithTask(Some((actual, sender)));
                Some(settlement)
            }
            ended => {
                *place = ended;
                None
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.end(self.cost));
    }
}

debug_by_name!([] Hold: cost);

impl HeldUnits {
    /// Takes the reservation, to renew it. `None` if the hold has ended.
    fn take(&self) -> Option<Reservation> {
        let mut place = lock(&self.place);
        match mem::replace(&mut *place, ReservationAt::WithTask(None)) {
            ReservationAt::Here(reservation) => Some(reservation),
            ended => {
                *place = ended;
                None
            }
        }
    }

    /// Puts the reservation back. Returns false if the hold has ended meanwhile: then it settles.
    fn put_back(&self, reservation: Reservation) -> bool {
        let mut place = lock(&self.place);
        match mem::replace(&mut *place, ReservationAt::Settled) {
            ReservationAt::WithTask(Some((actual, sender))) => {
                drop(place);
                let mut settlement = settle(&*self.by, reservation, actual);
                settlement.observe(|settled| sender.end(settled.clone()));
                false
            }
            _ => {
                *place = ReservationAt::Here(reservation);
                true
            }
        }
    }

    /// Renews until the guard is dropped, or until the units are no longer held.
    async fn renew(self: Arc<Self>, mut renewal: Renewal) {
        loop {
            sleep_until(due(&renewal)).await;
            let Some(mut reservation) = self.take() else { return };
            // An error may be gone at the next time, and of several limits one may still hold.
            if let Ok(false) = renewal.await {
                self.are_held.store(false, Relaxed);
            }
            let next = self.by.renew(&mut reservation);
            match (self.put_back(reservation), next) {
                (true, Some(next)) => renewal = next,
                _ => return,
            }
        }
    }
}

/// The next renewal of units while a service runs: their reservation stays where it is.
pub(crate) struct NextRenewal {
    due: Pin<Box<Sleep>>,
    renewal: Renewal,
}

impl NextRenewal {
    /// `None` outside of a runtime.
    pub(crate) fn new(renewal: Renewal) -> Option<Self> {
        let due = runtime::sleep_until(due(&renewal)).ok()?;
        Some(Self { due: Box::pin(due), renewal })
    }
}

impl Future for NextRenewal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.due.is_elapsed() {
            ready!(self.due.as_mut().poll(cx));
        }
        Pin::new(&mut self.renewal).poll(cx).map(|_| ())
    }
}

/// Returns the instant at which a renewal shall run.
pub(crate) fn due(renewal: &Renewal) -> Instant {
    let due = renewal.due().map(Instant::from_std);
    due.unwrap_or_else(|| Instant::now() + renewal.max_hold() / 3)
}

/// The instants at which a limiter's holds are renewed, counted from its first renewal.
#[derive(Default)]
pub(crate) struct RenewalTimes(OnceLock<Instant>);

impl RenewalTimes {
    /// Returns the next instant: at most a third of the hold from now, and the same for all holds
    /// of that time. For units that have waited, it is so long after their charge.
    pub(crate) fn next(&self, max_hold: Duration, waited: Duration) -> std::time::Instant {
        let now = Instant::now();
        let begin = *self.0.get_or_init(|| now);
        // The instants are a twelfth apart: three of them at least, and four at most, are in a third.
        let step = (max_hold / 12).max(Duration::from_micros(1)).as_micros();
        let passed = now.saturating_duration_since(begin).as_micros();
        let steps = passed / step + 4;
        let due = begin + Duration::from_micros(u64::try_from(steps * step).unwrap_or(u64::MAX));
        due.min(now + (max_hold / 3).saturating_sub(waited)).into_std()
    }
}
