use super::*;

fn post(kind: &str) -> http::request::Builder {
    Request::post("/a.B/C").header("content-type", kind)
}

#[test]
fn connect_is_known_by_its_content_type_and_its_version() {
    let of = |request: http::request::Builder| ConnectCall::of(&request.body(()).unwrap());
    for kind in ["application/json", "application/proto", "Application/JSON; charset=utf-8"] {
        let unary = of(post(kind).header("connect-protocol-version", "1"));
        assert_eq!(unary, Some(ConnectCall::Unary), "{kind}");
        // Other programs send JSON, too.
        let unary = (kind == "application/proto").then_some(ConnectCall::Unary);
        assert_eq!(of(post(kind)), unary, "{kind}");
        assert_eq!(of(post(kind).header("connect-protocol-version", "2")), None, "{kind}");
    }
    for kind in ["application/connect+proto", "application/connect+json", "Application/Connect+X"] {
        let stream = ConnectCall::Stream(HeaderValue::from_str(kind).unwrap());
        assert_eq!(of(post(kind)), Some(stream), "{kind}");
        for method in [Method::GET, Method::PUT, Method::HEAD] {
            assert_eq!(of(post(kind).method(method)), None);
        }
    }
    assert_eq!(of(post("application/protobuf")), None);
    assert_eq!(of(post("application/proto;x=1")), Some(ConnectCall::Unary));
    let versioned = |kind| post(kind).header("connect-protocol-version", "1");
    for kind in ["text/plain", "", "application", "multipart/form-data"] {
        assert_eq!(of(versioned(kind)), None, "{kind}");
    }
    assert_eq!(of(versioned("application/json").method(Method::PUT)), None);
    assert_eq!(of(Request::post("/").header("connect-protocol-version", "1")), None);

    let get = |target| of(Request::get(target));
    assert_eq!(get("/a.B/C?encoding=json&message=%7B%7D&connect=v1"), Some(ConnectCall::Unary));
    assert_eq!(get("/a.B/C?connect=v1"), Some(ConnectCall::Unary));
    for other in ["/a.B/C", "/?connect=v2", "/?connect=v10", "/?xconnect=v1", "/?connect"] {
        assert_eq!(get(other), None, "{other}");
    }
    assert_eq!(of(Request::head("/?connect=v1")), None);
}

#[test]
fn an_error_names_its_code_and_its_details() {
    let status = |code, details| RpcStatus { code, details };
    let exhausted = status(8, vec![("RetryInfo", b"\x0a\x02\x08\x3c".into())]);
    // The value that the specification shows for 60 s.
    assert_eq!(
        error(&exhausted, "too \"fast\""),
        r#"{"code":"resource_exhausted","message":"too \"fast\"","details":[{"type":"google.rpc.RetryInfo","value":"CgIIPA"}]}"#
    );
    assert_eq!(http_status(&exhausted), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(error(&status(3, vec![]), "no"), r#"{"code":"invalid_argument","message":"no"}"#);
    for code in 1..=16 {
        let http = http_status(&status(code, vec![])).as_u16();
        assert_eq!(http, CODES[usize::from(code) - 1].1);
    }
}

#[test]
fn a_stream_ends_with_a_flag_a_length_and_json() {
    for length in (0..600).chain(32_700..33_000) {
        let text = "x".repeat(length);
        let ended = end_of_stream(&format!("\"{text}\"")).into_bytes();
        let size = u32::from_be_bytes(ended[1..5].try_into().unwrap());
        assert_eq!((ended[0], size as usize), (2, ended.len() - 5));
        let json = std::str::from_utf8(&ended[5..]).unwrap();
        assert_eq!(json.trim_end_matches(' '), format!(r#"{{"error":"{text}"}}"#));
    }
}

#[test]
fn timeouts_are_up_to_ten_digits() {
    let read = |value: &str| {
        let call = post("application/connect+json").header("connect-timeout-ms", value);
        timeout(&call.body(()).unwrap())
    };
    assert_eq!(read("250"), Some(Duration::from_millis(250)));
    assert_eq!(read("9999999999"), Some(Duration::from_millis(9_999_999_999)));
    for wrong in ["", "-1", "+1", "1.5", "1s", "10000000000"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    let plain = post("application/json").header("connect-timeout-ms", "250");
    assert_eq!(timeout(&plain.body(()).unwrap()), None);
}
