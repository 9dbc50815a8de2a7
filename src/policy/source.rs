//! Sources of rows.

use std::future::Future;

use tower::BoxError;

use super::error::TableError;
use super::policies::Policies;
use super::row::Rows;

/// Yields the rows of a table: a file, a database, a Redis hash.
///
/// Every function or closure that returns a future of [`Rows`] is one. In a spawned task write a
/// function: the compiler takes no closure there whose error is a boxed one. To follow changes,
/// read the source again from time to time, with [`Policies::reload`].
///
/// ```
/// use tower_sluice::policy::{Policies, Rows};
///
/// # type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// # fn run(policies: Policies) {
/// async fn file() -> Result<Rows, BoxError> {
///     Ok(toml::from_str(&std::fs::read_to_string("policies.toml")?)?)
/// }
///
/// tokio::spawn(async move {
///     loop {
///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///         if let Err(error) = policies.reload(&file).await {
///             eprintln!("the policies stay as they were: {error}");
///         }
///     }
/// });
/// # }
/// ```
pub trait Source {
    /// Reads all rows.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or are not rows.
    fn rows(&self) -> impl Future<Output = Result<Rows, BoxError>> + Send;
}

impl<F, Fut, E> Source for F
where
    F: Fn() -> Fut + Sync,
    Fut: Future<Output = Result<Rows, E>> + Send,
    E: Into<BoxError>,
{
    async fn rows(&self) -> Result<Rows, BoxError> {
        self().await.map_err(E::into)
    }
}

impl Policies {
    /// Reads the rows of a source and puts them in force, as [`load`](Self::load) does.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, something is wrong with a row, or there is none: a
    /// [`TableError`]. The table in force then stays.
    pub async fn reload(&self, source: &impl Source) -> Result<(), BoxError> {
        let rows = source.rows().await?;
        self.load(&rows).map_err(TableError::into)
    }
}
