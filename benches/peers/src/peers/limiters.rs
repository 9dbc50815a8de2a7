//! Crates for other frameworks: their limiters, without the framework around them.

use std::sync::Arc;
use std::time::Duration;

use super::Peer;
use crate::site::Site;

/// Its storage in Redis, which is not the cached one. A window of an hour.
#[cfg(feature = "limitador")]
pub(super) fn limitador(site: &Site, name: &'static str) -> Peer {
    use std::collections::HashMap;

    use limitador::AsyncRateLimiter;
    use limitador::limit::{Context, Limit, Namespace};
    use limitador::storage::redis::AsyncRedisStorage;

    let url = site.url(site.database());
    let storage = site.runtime.block_on(AsyncRedisStorage::new(&url)).expect("a connection");
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    let user = "user".try_into().expect("an expression");
    limiter.add_limit(Limit::new("bench", 1_000_000, 3_600, [], [user]));
    let (limiter, namespace) = (Arc::new(limiter), Arc::new(Namespace::from("bench")));
    let ask = move |key: Arc<str>| {
        let (limiter, namespace) = (Arc::clone(&limiter), Arc::clone(&namespace));
        async move {
            let values = HashMap::from([(String::from("user"), String::from(&*key))]);
            let context = Context::from(values);
            let asked = limiter.check_rate_limited_and_update(&namespace, &context, 1).await;
            asked.is_ok_and(|told| !told.limited && !told.counters.is_empty())
        }
    };
    site.touch_all(ask.clone());
    Peer::new(name, ask)
}

/// A window of an hour. It opens a connection for each decision.
pub(super) fn actix_limitation(site: &Site, name: &'static str) -> Peer {
    let database = site.database();
    let hour = Duration::from_secs(3_600);
    let limiter = actix_limitation::Limiter::builder(site.url(database))
        .limit(1_000_000)
        .period(hour)
        .build()
        .expect("an address");
    // Its keys, as it makes them: it would take most of a minute.
    site.runtime.block_on(async {
        let mut connection = site.connection(database).await;
        for keys in site.keys.chunks(1_000) {
            let mut sets = redis::pipe();
            for key in keys {
                sets.cmd("SET").arg(&**key).arg(0).arg("EX").arg(hour.as_secs()).ignore();
            }
            sets.exec_async(&mut connection).await.expect("keys");
        }
    });
    Peer::new(name, move |key: Arc<str>| {
        let limiter = limiter.clone();
        async move { limiter.count(&*key).await.is_ok() }
    })
}
