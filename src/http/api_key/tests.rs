use http::HeaderValue;

use super::*;

const ALICE: &str = "2bd806c97f0e00af1a1fc3328fa763a9";

fn of(api_key: &ApiKey, lines: &[&[u8]]) -> Option<String> {
    let mut request = Request::new(());
    for line in lines {
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(&api_key.header, value);
    }
    api_key.of(Head::from(&request))
}

#[test]
fn one_header_with_a_plain_text_is_a_key_and_nothing_else_is() {
    let api_key = by_api_key("X-API-Key");
    let keys: [&[&[u8]]; 2] = [&[b"alice"], &[b" alice\t"]];
    for lines in keys {
        assert_eq!(of(&api_key, lines).as_deref(), Some(ALICE));
    }
    let none: [&[&[u8]]; 8] = [
        &[],
        &[b""],
        &[b"  "],
        &[b"alice", b"alice"],
        &[b"alice", b""],
        &[b"al\xefce"],
        &["alic\u{e9}".as_bytes()],
        &[b"al\tice"],
    ];
    for lines in none {
        assert_eq!(of(&api_key, lines), None, "{lines:?}");
    }
    assert_ne!(of(&api_key, &[b"Alice"]).as_deref(), Some(ALICE));
    let why = |lines: &[&str]| {
        let mut request = Request::new(());
        for line in lines {
            request.headers_mut().append("x-api-key", HeaderValue::from_str(line).unwrap());
        }
        match api_key.extract(&request) {
            Keyed::Missing(why) => why.to_string(),
            found => panic!("{found:?}"),
        }
    };
    assert_eq!(why(&[]), "request has no header x-api-key to limit by");
    for empty in ["", " \t"] {
        assert_eq!(why(&[empty]), "request has an empty header x-api-key to limit by");
    }
    assert_eq!(why(&["al\tice"]), "request has no readable header x-api-key to limit by");
    assert_eq!(why(&["a", "b"]), "request has more than one header x-api-key to limit by");
}

/// Servers take a scheme in any case: one token has one key.
#[test]
fn credentials_are_one_key_in_every_spelling_of_their_scheme() {
    let header = by_api_key("authorization");
    let key = of(&header, &[b"Bearer alice"]).expect("a key");
    for line in ["bearer alice", "BEARER   alice"] {
        assert_eq!(of(&header, &[line.as_bytes()]), Some(key.clone()), "{line}");
    }
    assert_eq!(header.key_for("bEARER alice"), key);
    assert_ne!(of(&header, &[b"Bearer Alice"]), Some(key.clone()));
    assert_ne!(of(&by_api_key("x-key"), &[b"bearer a"]), of(&by_api_key("x-key"), &[b"Bearer a"]));
}

#[test]
fn a_bearer_token_has_its_scheme() {
    for line in ["Bearer alice", "bearer  alice", "BEARER alice "] {
        assert_eq!(of(&by_bearer_token(), &[line.as_bytes()]).as_deref(), Some(ALICE));
    }
    for line in ["alice", "Bearer", "Bearer ", "Basic alice", "Bearer a lice", "Bearer\talice"] {
        assert_eq!(of(&by_bearer_token(), &[line.as_bytes()]), None, "{line}");
    }
    let Keyed::Missing(why) = by_bearer_token().extract(&Request::new(())) else { panic!() };
    assert_eq!(why.to_string(), "request has no bearer token to limit by");
}

#[test]
fn a_secret_changes_the_key_and_is_not_shown() {
    let api_key = by_api_key("x-api-key").secret("pepper 4711");
    let found = of(&api_key, &[b"alice"]).unwrap();
    assert_eq!(found, api_key.key_for("alice"));
    assert_ne!(found, ALICE);
    assert_ne!(found, by_api_key("x-api-key").secret("salt").key_for("alice"));
    assert!(!format!("{api_key:?}").contains("4711"));
}

#[test]
#[should_panic(expected = "an invalid name of a header")]
fn a_name_that_no_header_can_have_is_a_mistake_of_the_programmer() {
    let _ = by_api_key("x api key");
}
