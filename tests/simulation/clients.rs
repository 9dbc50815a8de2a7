//! The client of a world: for each process a limiter as a plan describes it, and a layer around it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::algorithm::{AnyAlgorithm, InLua, IntoAlgorithm};
use tower_sluice::limiter::{AllInTurn, Boxed, Breaker, Shadow, ShadowCounts, Switch};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::respond::DecisionReport;
use tower_sluice::{
    Charge, HttpResponder, LimiterExt, Memory, Pool, RateLimitLayer, Redis, Settle,
};
use tower_sluice_policies::Policies;

use super::clock::micros;
use super::plan::{Asking, Ban, MILLISECOND, Plan};
use super::world::TIMEOUT;

/// The key that all charges share where several limiters are asked.
pub const EVERYBODY: &str = "all";

/// The service behind a layer, and in front of it.
pub type Service = BoxCloneService<Request<()>, Response<()>, Never>;

/// The error of a service that is never ready.
#[derive(Debug)]
pub struct Never;

/// A service that is never ready. Every second copy fails to become so.
struct Unready(bool);

impl Clone for Unready {
    fn clone(&self) -> Self {
        Self(fastrand::bool())
    }
}

impl tower::Service<Request<()>> for Unready {
    type Response = Response<()>;
    type Error = Never;
    type Future = Ready<Result<Response<()>, Never>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Never>> {
        if self.0 { Poll::Ready(Err(Never)) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Err(Never))
    }
}

/// The limiters of one process, which share what a process shares.
pub struct Process {
    pub limiter: Boxed,
    pub service: Service,
    /// One whose inner service is never ready, or fails to become so.
    unready: Service,
    /// One that refunds each request.
    refunding: Service,
    pub switch: Switch,
    pub policies: Option<Policies>,
    shadow: Option<Shadow<Boxed>>,
}

/// A request's charge, and whether finding its key panics.
#[derive(Clone)]
pub struct Question {
    pub charge: Charge,
    pub panics: bool,
}

impl Process {
    pub fn new(plan: &Plan, pool: &Pool) -> Self {
        let switch = Switch::new();
        let mut shadow = None;
        let policies = plan.tables.first().map(|(_, table)| {
            let policies = Policies::builder().redis(pool.clone()).decision_timeout(TIMEOUT);
            policies.build(&plan.rows(table)).expect("a table")
        });
        let in_store = match &policies {
            Some(policies) => policies.clone().boxed(),
            None => in_store(plan, pool),
        };
        let limiter = around(plan, in_store, &switch, &mut shadow);
        let key = |request: &Request<()>| {
            let question = request.extensions().get::<Question>().cloned();
            if question.as_ref().is_some_and(|question| question.panics) {
                // Without the message that a hook would print.
                std::panic::resume_unwind(Box::new("as planned"));
            }
            question.map(|question| question.charge)
        };
        let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
        let respond = HttpResponder::new().report_in_response();
        let layer = RateLimitLayer::new(limiter.clone(), key).respond(respond);
        let refunding = layer.clone().settle(|_| Settle::Refund).layer(inner);
        Self {
            limiter,
            service: BoxCloneService::new(
                layer.clone().layer(inner).map_err(|never| match never {}),
            ),
            unready: BoxCloneService::new(layer.layer(Unready(false))),
            refunding: BoxCloneService::new(refunding.map_err(|never| match never {})),
            switch,
            policies,
            shadow,
        }
    }

    /// Returns the counts of its shadow.
    pub fn shadow_counts(&self) -> ShadowCounts {
        match &self.shadow {
            Some(shadow) => shadow.counts(),
            None => self.switch.shadow_counts(),
        }
    }

    /// Sends a request that keeps nothing of what it is charged, if it returns at all.
    pub async fn send_in_vain(&self, charge: Charge, is_ready: bool) {
        let mut request = Request::new(());
        request.extensions_mut().insert(Question { charge, panics: false });
        let service = if is_ready { &self.refunding } else { &self.unready };
        let _ = service.clone().oneshot(request).await;
    }

