//! A limiter around a limiter: it records what it is asked, and answers when the test lets it.

use std::future::Future;

use tokio::sync::Semaphore;

use crate::*;

/// More checks than a test makes.
const OPEN: usize = 1 << 32;

/// The trouble that a check meets, by its cost.
type Trouble = Arc<dyn Fn(u64) -> Option<Error> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Recorder<L> {
    inner: L,
    checks: Arc<Mutex<Vec<(u64, Duration)>>>,
    settled: Arc<Mutex<Vec<(u64, u64)>>>,
    gate: Arc<Semaphore>,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl<L: Limiter> Recorder<L> {
    pub(crate) fn new(inner: L) -> Self {
        Self {
            inner,
            checks: Arc::default(),
            settled: Arc::default(),
            gate: Arc::new(Semaphore::new(OPEN)),
            trouble: Arc::default(),
        }
    }

    /// The costs that were asked for.
    pub(crate) fn costs(&self) -> Vec<u64> {
        self.checks.lock().unwrap().iter().map(|(cost, _)| *cost).collect()
    }

    /// The longest wait of each check.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.checks.lock().unwrap().iter().map(|(_, wait)| *wait).collect()
    }

    /// Returns the settlements: the cost of a reservation, and the actual one.
    pub(crate) fn settled(&self) -> Vec<(u64, u64)> {
        self.settled.lock().unwrap().clone()
    }

    /// Forgets what was recorded.
    pub(crate) fn clear(&self) {
        self.checks.lock().unwrap().clear();
        self.settled.lock().unwrap().clear();
    }

    /// Holds back every check that begins now, until it is let through.
    pub(crate) fn close(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets some of the checks through that are held back.
    pub(crate) fn let_through(&self, checks: usize) {
        self.gate.add_permits(checks);
    }

    /// Lets every check through.
    pub(crate) fn open(&self) {
        self.gate.add_permits(OPEN);
    }

    /// Makes checks fail, or panic.
    pub(crate) fn trouble(&self, with: impl Fn(u64) -> Option<Error> + Send + Sync + 'static) {
        *self.trouble.lock().unwrap() = Some(Arc::new(with));
    }

    pub(crate) fn no_trouble(&self) {
        *self.trouble.lock().unwrap() = None;
    }
}

impl<L> Limiter for Recorder<L>
where
    L: Limiter + Clone + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    type Future = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let cost = charge.units();
        let (this, check) = (self.clone(), self.inner.check(charge));
        let wait = charge.longest_wait().unwrap_or_default();
        Box::pin(async move {
            this.checks.lock().unwrap().push((cost, wait));
            this.gate.acquire().await.expect("open").forget();
            let trouble = this.trouble.lock().unwrap().clone();
            if let Some(error) = trouble.and_then(|trouble| trouble(cost)) {
                return Err(error);
            }
            check.await
        })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.settled.lock().unwrap().push((reservation.cost(), actual));
        self.inner.settle(reservation, actual)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let (this, answer) = (self.clone(), self.inner.operate(operation, charge)?);
        let deadline = charge.deadline();
        Some(Box::pin(async move {
            // As a store does.
            if deadline.is_some_and(|deadline| deadline <= Instant::now().into_std()) {
                return Err(Error::new(ErrorKind::Saturation, "the time is over"));
            }
            this.gate.acquire().await.expect("open").forget();
            answer.await
        }))
    }
}
