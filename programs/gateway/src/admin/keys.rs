//! One key: how it stands, its reset, penalties, and the end of a ban.
//!
//! `/keys/{policy}/{key}`, where a key of several parts has as many segments, each percent-encoded
//! as a client sent it. `?plan=gold` names the plan of the key, if the row has plans.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;

use super::{Admin, changed, json_response, problem};
use crate::gate::{AdminError, KeyAction};

pub(super) async fn answer(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let asked = match asked(request.method(), request.uri()) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            let allowed = [(header::ALLOW, "GET, DELETE, POST")];
            let problem =
                problem(StatusCode::METHOD_NOT_ALLOWED, "a key is shown, reset or penalized");
            return (allowed, problem).into_response();
        }
        Err(why) => return AdminError::Invalid(why).into_response(),
    };
    let KeyRequest { policy, plan, parts, action } = asked;
    match admin.gate.key(&policy, plan, &parts, action).await {
        Ok(stands) => {
            // Without the key, which may be a secret.
            match action {
                KeyAction::Show => {}
                KeyAction::Reset => changed(peer, &format!("a key of {policy} is reset")),
                KeyAction::Unblock => changed(peer, &format!("a key of {policy} is unblocked")),
                KeyAction::Penalize(units) => {
                    changed(peer, &format!("a key of {policy} is penalized by {units}"));
                }
            }
            json_response(StatusCode::OK, &stands)
        }
        Err(error) => error.into_response(),
    }
}

/// The action that is asked for, and its key.
#[derive(Debug, PartialEq, Eq)]
struct KeyRequest {
    policy: String,
    plan: Option<String>,
    parts: Vec<String>,
    action: KeyAction,
}

/// Reads it. `None`: no such method.
fn asked(method: &Method, uri: &Uri) -> Result<Option<KeyRequest>, String> {
    let path = uri.path().strip_prefix("/keys/").unwrap_or_default();
    let decode = |segment: &str| {
        let text = percent_decode_str(segment).decode_utf8();
        text.map(String::from).map_err(|_| "the path or the plan is no UTF-8".to_owned())
    };
    let plan = parameter(uri.query(), "plan=").map(decode).transpose()?;
    let mut segments = path.split('/').map(decode).collect::<Result<Vec<_>, _>>()?;
    let action = match *method {
        Method::GET | Method::HEAD => KeyAction::Show,
        Method::DELETE => KeyAction::Reset,
        Method::POST => match segments.pop().as_deref() {
            Some("penalize") => KeyAction::Penalize(units(uri.query())?),
            Some("unblock") => KeyAction::Unblock,
            _ => {
                let why = "a POST is to /keys/{policy}/{key}/penalize?units=5, or to ../unblock";
                return Err(why.to_owned());
            }
        },
        _ => return Ok(None),
    };
    if segments.len() < 2 || segments.iter().any(String::is_empty) {
        return Err("the path names a policy and a key: /keys/{policy}/{key}".to_owned());
    }
    let policy = segments.remove(0);
    Ok(Some(KeyRequest { policy, plan, parts: segments, action }))
}

/// The value of the last parameter that begins so.
fn parameter<'a>(query: Option<&'a str>, begin: &str) -> Option<&'a str> {
    query?.split('&').filter_map(|pair| pair.strip_prefix(begin)).next_back()
}

/// The units of a penalty: a whole number, at least 1.
fn units(query: Option<&str>) -> Result<u64, String> {
    let units = parameter(query, "units=").ok_or("the query must state units, as in ?units=5")?;
    let is_number = units.bytes().all(|byte| byte.is_ascii_digit());
    match units.parse::<u64>() {
        Ok(units) if is_number && units > 0 => Ok(units),
        _ => Err(format!("units is {units:?}, and must be a whole number of 1 or more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, uri: &'static str) -> Result<Option<KeyRequest>, String> {
        asked(&method, &Uri::from_static(uri))
    }

    #[test]
    fn segments_are_the_parts_of_a_key() {
        let asked = read(Method::GET, "/keys/api/a%2Fb/c%20d").unwrap().unwrap();
        assert_eq!((asked.policy.as_str(), asked.action), ("api", KeyAction::Show));
        assert_eq!(asked.parts, ["a/b", "c d"]);
        let asked = read(Method::DELETE, "/keys/api/%2Fapi%2Fx").unwrap().unwrap();
        assert_eq!((asked.parts, asked.action), (vec!["/api/x".to_owned()], KeyAction::Reset));
    }

    #[test]
    fn a_penalty_states_its_units() {
        let asked = read(Method::POST, "/keys/api/alice/penalize?units=5").unwrap().unwrap();
        assert_eq!((asked.parts, asked.action), (vec!["alice".to_owned()], KeyAction::Penalize(5)));
        let uri = "/keys/api/alice/penalize?plan=very%20gold&units=5";
        let asked = read(Method::POST, uri).unwrap().unwrap();
        assert_eq!(
            (asked.plan.as_deref(), asked.action),
            (Some("very gold"), KeyAction::Penalize(5))
        );
        for wrong in [
            "/keys/api/alice/penalize",
            "/keys/api/alice/penalize?units=",
            "/keys/api/alice/penalize?units=0",
            "/keys/api/alice/penalize?units=-1",
            "/keys/api/alice/penalize?units=+1",
            "/keys/api/alice/penalize?units=1.5",
            "/keys/api/alice/penalize?units=99999999999999999999",
            "/keys/api/alice?units=5",
            "/keys/api/penalize?units=5",
            "/keys/penalize?units=5",
        ] {
            read(Method::POST, wrong).unwrap_err();
        }
    }

    #[test]
    fn what_names_no_key_is_wrong() {
        for wrong in ["/keys/api", "/keys/api/", "/keys//alice/", "/keys/api/%ff", "/keys/api//x"] {
            read(Method::GET, wrong).unwrap_err();
        }
        assert_eq!(read(Method::PUT, "/keys/api/alice").unwrap(), None);
    }
}
