use super::*;
use crate::core::Quota;

fn shown(names: &[&str]) -> Vec<String> {
    super::names(names.iter().map(|name| PolicyReport::new(name, Quota::per_second(1))))
}

#[test]
fn names_hold_permitted_characters_and_no_two_are_alike() {
    let long = "x".repeat(70);
    assert_eq!(shown(&["api", "a.b:c_d-0"]), ["api", "a.b:c_d-0"]);
    assert_eq!(shown(&["my api", "größe \"1\"\r\n"]), ["my-api", "gr--e--1---"]);
    assert_eq!(shown(&["", &long]), ["-", &long[..64]]);
    assert_eq!(shown(&["a b", "a-b", "a;b"]), ["a-b", "a-b-2", "a-b-3"]);
    assert_eq!(shown(&[&long, &long])[1], format!("{}-2", &long[..62]));
    // Another policy already has the name with the number.
    assert_eq!(shown(&["a b", "a-b", "a-b-2"]), ["a-b", "a-b-2", "a-b-2-3"]);
    assert_eq!(shown(&["a b-3", "a b", "a-b"]), ["a-b-3", "a-b", "a-b-4"]);
}

#[test]
fn numbers_are_those_of_a_structured_field() {
    assert_eq!(i64::from(integer(u64::MAX)), 999_999_999_999_999);
    assert_eq!(i64::from(integer(7)), 7);
}
