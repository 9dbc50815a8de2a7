//! API keys and tokens. They are secrets, so they are hashed before they become keys.

use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderName, Request};

use super::head::Head;
use crate::core::digest::SecretDigest;
use crate::core::extractor::{KeyExtractor, Keyed};
use crate::core::{Error, ErrorKind};

/// Charges each request to the API key in the header called `name`, hashed.
///
/// # Panics
///
/// If `name` is not a valid name of a header.
#[must_use]
#[track_caller]
pub fn by_api_key(name: impl TryInto<HeaderName>) -> ApiKey {
    match name.try_into() {
        Ok(header) => ApiKey::new(header, KeyForm::Plain),
        Err(_) => panic!("an invalid name of a header"),
    }
}

/// Charges each request to its bearer token, hashed: `authorization: Bearer mF_9.B5f-4.1JqM`.
///
/// A request with another scheme, such as `Basic`, has no key. A renewed token is a new key, so a
/// caller that can renew its token has a new limit. If tokens name their user, charge the user
/// instead.
#[must_use]
pub fn by_bearer_token() -> ApiKey {
    ApiKey::new(AUTHORIZATION, KeyForm::Bearer)
}

/// Finds the API key of a request, and hashes it. Made by [`by_api_key`] and [`by_bearer_token`].
///
/// # Requests without a key
///
/// Such a request is refused, with 400 unless [`HttpResponder::no_key`] sets another status:
///
/// - without the header, or with an empty one;
/// - with more than one line of it;
/// - with a byte outside of visible ASCII and spaces.
///
/// It does not check if an API key is valid. A caller can invent keys, and each has its own limit.
/// So put authentication outside of the limit, or charge the [IP address](crate::key::ClientIp)
/// too.
///
/// [`of`](ApiKey::of) returns the key for a charge with a cost or a quota:
/// `by_head(move |head| Some(Charge::new(api_key.of(head)?).cost(1_000)))`.
///
/// # What is stored
///
/// The key in Redis has the first 32 hexadecimal digits of the SHA-256 digest, as
/// `printf %s alice | sha256sum | cut -c1-32` prints them, and [`key_for`](ApiKey::key_for) returns
/// them: `alice` becomes `sluice:api:tb1:{2bd806c97f0e00af1a1fc3328fa763a9}`. A reader can check a
/// guess of a short key, or of one that follows a pattern. For such keys, set a
/// [`secret`](ApiKey::secret). Of the header `Authorization`, the scheme is read in lower case.
///
/// [`HttpResponder::no_key`]: crate::HttpResponder::no_key
#[derive(Clone)]
pub struct ApiKey {
    header: HeaderName,
    form: KeyForm,
    digest: SecretDigest,
}

#[derive(Clone, Copy, Debug)]
enum KeyForm {
    Plain,
    Bearer,
}

impl ApiKey {
    fn new(header: HeaderName, form: KeyForm) -> Self {
        Self { header, form, digest: SecretDigest::Sha256 }
    }

    /// Hashes with a secret of the application, by HMAC-SHA-256. Without the secret, a guess cannot
    /// be checked. Default: no secret.
    ///
    /// All processes that share a limit need the same secret. After a change of the secret, every
    /// API key has a new limit.
    #[must_use]
    pub fn secret(self, secret: impl AsRef<[u8]>) -> Self {
        Self { digest: SecretDigest::with_secret(secret.as_ref()), ..self }
    }

    /// Returns the hashed API key of a request, if it has one: for a charge with a cost or a quota.
    #[doc(alias = "cost")]
    #[must_use]
    pub fn of(&self, head: Head<'_>) -> Option<String> {
        self.find(head).ok()
    }

    /// Returns the hashed API key of a request, with the reason if it has no key.
    ///
    /// # Errors
    ///
    /// An error of kind [`Request`](ErrorKind::Request) that says what the request lacks.
    pub fn find(&self, head: Head<'_>) -> Result<String, Error> {
        let mut lines = head.headers().get_all(&self.header).iter();
        let line = match (lines.next(), lines.next()) {
            (None, _) => return Err(self.missing("no header")),
            (Some(line), None) => line,
            (Some(_), Some(_)) => return Err(self.missing("more than one header")),
        };
        // `to_str` accepts only visible ASCII, spaces and tabs.
        let line = line.to_str().ok().map(str::trim_ascii);
        if line == Some("") {
            return Err(self.missing("an empty header"));
        }
        let api_key = match self.form {
            KeyForm::Plain => line,
            KeyForm::Bearer => line.and_then(bearer_token),
        };
        let api_key = api_key.filter(|api_key| !api_key.is_empty() && !api_key.contains('\t'));
        api_key
            .map(|api_key| self.key_for(api_key))
            .ok_or_else(|| self.missing("no readable header"))
    }

    fn missing(&self, what: &str) -> Error {
        let text = match self.form {
            KeyForm::Plain => format!("request has {what} {} to limit by", self.header),
            KeyForm::Bearer => String::from("request has no bearer token to limit by"),
        };
        Error::new(ErrorKind::Request, text)
    }

    /// Returns the key to which requests with this API key are charged, for example for a
    /// [`reset`](crate::LimiterExt::reset).
    #[must_use]
    pub fn key_for(&self, api_key: &str) -> String {
        match api_key.split_once(' ').filter(|_| self.header == AUTHORIZATION) {
            // Servers take a scheme in any case, before any number of blanks.
            Some((scheme, rest)) if matches!(self.form, KeyForm::Plain) => {
                let credentials = format!("{} {}", scheme.to_ascii_lowercase(), rest.trim_ascii());
                self.digest.of(credentials.as_bytes())
            }
            _ => self.digest.of(api_key.as_bytes()),
        }
    }
}

/// Reads the token of `Bearer token`, in upper or lower case. A text with a space inside is not a
/// token.
fn bearer_token(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    let token = token.trim_ascii_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.contains(' ')).then_some(token)
}

impl<B> KeyExtractor<Request<B>> for ApiKey {
    fn extract(&self, request: &Request<B>) -> Keyed {
        match self.find(Head::from(request)) {
            Ok(key) => Keyed::Charge(key.into()),
            Err(why) => Keyed::Missing(why),
        }
    }
}

/// Omits the secret.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("header", &self.header)
            .field("form", &self.form)
            .field("has_secret", &matches!(self.digest, SecretDigest::Hmac(_)))
            .finish()
    }
}

#[cfg(test)]
mod tests;
