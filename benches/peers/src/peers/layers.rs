//! Layers of other crates, around a service that is ready. One unit per hour and key, so that no
//! key expires during a run: they set a key's expiry with each decision.

use std::time::Duration;

use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::Config;
use http::{Request, Response, StatusCode};
use tower::{Layer, service_fn};

use super::{Peer, inner, key_of, served};
use crate::site::Site;

const HOUR: Duration = Duration::from_secs(3_600);
const BURST: u16 = 8_000;

pub(super) fn tower_redis_cell(site: &Site, name: &'static str) -> Peer {
    use tower_redis_cell::redis_cell::Policy;
    use tower_redis_cell::{
        Error, ProvideRule, ProvideRuleResult, RateLimitConfig, RateLimitLayer, Rule,
    };

    const POLICY: Policy = Policy::new(BURST as usize, 1, HOUR, 1);

    #[derive(Clone, Debug)]
    struct ApiKey;

    impl<B> ProvideRule<Request<B>> for ApiKey {
        fn provide<'a>(&self, request: &'a Request<B>) -> ProvideRuleResult<'a> {
            Ok(key_of(request).map(|key| Rule::new(key, POLICY)))
        }
    }

    fn refuse(_: Error, _: &Request<()>) -> Response<String> {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response
    }

    let connection = site.runtime.block_on(site.connection(site.database()));
    let layer = RateLimitLayer::new(RateLimitConfig::new(ApiKey, refuse), connection);
    served(site, name, layer.layer(service_fn(inner::<String>)))
}

pub(super) fn tower_rate_limit_redis(site: &Site, name: &'static str) -> Peer {
    use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};

    #[derive(Clone, Debug)]
    struct ApiKey;

    impl KeyResolver for ApiKey {
        type Key = String;
        type ErrorBody = String;

        fn key<B>(&self, request: &Request<B>) -> Result<String, Response<String>> {
            key_of(request).map(String::from).ok_or_else(Response::default)
        }
    }

    let url = site.url(site.database());
    let client = redis_0_32::Client::open(url).expect("an address");
    let connection = site.runtime.block_on(client.get_multiplexed_async_connection());
    let layer = RateLimitLayer::builder()
        .conn(connection.expect("a connection"))
        .key_resolver(ApiKey)
        .capacity(BURST)
        .emission_interval(HOUR)
        .build();
    served(site, name, layer.layer(service_fn(inner::<String>)))
}

pub(super) fn tower_rate_limit_fred(site: &Site, name: &'static str) -> Peer {
    use tower_rate_limit_fred::{Key, KeyResolver, RateLimitLayer};

    #[derive(Clone, Debug)]
    struct ApiKey;

    impl KeyResolver for ApiKey {
        type ErrorBody = String;

        fn key<B>(&self, request: &Request<B>) -> Result<Option<Key>, Response<String>> {
            Ok(key_of(request).map(Key::from))
        }
    }

    let config = Config::from_url(&site.url(site.database())).expect("an address");
    let connection = site.runtime.block_on(async {
        let client = Builder::from_config(config).build().expect("a client");
        client.init().await.expect("a connection");
        client
    });
    let layer = RateLimitLayer::builder()
        .conn(connection)
        .key_resolver(ApiKey)
        .capacity(BURST)
        .emission_interval(HOUR)
        .build();
    served(site, name, layer.layer(service_fn(inner::<String>)))
}

pub(super) fn tower_rate_limiter(site: &Site, name: &'static str) -> Peer {
    use tower_rate_limiter::{GcraQuota, KeyExtractor, RateLimitError, RateLimitLayer, RedisGcra};

    #[derive(Clone, Debug)]
    struct ApiKey;

    impl KeyExtractor for ApiKey {
        type Key = String;

        fn extract<B>(&self, request: &Request<B>) -> Result<String, RateLimitError> {
            Ok(key_of(request).map(String::from).unwrap_or_default())
        }
    }

    let connection = site.runtime.block_on(site.connection(site.database()));
    let quota = GcraQuota::new(1, HOUR, BURST.into()).expect("a quota");
    let layer = RateLimitLayer::builder(ApiKey)
        .with_policy(RedisGcra::new(connection, quota))
        .build()
        .expect("a layer");
    served(site, name, layer.layer(service_fn(inner::<String>)))
}
