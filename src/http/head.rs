//! Keys from the head of a request, so that one closure works with every framework.

use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri};

use crate::core::extractor::{IntoCharge, KeyExtractor, Keyed};

/// The head of a request: all but its body. Its `Debug` output shows no URI and no header, because
/// these contain keys.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI. For the client's IP address, see [`ClientIp`](crate::key::ClientIp). Inside of
    /// axum's `nest` it lacks the prefix: see [`original_uri`](Head::original_uri).
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, where frameworks put the peer's IP address and the matched route. In axum
    /// these are `ConnectInfo<SocketAddr>` and `MatchedPath`.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The text of the header called `name`, without the blanks around it. It is owned, since keys
    /// are owned.
    ///
    /// Returns `None` without that header, or if it has other bytes than visible ASCII, spaces and
    /// tabs. Returns `None` too if it has more than one line, like
    /// [`by_api_key`](crate::by_api_key). For headers that may have several lines, use
    /// [`headers`](Head::headers).
    ///
    /// Over HTTP/2, `host` is that of the URI, and the parts of `cookie` are joined.
    #[doc(alias = "by_header")]
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let is = |special| name.eq_ignore_ascii_case(special);
        // HTTP/2 keeps blanks that HTTP/1 drops: they would give a caller more keys.
        let text = |line: &'a HeaderValue| line.to_str().ok().map(str::trim_ascii);
        let mut lines = self.headers.get_all(name).iter().map(text);
        match (lines.next(), lines.next()) {
            (Some(line), None) => line.map(str::to_owned),
            (None, _) if is("host") => {
                let host = self.uri.authority()?.as_str().rsplit('@').next();
                host.map(str::to_owned)
            }
            (Some(first), Some(second)) if is("cookie") => {
                let crumbs = [first, second].into_iter().chain(lines);
                Some(crumbs.collect::<Option<Vec<_>>>()?.join("; "))
            }
            _ => None,
        }
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

debug_by_name!([] Head<'_>: method);

/// Finds keys in the head of a request with any body: one closure for several frameworks.
///
/// To say what is missing, return a [`Keyed::Missing`], such as
/// `None => Keyed::Missing(Error::new(ErrorKind::Request, "request has no header x-user"))`. Its
/// text stands in the refusal and in the warning of the feature `tracing`.
///
/// To name the type of a layer, for example in a struct's field, use a function instead of a
/// closure:
///
/// ```
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::key::{ByHead, Head};
/// use tower_sluice::{HttpResponder, Memory, Quota, RateLimitLayer, by_head};
///
/// type User = ByHead<fn(Head<'_>) -> Option<String>>;
/// type Limit = RateLimitLayer<Memory<TokenBucket>, User, HttpResponder>;
///
/// fn user(head: Head<'_>) -> Option<String> {
///     head.header("x-user")
/// }
///
/// let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(50)));
/// let layer: Limit = RateLimitLayer::new(limiter, by_head(user));
/// # let _ = layer;
/// ```
///
/// If the type is not stated there, or a setter such as `respond` follows, cast the function:
/// `by_head(user as fn(Head<'_>) -> _)`.
#[must_use]
pub fn by_head<F, C>(find: F) -> ByHead<F>
where
    F: Fn(Head<'_>) -> C,
    C: IntoCharge,
{
    ByHead(find)
}

/// The key extractor that [`by_head`] makes. Its page shows how to name this type.
#[derive(Clone, Copy, Debug)]
pub struct ByHead<F>(F);

impl<F, B, C> KeyExtractor<Request<B>> for ByHead<F>
where
    F: Fn(Head<'_>) -> C,
    C: IntoCharge,
{
    fn extract(&self, request: &Request<B>) -> Keyed {
        (self.0)(Head::from(request)).into_charge()
    }
}
