use super::*;

#[test]
fn a_text_is_escaped() {
    let mut json = String::new();
    push_text(&mut json, "a \"b\" \\ \n\t\u{1f} ß €");
    assert_eq!(json, r#""a \"b\" \\ \u000a\u0009\u001f ß €""#);
}
