//! The allocations of an admitted request for its fields and for the decision in the extensions.
//! The counts do not depend on the machine.

use std::hint::black_box;

use tower::{Layer, Service};
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::key::Global;
use tower_sluice::{Limiter, Memory, RateLimitLayer};

use super::*;

const MANY: Quota = Quota::per_day(1_000_000_000);

/// Allocations of an admitted request, whose extensions and whose response's headers hold something
/// already, as those of a framework do.
fn allocations(limiter: impl Limiter + 'static, respond: HttpResponder) -> u64 {
    let inner = |_: Request<()>| {
        let mut response = Response::new(());
        response.headers_mut().insert("content-length", http::HeaderValue::from_static("0"));
        std::future::ready(Ok::<_, Infallible>(response))
    };
    let mut service =
        RateLimitLayer::new(limiter, Global).respond(respond).layer(tower::service_fn(inner));
    let mut ask = || {
        let mut request = Request::new(());
        request.extensions_mut().insert(7_u64);
        let mut answer = tokio_test::task::spawn(service.call(request));
        assert!(matches!(black_box(answer.poll()), std::task::Poll::Ready(Ok(_))));
    };
    ask();
    ask();
    allocation_counter::measure(ask).count_total
}

#[test]
fn fields_and_extensions_take_few_allocations() {
    let one = || Memory::new("api", FixedWindow::new(MANY));
    let bare = HttpResponder::new();
    let without = allocations(one(), bare.clone());
    let beyond = |respond| allocations(one(), respond) - without;
    // A copy of the decision, and an entry in the request.
    assert_eq!(beyond(bare.clone().report_in_request()), 2);
    // The response gets a copy too, and a map with an entry.
    assert_eq!(beyond(bare.clone().report_in_request().report_in_response()), 6);
    // A number that changes takes an allocation of its own. What stays alike takes none. A style
    // with one value marks the response, for a layer outside: a map with an entry.
    for (style, expected) in [
        (HeaderStyle::Draft11, 1),
        (HeaderStyle::Draft07, 1 + 3),
        (HeaderStyle::Draft06, 3 + 3),
        (HeaderStyle::Legacy, 3 + 3),
        (HeaderStyle::LegacyEpoch, 3 + 3),
    ] {
        assert_eq!(beyond(bare.clone().headers(always(style))), expected, "{style}");
    }
}

#[test]
fn a_second_policy_takes_no_further_allocation() {
    let two = || Memory::new("api", (FixedWindow::new(MANY), TokenBucket::new(MANY)));
    let bare = HttpResponder::new();
    let without = allocations(two(), bare.clone());
    let beyond = |respond| allocations(two(), respond) - without;
    assert_eq!(beyond(bare.clone().report_in_request()), 2);
    assert_eq!(beyond(bare.headers(always(HeaderStyle::Draft11))), 1);
}
