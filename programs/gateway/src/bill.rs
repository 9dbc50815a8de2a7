//! The units that a request took, until its answer has ended: then they are settled, by the costs
//! that the answer states.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{Request, Response};
use tower_sluice::limiter::Hold;
use tower_sluice::respond::{SettleHandle, Unsettled};
use tower_sluice_policies::ResponseCosts;

use crate::json_numbers::BodyNumbers;

/// The units of a request. They are settled when it is dropped.
pub(crate) struct Bill {
    costs: Option<ResponseCosts>,
    /// The numbers of the body, if they are read.
    numbers: Option<Box<BodyNumbers>>,
    is_whole: bool,
    /// It settles what was charged, or what the answer stated.
    _held: Hold,
}

impl Bill {
    /// Takes the units of a request. `None` if it took none.
    pub(crate) fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let units = request.extensions().get::<SettleHandle>()?.take()?;
        let costs = ResponseCosts::of(&units);
        if costs.as_ref().is_some_and(|costs| costs.pointers().next().is_some()) {
            // Compressed bodies are not read.
            request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let _held = Unsettled::hold(units);
        Some(Self { costs, numbers: None, is_whole: false, _held })
    }

    /// Reads the head of the answer.
    pub(crate) fn read_head<B>(&mut self, answer: &Response<B>) {
        let Some(costs) = &self.costs else { return };
        let headers = answer.headers();
        costs.read_headers(headers);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_plain = headers.get_all(CONTENT_ENCODING).iter().all(|one| one == "identity");
        let numbers = kind.filter(|_| is_plain && costs.pointers().next().is_some());
        let numbers = numbers.and_then(|kind| BodyNumbers::of(kind, costs.pointers()));
        self.numbers = numbers.map(Box::new);
    }

    /// Reads a part of the body.
    pub(crate) fn read(&mut self, part: &[u8]) {
        if let Some(numbers) = &mut self.numbers {
            numbers.read(part);
        }
    }

    /// Settles: the body has ended, and was not broken off.
    pub(crate) fn ended(mut self) {
        self.is_whole = true;
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        if let (Some(costs), Some(body)) = (&self.costs, &self.numbers) {
            costs.read_numbers(body.numbers.found(), self.is_whole);
        }
    }
}
