use super::*;

#[test]
fn names_are_checked_when_they_are_set() {
    let longest = "x".repeat(64);
    let long = "x".repeat(65);
    for names in [["burst", "daily"], ["a.b:c_d-0", &longest], ["1", "2"]] {
        assert!(Description::new().try_names(names).is_ok(), "{names:?}");
    }
    for names in [["", "b"], ["a b", "c"], ["a", "ä"], ["a\"", "b"], ["a", &long], ["a", "a"]] {
        let error = Description::new().try_names(names).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{names:?}");
    }
}
