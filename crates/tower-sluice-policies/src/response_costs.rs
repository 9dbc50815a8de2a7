//! The costs that the response to a request states: they are kept until the request is settled.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;
use tower_sluice::Decision;
use tower_sluice::limiter::Reservation;
use tower_sluice::respond::{CostInResponse, ReadHeaders, Unsettled};

use super::limited_policy::AskedPolicy;
use super::policy_cost::{MAX_COST, StatedBy, of_response};
use super::table_in_force::Selection;
use super::values::Texts;

/// The costs that the response to one request states, for programs that read bodies, such as the
/// gateway. They allow rows with `cost = "response_json:/POINTER"` by
/// [`PoliciesBuilder::reads_bodies`](super::PoliciesBuilder::reads_bodies).
///
/// Such a program takes the units of a request out of their
/// [handle](tower_sluice::respond::SettleHandle), reads the headers and the body of the response,
/// and then settles with the units that were charged:
///
/// ```
/// use tower_sluice::respond::Unsettled;
/// use tower_sluice_policies::ResponseCosts;
///
/// fn answered(units: Unsettled, response: &http::Response<serde_json::Value>) {
///     if let Some(costs) = ResponseCosts::of(&units) {
///         costs.read_headers(response.headers());
///         let number = |pointer: &str| response.body().pointer(pointer)?.as_u64();
///         let numbers: Vec<_> = costs.pointers().map(number).collect();
///         costs.read_numbers(&numbers, true);
///     }
///     let charged = units.cost();
///     drop(units.settle(charged));
/// }
/// ```
#[derive(Clone)]
pub struct ResponseCosts(Arc<Selection>);

impl ResponseCosts {
    /// The costs that the response to the request of these units states. `None` if no row of it
    /// asks for one.
    #[must_use]
    pub fn of(units: &Unsettled) -> Option<Self> {
        selection(units.reservation()).map(Self)
    }

    /// Reads the headers of the response.
    pub fn read_headers(&self, headers: &HeaderMap) {
        ReadHeaders::read_headers(&*self.0, headers);
    }

    /// The JSON pointers at which the rows of the request look for numbers.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.by_json().flat_map(|(_, Texts(pointers))| pointers.iter().map(String::as_str))
    }

    /// Takes the numbers that the body has at the [`pointers`](Self::pointers), in their order. A
    /// row's cost is the sum of its numbers. It is never less than its charge if a number is
    /// missing, or if the body was not read to its end (`is_whole`).
    pub fn read_numbers(&self, numbers: &[Option<u64>], is_whole: bool) {
        let mut numbers = numbers.iter();
        for ((place, asked), Texts(pointers)) in self.by_json() {
            let own: Vec<_> = numbers.by_ref().take(pointers.len()).collect();
            let sum = own.iter().filter_map(|number| **number).fold(0, u64::saturating_add);
            let all = is_whole && own.len() == pointers.len() && own.iter().all(|n| n.is_some());
            let least = if all { 0 } else { asked.charge.units() };
            if sum <= MAX_COST {
                self.0.stated[place].store(sum.max(least), Relaxed);
            }
        }
    }

    fn by_json(&self) -> impl Iterator<Item = ((usize, &AskedPolicy), &Texts)> {
        self.0.asked().enumerate().filter_map(|(place, asked)| {
            match asked.limited.policy.cost.stated_by()? {
                StatedBy::Json(pointers) => Some(((place, asked), pointers)),
                StatedBy::Header(_) => None,
            }
        })
    }
}

impl fmt::Debug for ResponseCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pointers()).finish()
    }
}

impl ReadHeaders for Selection {
    fn read_headers(&self, headers: &HeaderMap) {
        for (asked, stated) in self.asked().zip(&self.stated) {
            if let Some(StatedBy::Header(name)) = asked.limited.policy.cost.stated_by()
                && let Some(units) = of_response(headers, name)
            {
                stated.store(units, Relaxed);
            }
        }
    }
}

/// Lets the response to a request state its costs, if a row asks for one.
pub(crate) fn awaiting(selection: Arc<Selection>, mut decision: Decision) -> Decision {
    if selection.stated.is_empty() {
        return decision;
    }
    let Some(reservation) = decision.take_reservation() else { return decision };
    let (owner, cost) = (reservation.owner(), reservation.cost());
    let awaiting = CostInResponse { reservation, reader: selection };
    // Held: the layer settles it even if it cost what was charged.
    decision.with_reservation(Reservation::new(owner, cost, awaiting).held())
}

/// Returns the units of a request, and what its response stated.
pub(crate) fn answered(reservation: Reservation) -> (Reservation, Option<Arc<Selection>>) {
    let selection = selection(&reservation);
    let units = reservation.into_payload().map(|CostInResponse { reservation, .. }| reservation);
    (units.unwrap_or_else(|reservation| reservation), selection)
}

/// Returns the units that a renewal renews.
pub(crate) fn held(reservation: &mut Reservation) -> &mut Reservation {
    match reservation.payload::<CostInResponse>() {
        Some(_) => &mut reservation.payload_mut::<CostInResponse>().expect("seen").reservation,
        None => reservation,
    }
}

fn selection(reservation: &Reservation) -> Option<Arc<Selection>> {
    let CostInResponse { reader, .. } = reservation.payload()?;
    (Arc::clone(reader) as Arc<dyn Any + Send + Sync>).downcast().ok()
}
