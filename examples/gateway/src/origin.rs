//! Where admitted requests go: to the upstream, or to the gateway's own answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

use crate::built_in;
use crate::proxy::Proxy;
use crate::running::Running;
use crate::settings::Settings;

/// The inner service of the limits.
#[derive(Clone)]
pub(crate) enum Origin {
    Upstream(Arc<Proxy>),
    BuiltIn,
}

impl Origin {
    pub(crate) fn new(settings: &Settings, running: Running) -> Result<Self, String> {
        match &settings.upstream {
            Some(upstream) => {
                Ok(Self::Upstream(Arc::new(Proxy::new(upstream, settings, running)?)))
            }
            None => Ok(Self::BuiltIn),
        }
    }
}

impl Service<Request<Body>> for Origin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match this {
                Origin::Upstream(proxy) => proxy.forward(request).await,
                Origin::BuiltIn => built_in::answer(request),
            })
        })
    }
}
