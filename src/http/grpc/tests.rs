use http::{StatusCode, Version};

use super::super::rpc_status::RESOURCE_EXHAUSTED;
use super::*;
use crate::core::{Decision, Error, ErrorKind, Outcome};

fn headers(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    headers
}

fn written(refusal: Refusal) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let refusal = HttpRefusal::new(refusal, StatusCode::BAD_REQUEST, Request::new(()));
    write(&mut headers, &refusal, RESOURCE_EXHAUSTED);
    headers
}

fn denied(retry_after: Option<Duration>) -> Refusal {
    Refusal::Denied(Decision::new(Outcome::Deny { retry_after }))
}

#[test]
fn the_headers_of_a_denial_are_exact() {
    let headers = written(denied(Some(Duration::from_millis(250))));
    let fields: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(
        fields,
        [
            ("grpc-status", "8"),
            ("grpc-message", "rate limit exceeded"),
            (
                "grpc-status-details-bin",
                "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMwoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJl\
                     dHJ5SW5mbxIHCgUQgOWadxpPCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuRXJyb3JJbmZv\
                     EiMKE1JBVEVfTElNSVRfRVhDRUVERUQSDHRvd2VyLXNsdWljZQ",
            ),
            ("grpc-retry-pushback-ms", "250"),
        ]
    );
}

#[test]
fn every_refusal_has_its_code() {
    let code = |headers: HeaderMap| headers["grpc-status"].to_str().unwrap().to_owned();
    let pushback = |headers: &HeaderMap| {
        headers.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap().to_owned())
    };
    let never = written(denied(None));
    assert_eq!(pushback(&never).as_deref(), Some("-1"));
    // What never fits has no delay, and says which limit refuses it.
    let details = BASE64_STANDARD_NO_PAD.decode(&never["grpc-status-details-bin"]).unwrap();
    let details = String::from_utf8_lossy(&details).into_owned();
    assert!(details.contains("google.rpc.ErrorInfo") && !details.contains("RetryInfo"));
    assert_eq!(code(never), "8");

    let odd = written(denied(Some(Duration::from_micros(1_000_001))));
    assert_eq!(pushback(&odd).as_deref(), Some("1001"));

    let far = written(denied(Some(Duration::from_secs(86_400 * 365))));
    assert_eq!(pushback(&far).as_deref(), Some("2147483647"));

    let undecided = written(Refusal::Undecided(Error::new(ErrorKind::Infrastructure, "away")));
    let millis: u64 = pushback(&undecided).unwrap().parse().unwrap();
    assert!((1_000..=3_000).contains(&millis), "{millis}");
    assert_eq!(code(undecided), "14");

    let error = || Error::new(ErrorKind::Request, "no");
    for refusal in [Refusal::NoKey(error()), Refusal::Undecided(error())] {
        let headers = written(refusal);
        assert_eq!((pushback(&headers), code(headers)), (None, String::from("3")));
    }
}

#[test]
fn a_message_says_what_is_wrong_with_the_request() {
    let message = |kind, text: &'static str| {
        let headers = written(Refusal::Undecided(Error::new(kind, text)));
        headers["grpc-message"].to_str().unwrap().to_owned()
    };
    assert_eq!(message(ErrorKind::Request, "the key is empty"), "the key is empty");
    assert_eq!(message(ErrorKind::Request, "100 % of ß\n"), "100 %25 of %C3%9F%0A");
    assert_eq!(message(ErrorKind::State, "10.0.0.1"), "rate limit could not be decided");
    let no_key = |kind| written(Refusal::NoKey(Error::new(kind, "no header x")));
    assert_eq!(no_key(ErrorKind::Request)["grpc-message"], "no header x");
    let of_operator = no_key(ErrorKind::Configuration);
    assert_eq!(of_operator["grpc-message"], "request has no key to limit by");
}

#[test]
fn grpc_is_known_by_its_content_type_and_its_method() {
    let answer = |method, version, asked: &str| {
        let request = Request::builder().method(method).version(version);
        let kind = content_type(&request.header("content-type", asked).body(()).unwrap())?;
        Some(kind.to_str().unwrap().to_owned())
    };
    let answered = |asked| answer(Method::POST, Version::HTTP_2, asked);
    for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
        for kind in ["application/grpc", "application/grpc-web"] {
            assert!(answer(Method::POST, version, kind).is_some(), "{version:?}");
            for other in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
                assert_eq!(answer(other.clone(), version, kind), None, "{other} {version:?}");
            }
        }
    }
    for asked in ["application/grpc", "application/grpc+proto", "application/grpc;x=1"] {
        assert_eq!(answered(asked).as_deref(), Some("application/grpc"));
    }
    for asked in ["application/GRPC", "Application/Grpc+Proto", "APPLICATION/GRPC;x=1"] {
        assert_eq!(answered(asked).as_deref(), Some("application/grpc"), "{asked}");
    }
    for web in [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpc-web-text+proto;x=1",
        "Application/gRPC-Web",
    ] {
        assert_eq!(answered(web).as_deref(), Some(web));
    }
    for other in [
        "application/grpcx",
        "application/json",
        "text/plain",
        "application/grp",
        "application/GRPCX",
        "application/grpc-webx",
        "application/grpc-web-texts",
        "application/grpc-web, text/html",
    ] {
        assert_eq!(answered(other), None);
    }
    assert_eq!(content_type(&Request::post("/").body(()).unwrap()), None);
}

#[test]
fn timeouts_are_read_as_the_protocol_writes_them() {
    let read = |text| timeout(&headers("grpc-timeout", text));
    assert_eq!(read("250m"), Some(Duration::from_millis(250)));
    assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
    assert_eq!(read("1n"), Some(Duration::from_nanos(1)));
    for odd in ["", "m", "1", "1x", "123456789m", "-1m", "1.5S", " 1S"] {
        assert_eq!(read(odd), None, "{odd}");
    }
}
