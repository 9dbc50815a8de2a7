//! Where rows come from.

use std::future::Future;

use tower::BoxError;

use super::error::TableError;
use super::policies::Policies;
use super::row::Rows;

/// Yields the rows of a table: a file, a database, a Redis hash.
///
/// Every closure that returns a future of [`Rows`] is one. To follow changes, ask it again whenever
/// there may be some, with [`Policies::reload`].
///
/// ```
/// use tower_sluice::policy::{Policies, Rows};
///
/// # async fn run(policies: Policies) {
/// let file = async || -> Result<Rows, Box<dyn std::error::Error + Send + Sync>> {
///     Ok(toml::from_str(&std::fs::read_to_string("policies.toml")?)?)
/// };
/// if let Err(error) = policies.reload(&file).await {
///     eprintln!("the policies stay as they were: {error}");
/// }
/// # }
/// ```
pub trait Source {
    /// Reads all rows.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or are no rows.
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
    /// If the source cannot be read, or something is wrong with a row: a [`TableError`]. The table
    /// in force then stays.
    pub async fn reload(&self, source: &impl Source) -> Result<(), BoxError> {
        let rows = source.rows().await?;
        self.load(&rows).map_err(TableError::into)
    }
}
