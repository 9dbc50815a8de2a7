use super::*;

#[test]
fn the_parameter_is_found_among_others() {
    let found = |text: &str| {
        parameter_for(text.as_bytes()).map(|value| String::from_utf8(value.into()).unwrap())
    };
    for (element, value) in [
        ("for=203.0.113.9", "203.0.113.9"),
        ("FOR=203.0.113.9", "203.0.113.9"),
        ("by=_a;for=203.0.113.9;proto=https", "203.0.113.9"),
        ("proto=https; for=203.0.113.9 ;host=example.com:80", "203.0.113.9"),
        (r#"for="[2001:db8::9]:4711""#, "[2001:db8::9]:4711"),
        (r#"for="\[2001:db8::9\]""#, "[2001:db8::9]"),
        (r#"by="a;for=1.2.3.4";for=203.0.113.9"#, "203.0.113.9"),
        (r#"by="a,b\";\\";for=203.0.113.9"#, "203.0.113.9"),
        ("for=203.0.113.9;", "203.0.113.9"),
        ("secret;for=203.0.113.9", "203.0.113.9"),
        (r#"for="a\\\"b""#, r#"a\"b"#),
    ] {
        assert_eq!(found(element).as_deref(), Some(value), "{element}");
    }
    for element in [
        "",
        "203.0.113.9",
        "by=203.0.113.9",
        "for",
        "xfor=203.0.113.9",
        "for =203.0.113.9",
        "for=203.0.113.9;for=203.0.113.9",
        r#"for="203.0.113.9"#,
        r#"for=203.0.113.9""#,
        r#"for="203.0.113.9"x"#,
        r#"for="203"."9""#,
        r#"for="203.0.113.9\""#,
        r#"for=203.0.113.9;by=""#,
        r#"by="\";for=203.0.113.9"#,
        "for=203.0.113.9;host=é",
        r#"for=203.0.113.9;by=\a"#,
        r#"for=203.0.113.9;by=\"a""#,
        r#"for=203.0.113.9;by="a","b"#,
    ] {
        assert_eq!(found(element), None, "{element}");
    }
}

#[test]
fn a_comma_between_quotation_marks_splits_nothing() {
    for (text, last) in [
        ("a,b", Some("b")),
        (r#"a,b="x,y""#, Some(r#"b="x,y""#)),
        (r#"a,b="x,\"y",c"#, Some("c")),
        (r#"a,b="x,\",y""#, Some(r#"b="x,\",y""#)),
        (r#"a,b="x\\",c="y,z";d"#, Some(r#"c="y,z";d"#)),
        (r#"b="x,y""#, None),
        // The unclosed quotation mark on the left was not written by a trusted proxy.
        (r#"for=1.2.3.4;by=",for=203.0.113.9"#, Some("for=203.0.113.9")),
        (r#"by=",for="[2001:db8::9]""#, Some(r#"for="[2001:db8::9]""#)),
    ] {
        let found = last_comma(text.as_bytes()).map(|place| &text[place + 1..]);
        assert_eq!(found, last, "{text}");
    }
}
