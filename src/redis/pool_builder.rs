//! The settings of a pool.

use std::borrow::Cow;

use redis_once::Event;

use super::pool::Pool;
use crate::core::{Error, ErrorKind};
use crate::observe::{ConnectionWatch, primary_changed, slots_moved};

/// Settings of a [`Pool`]: those of its client, of the crate `redis-once`. Made by
/// [`Pool::builder`].
///
/// An [`on_event`](redis_once::PoolBuilder::on_event) of your own replaces the metrics and the
/// events of connections.
///
/// ```
/// use tower_sluice::Pool;
///
/// # fn main() -> Result<(), tower_sluice::Error> {
/// let through_tunnel = Pool::builder("redis://cache.internal")?
///     .dial(|_host, _port| tokio::net::TcpStream::connect("127.0.0.1:16379"))
///     .size(4)
///     .build()?;
/// # let _ = through_tunnel;
/// # Ok(()) }
/// ```
pub type PoolBuilder = redis_once::PoolBuilder<Result<Pool, Error>>;

impl Pool {
    /// Makes a pool for the server, the cluster or the sentinels in `url`. It connects on first
    /// use.
    ///
    /// An address begins with `redis://`, `redis-cluster://`, `redis-sentinel://` or
    /// `redis+unix://` (with `?db=0`), with TLS with `rediss://`, `rediss-cluster://` or
    /// `rediss-sentinel://`: [Redis in production][page] has an example of each. You may write
    /// `valkey` and `valkeys` instead of `redis` and `rediss`. User, password and database are
    /// those of the servers that decide. Sentinels may have others: `sentinelUsername=` and
    /// `sentinelPassword=`. Percent-encode characters such as `@`, `&` or `+` in any part.
    /// `clock=caller` sets [`caller_clock`](Self::caller_clock).
    ///
    /// Name all sentinels, each additional one as `node=`.
    ///
    /// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/redis_in_production/
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the address is not
    /// one of these, or if [`build`](redis_once::PoolBuilder::build) fails. Errors do not show
    /// passwords.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url)?.build()
    }

    /// Returns a builder for further settings. `url` is an address as in
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](crate::ErrorKind::Configuration), if the address is not
    /// one of those in [`connect`](Self::connect). Errors do not show passwords.
    pub fn builder(url: &str) -> Result<PoolBuilder, Error> {
        let (url, caller_clock) = without_clock(url)?;
        let watch = ConnectionWatch::default();
        let client = redis_once::Pool::builder(&url)?.on_event(move |event| report(&watch, event));
        Ok(client.map(move |client| -> Result<Self, Error> {
            let pool = Self::from(client?);
            Ok(if caller_clock { pool.caller_clock() } else { pool })
        }))
    }
}

/// Returns an address without the parameter `clock=caller`, and true if it had one.
fn without_clock(url: &str) -> Result<(Cow<'_, str>, bool), Error> {
    let Some((address, query)) = url.split_once('?') else { return Ok((url.into(), false)) };
    let (clocks, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|parameter| parameter.starts_with("clock="));
    if clocks.iter().any(|clock| *clock != "clock=caller") {
        let message = "the address of redis cannot be used: the only value of clock= is caller";
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    Ok(match (clocks.is_empty(), others.is_empty()) {
        (true, _) => (url.into(), false),
        (false, true) => (address.into(), true),
        (false, false) => (format!("{address}?{}", others.join("&")).into(), true),
    })
}

/// Counts an event of the client, and makes an event for logs of it.
fn report(watch: &ConnectionWatch, event: &Event<'_>) {
    match *event {
        Event::Connected { address, again } => watch.made(address, again),
        Event::Failed { address, error } => watch.failed(address, &error.clone().into()),
        Event::Lost { address, reason } => watch.lost(address, reason),
        Event::PrimaryChanged { service, address } => primary_changed(service, address),
        Event::SlotsMoved { slots } => slots_moved(slots),
        // An event of a later version.
        _ => {}
    }
}

#[cfg(test)]
mod tests;
