//! Bodies of refusals.

use std::any::Any;

use super::http_refusal::HttpRefusal;

/// Makes empty bodies by `Default`, and no others but those of Connect errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultBody;

/// Makes the body of a refusal: a closure over `&HttpRefusal`. `None` means an empty body.
pub trait MakeBody<C> {
    fn body(&self, refusal: &HttpRefusal) -> Option<C>;

    /// Makes the body of a Connect error. `None` if it cannot make this type from a text.
    fn connect_error(&self, json: String) -> Option<C>;
}

impl<C: 'static> MakeBody<C> for DefaultBody {
    fn body(&self, _: &HttpRefusal) -> Option<C> {
        None
    }

    fn connect_error(&self, json: String) -> Option<C> {
        body_from(json)
    }
}

/// Makes a body from a text, if it is of a type that this crate knows. A bound `From<String>` would
/// keep other bodies, such as `()`, out of every layer.
fn body_from<C: 'static>(text: String) -> Option<C> {
    /// Returns `made` as a `C`, if it is one.
    fn same<A: 'static, C: 'static>(made: impl FnOnce() -> A) -> Option<C> {
        let mut body: Option<C> = None;
        let slot: &mut Option<A> = (&mut body as &mut dyn Any).downcast_mut()?;
        *slot = Some(made());
        body
    }

    #[cfg(feature = "axum")]
    if let Some(body) = same(|| axum::body::Body::from(text.clone())) {
        return Some(body);
    }
    #[cfg(feature = "tonic")]
    if let Some(body) = same(|| tonic::body::Body::new(text.clone())) {
        return Some(body);
    }
    same(|| text)
}

/// Makes bodies as `F` does, and those of Connect errors by a closure: see
/// [`HttpResponder::connect_body`](crate::HttpResponder::connect_body).
#[derive(Clone, Copy)]
pub struct ConnectBody<F, T> {
    pub(super) inner: F,
    pub(super) make: T,
}

impl<C, F: MakeBody<C>, T: Fn(String) -> C> MakeBody<C> for ConnectBody<F, T> {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        self.inner.body(refusal)
    }

    fn connect_error(&self, json: String) -> Option<C> {
        Some((self.make)(json))
    }
}

debug_by_name!([F, T] ConnectBody<F, T>);

/// Makes bodies from the text of a refusal: see
/// [`HttpResponder::text`](crate::HttpResponder::text).
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainText;

impl<C: From<String>> MakeBody<C> for PlainText {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        Some(C::from(refusal.to_string()))
    }

    fn connect_error(&self, json: String) -> Option<C> {
        Some(C::from(json))
    }
}

impl<F: Fn(&HttpRefusal) -> C, C: 'static> MakeBody<C> for F {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        Some(self(refusal))
    }

    fn connect_error(&self, json: String) -> Option<C> {
        body_from(json)
    }
}

/// Makes an empty body.
#[diagnostic::on_unimplemented(
    message = "`HttpResponder` cannot make an empty `{C}`, which has no `Default`",
    label = "refusals need an empty body",
    note = "add `.respond(HttpResponder::new().empty_body(|| ..))` to the layer",
    note = "or add `.respond(Raise)`, which makes every refusal an error of the service"
)]
pub trait MakeEmpty<C> {
    fn empty(&self) -> C;
}

#[diagnostic::do_not_recommend]
impl<C: Default> MakeEmpty<C> for DefaultBody {
    fn empty(&self) -> C {
        C::default()
    }
}

#[diagnostic::do_not_recommend]
impl<F: Fn() -> C, C> MakeEmpty<C> for F {
    fn empty(&self) -> C {
        self()
    }
}
