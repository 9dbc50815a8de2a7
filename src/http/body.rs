//! Bodies of refusals.

use super::http_refusal::HttpRefusal;

/// Makes empty bodies by `Default`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultBody;

/// Makes the body of a refusal: a closure over `&HttpRefusal`. `None` means an empty body.
pub trait MakeBody<C> {
    fn body(&self, refusal: &HttpRefusal) -> Option<C>;
}

impl<C> MakeBody<C> for DefaultBody {
    fn body(&self, _: &HttpRefusal) -> Option<C> {
        None
    }
}

/// Makes bodies from the text of a refusal: see
/// [`HttpResponder::text`](crate::HttpResponder::text).
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainText;

impl<C: From<String>> MakeBody<C> for PlainText {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        Some(C::from(refusal.to_string()))
    }
}

impl<F: Fn(&HttpRefusal) -> C, C> MakeBody<C> for F {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        Some(self(refusal))
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
