//! The URI that the caller sent, where a router of axum has rewritten it.

use http::{Extensions, Uri};

/// Returns the URI from before axum's `nest` stripped a prefix.
#[cfg(feature = "axum")]
pub(super) fn original_uri(extensions: &Extensions) -> Option<&Uri> {
    extensions.get::<axum::extract::OriginalUri>().map(|original| &original.0)
}

#[cfg(not(feature = "axum"))]
pub(super) fn original_uri(_: &Extensions) -> Option<&Uri> {
    None
}
