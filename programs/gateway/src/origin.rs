//! The destination of admitted requests: the upstream, or the gateway's own answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

use crate::bill::Bill;
use crate::body::Body;
use crate::built_in;
use crate::client::Clients;
use crate::proxy::Proxy;
use crate::settings::Settings;
use serving::port::Running;
use serving::port::Sent;

/// The inner service of the limits.
#[derive(Clone)]
pub(crate) enum OriginService {
    Upstream(Arc<Proxy>),
    BuiltIn,
}

impl OriginService {
    /// One for each worker. All have so many connections of HTTP/1.1 to the upstream at most.
    pub(crate) fn of_workers(
        settings: &Settings,
        connections: usize,
        running: &Running,
        workers: usize,
    ) -> Result<Vec<Self>, String> {
        let Some(upstream) = &settings.upstream else { return Ok(vec![Self::BuiltIn; workers]) };
        let clients = Clients::new(upstream, connections)?;
        let proxy = || {
            let authority = upstream.authority.clone();
            Proxy::new(clients.open(), authority, settings, running.clone())
        };
        Ok((0..workers).map(|_| Self::Upstream(Arc::new(proxy()))).collect())
    }
}

impl Service<Request<Sent>> for OriginService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Sent>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let mut bill = Bill::of(&mut request);
            let mut answer = match this {
                OriginService::Upstream(proxy) => proxy.forward(request, &mut bill).await,
                OriginService::BuiltIn => built_in::answer(request),
            };
            if let Some(bill) = bill {
                Body::settle(&mut answer, bill);
            }
            Ok(answer)
        })
    }
}
