use super::*;

#[test]
fn every_style_is_read_as_it_is_shown() {
    for (name, style) in NAMES {
        assert_eq!((style.to_string(), name.parse().unwrap()), (name.to_owned(), style));
    }
    let error = "Draft-11".parse::<HeaderStyle>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(NAMES.iter().all(|(name, _)| error.to_string().contains(name)), "{error}");
}
