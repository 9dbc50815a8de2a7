//! The peers that are measured over Redis. Each has a database of its own with 100,000 keys, which
//! exist before anything is timed, and a limit so high that it admits everything.

mod bare;
mod layers;
mod limiters;
mod sluice;

use std::future::Ready;
use std::sync::Arc;

use http::{Request, Response};
use tower::{Service, ServiceExt};

use crate::cost::Cost;
use crate::options::Options;
use crate::site::{KEYS, Site, Slot};

/// The peer that has ratio 1.
pub(crate) const YARDSTICK: &str = "evalsha";

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) ask: Box<dyn Fn(&Site, Slot) -> Cost>,
}

impl Peer {
    /// A peer that asks for many keys.
    fn new<F: Future<Output = bool> + Send + 'static>(
        name: &'static str,
        ask: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
    ) -> Self {
        Self { name, ask: Box::new(move |site, slot| site.drive(slot, KEYS, ask.clone())) }
    }

    /// A peer that asks for one key.
    fn hot<F: Future<Output = bool> + Send + 'static>(
        name: &'static str,
        ask: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
    ) -> Self {
        Self { name, ask: Box::new(move |site, slot| site.drive(slot, 1, ask.clone())) }
    }
}

/// A name, and how to prepare that peer.
type Entry = (&'static str, fn(&Site, &'static str) -> Peer);

const ENTRIES: &[Entry] = &[
    (YARDSTICK, bare::evalsha),
    ("evalsha_hot", bare::evalsha_hot),
    ("redis_benchmark", bare::redis_benchmark),
    ("bb8", bare::bb8),
    ("sluice_token_bucket", sluice::token_bucket),
    ("sluice_slow_quota", sluice::slow_quota),
    ("sluice_fixed_window", sluice::fixed_window),
    ("sluice_layer", sluice::layer),
    ("sluice_hot", sluice::hot),
    ("sluice_lease", sluice::lease),
    ("sluice_deny_cache", sluice::deny_cache),
    ("tower_redis_cell", layers::tower_redis_cell),
    ("tower_rate_limit_redis", layers::tower_rate_limit_redis),
    ("tower_rate_limit_fred", layers::tower_rate_limit_fred),
    ("tower_rate_limiter", layers::tower_rate_limiter),
    #[cfg(feature = "limitador")]
    ("limitador", limiters::limitador),
    ("actix_limitation", limiters::actix_limitation),
];

/// Prepares the peers, and prints which are left out.
pub(crate) fn all(site: &Site, options: &Options) -> Vec<Peer> {
    if !cfg!(feature = "limitador") {
        println!("left_out name=limitador why=\"it needs the headers of OpenSSL\"");
    }
    let mut peers = Vec::new();
    for &(name, prepare) in ENTRIES {
        if name == "tower_redis_cell" && !options.has_cell {
            println!("left_out name={name} why=\"the server has no module redis-cell\"");
        } else if name == YARDSTICK || options.includes(name) {
            peers.push(prepare(site, name));
        }
    }
    peers
}

/// A request with its key in a header, for the layers.
pub(crate) fn request(key: &str) -> Request<()> {
    Request::builder().header("x-api-key", key).body(()).expect("a request")
}

/// The key of a request.
pub(crate) fn key_of<B>(request: &Request<B>) -> Option<&str> {
    request.headers().get("x-api-key")?.to_str().ok()
}

/// The service that a layer protects.
fn inner<B: Default>(_: Request<()>) -> Ready<Result<Response<B>, std::convert::Infallible>> {
    std::future::ready(Ok(Response::new(B::default())))
}

/// A peer that is a layer around a service. It asks as axum does, with a clone for each request.
fn served<S, B>(site: &Site, name: &'static str, service: S) -> Peer
where
    S: Service<Request<()>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send,
{
    let ask = move |key: Arc<str>| {
        let answer = service.clone().oneshot(request(&key));
        async move { answer.await.is_ok_and(|response| response.status().is_success()) }
    };
    site.touch_all(ask.clone());
    Peer::new(name, ask)
}
