//! Reservations whose final cost the response states.

use std::any::Any;
use std::sync::Arc;

use http::HeaderMap;

use crate::core::reservation::Reservation;

/// The payload of a [`Reservation`] whose final cost the response states, for engines on
/// [`store`](crate::store). [`HttpResponder`](crate::HttpResponder) shows the response to its
/// reader before the layer settles, unless a handler took the units.
pub struct CostInResponse {
    /// The units that the request took.
    pub reservation: Reservation,
    /// Keeps the cost for the settlement.
    pub reader: Arc<dyn ReadHeaders>,
}

/// Reads the cost of a request in the headers of its response.
pub trait ReadHeaders: Any + Send + Sync {
    /// Called once, with the headers of the response.
    fn read_headers(&self, headers: &HeaderMap);
}

debug_by_name!([] CostInResponse: reservation);
