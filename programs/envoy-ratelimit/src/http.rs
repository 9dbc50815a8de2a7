//! The HTTP port: `/json`, `/healthcheck`, `/metrics` and `/rlconfig`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::json;
use serving::metrics::Metrics;
use serving::reload::Reload;
use tonic::{Code, Status};

use crate::calls::{RunningCall, full};
use crate::decide::{Decider, MOST_DESCRIPTORS, RateLimitAnswer, too_many};
use crate::descriptors::{REQUEST, RESPONSE, message};
use crate::grpc::{ENTRY, MOST_BYTES};

/// The most braces of a request, each of which begins a part. All are made before they are counted.
const MOST_BRACES: usize = 20 * MOST_DESCRIPTORS;

/// All that the port shows.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) decider: Decider,
    pub(crate) files: Reload,
    pub(crate) metrics: Metrics,
}

impl Http {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/json", post(json).layer(DefaultBodyLimit::max(MOST_BYTES)))
            .route("/healthcheck", get(health))
            .route("/metrics", get(metrics))
            .route("/rlconfig", get(rules))
            .with_state(self)
    }
}

/// Decides about a request in protobuf's JSON: 200 if it passes, 429 if not.
async fn json(
    State(http): State<Http>,
    Extension(call): Extension<Arc<RunningCall>>,
    body: Bytes,
) -> Response {
    let braces = body.iter().filter(|byte| **byte == b'{').count();
    if braces > MOST_BRACES {
        return problem(&too_many());
    }
    if !call.has_room(braces * ENTRY) {
        return problem(&full());
    }
    let request = match read(&body) {
        Ok(request) => request,
        Err(why) => return problem(&Status::invalid_argument(why)),
    };
    match http.decider.decide(&request).await {
        Ok(RateLimitAnswer { response, is_over }) => {
            let status = if is_over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            match write(&response) {
                Ok(text) => json_response(status, text),
                Err(why) => problem(&Status::internal(why)),
            }
        }
        Err(status) => problem(&status),
    }
}

/// Reads a message by the names of its file, or by their lowerCamelCase.
fn read<M: Message + Default>(body: &[u8]) -> Result<M, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = DynamicMessage::deserialize(message(REQUEST), &mut reader);
    let dynamic = read.map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    M::decode(&*dynamic.encode_to_vec()).map_err(|error| error.to_string())
}

fn write(response: &impl Message) -> Result<String, String> {
    let dynamic = DynamicMessage::decode(message(RESPONSE), &*response.encode_to_vec());
    let dynamic = dynamic.map_err(|error| error.to_string())?;
    serde_json::to_string(&dynamic).map_err(|error| error.to_string())
}

pub(crate) fn problem(status: &Status) -> Response {
    let code = match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let shown = json!({ "code": status.code() as i32, "message": status.message() });
    json_response(code, shown.to_string())
}

fn json_response(status: StatusCode, text: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// 200 while the process serves. A broken file is named, and harms nobody.
async fn health(State(http): State<Http>) -> String {
    match http.files.wrong() {
        Some(wrong) => format!("OK, but {wrong}; the rules from before are in force\n"),
        None => "OK\n".to_owned(),
    }
}

async fn metrics(State(http): State<Http>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], http.metrics.render()).into_response()
}

/// The rules in force, one a line.
async fn rules(State(http): State<Http>) -> String {
    http.decider.table.load().dump()
}