    /// Sends a request through the layer.
    pub async fn send(&self, charge: Charge, panics: bool) -> Result<DecisionReport, StatusCode> {
        let mut request = Request::new(());
        request.extensions_mut().insert(Question { charge, panics });
        let mut response = self.service.clone().oneshot(request).await.expect("infallible");
        match response.status() {
            StatusCode::OK => Ok(response.extensions_mut().remove().expect("a decision")),
            status => Err(status),
        }
    }
}

/// The limiter that asks the store.
fn in_store(plan: &Plan, pool: &Pool) -> Boxed {
    let first = &plan.limits[0];
    match (plan.asking, &first.algorithms[..]) {
        (Asking::Alone, [one]) => match *one {
            AnyAlgorithm::TokenBucket(one) => redis(plan, first.name, one, pool).boxed(),
            AnyAlgorithm::Budget(one) => redis(plan, first.name, one, pool).boxed(),
            AnyAlgorithm::FixedWindow(one) => redis(plan, first.name, one, pool).boxed(),
            AnyAlgorithm::SlidingLog(one) => redis(plan, first.name, one, pool).boxed(),
            other => redis(plan, first.name, other, pool).boxed(),
        },
        (Asking::Alone, several) => redis(plan, first.name, several.to_vec(), pool).boxed(),
        (asking, _) => {
            let [one, other] = [0, 1].map(|at| {
                let limit = &plan.limits[at];
                redis(plan, limit.name, limit.algorithms[0], pool)
            });
            let keys = |charge: &Charge| {
                let everybody = Charge::new(EVERYBODY);
                [charge.clone(), everybody]
            };
            match asking {
                Asking::AllAtOnce => AllAtOnce::new((one, other), keys).boxed(),
                _ => AllInTurn::new([one.boxed(), other.boxed()], keys).boxed(),
            }
        }
    }
}

fn redis<A: InLua>(
    plan: &Plan,
    name: &'static str,
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    pool: &Pool,
) -> Redis<A> {
    Redis::new(name, algorithm, pool.clone())
        .decision_timeout(TIMEOUT)
        .max_batch_size(plan.max_batch_size)
        .max_in_flight(plan.max_in_flight)
        .queue_capacity(plan.queue_capacity)
}

/// The time of the world: a limiter in memory decides by the system's clock otherwise.
fn time() -> Duration {
    Duration::from_micros(micros().cast_unsigned())
}

/// The limiters around it.
fn around(
    plan: &Plan,
    limiter: Boxed,
    switch: &Switch,
    shadow: &mut Option<Shadow<Boxed>>,
) -> Boxed {
    let stack = &plan.stack;
    let mut limiter = limiter;
    if let Some(units) = stack.lease {
        limiter = limiter.lease(units).boxed();
    }
    if stack.has_deny_cache {
        let cache = limiter.deny_cache();
        limiter = match stack.max_keys {
            Some(keys) => cache.max_keys(keys).boxed(),
            None => cache.boxed(),
        };
    }
    if stack.has_breaker {
        let breaker = Breaker::new().min_failures(3).pause(100 * MILLISECOND);
        limiter = match stack.slow_after {
            Some(time) => limiter.breaker(breaker.slow_after(time)).boxed(),
            None => limiter.breaker(breaker).boxed(),
        };
    }
    if let Some(timeout) = stack.timeout {
        limiter = limiter.timeout(timeout).boxed();
    }
    if let Some(Ban { refusals, window, time }) = stack.ban {
        limiter = limiter.ban_after(refusals, window, time).boxed();
    }
    if stack.is_shadow {
        limiter = shadow.insert(limiter.shadow()).clone().boxed();
    }
    if !stack.switches.is_empty() {
        limiter = limiter.switch(switch).boxed();
    }
    if stack.has_fallback {
        let algorithms = plan.limits[0].algorithms.clone();
        limiter = limiter.or_else(Memory::new("local", algorithms).clock(time)).boxed();
    }
    limiter
}
