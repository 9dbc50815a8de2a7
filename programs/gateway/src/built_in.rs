//! The answers of the gateway itself, where no upstream is set.

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::body::{Body, Source};
use serving::port::Sent;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// `GET /` is one line of text, `POST /echo` answers with the body, and all else is not found.
pub(crate) fn answer(request: Request<Sent>) -> Response<Body> {
    let (text, is_method, allowed) = match request.uri().path() {
        "/" => {
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            (Some("hello from the gateway\n"), reads, "GET, HEAD")
        }
        "/echo" => (None, request.method() == Method::POST, "POST"),
        _ => return status(StatusCode::NOT_FOUND, "nothing is here\n"),
    };
    if !is_method {
        let mut response = status(StatusCode::METHOD_NOT_ALLOWED, "not with this method\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        return response;
    }
    match text {
        Some(text) => status(StatusCode::OK, text),
        None => echo(request),
    }
}

fn echo(request: Request<Sent>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Body::from(Source::Echo(body)));
    let kind = head.headers.get(CONTENT_TYPE).cloned();
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A line of text. Also how the proxy says that the upstream is down.
pub(crate) fn status<B>(status: StatusCode, text: impl Into<B>) -> Response<B> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}
