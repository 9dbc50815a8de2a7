use super::*;

// Case 155.
#[test]
fn the_alternate_form_shows_each_cause_once() {
    let new = |message: &'static str| Error::new(ErrorKind::Infrastructure, message);
    let broken = new("redis did not decide")
        .with_source(new("broken pipe").with_source(new("broken pipe").with_source(new(""))));
    assert_eq!(broken.to_string(), "redis did not decide");
    assert_eq!(format!("{broken:#}"), "redis did not decide: broken pipe");
    let deep = new("one").with_source(new("two: three").with_source(new("three")));
    assert_eq!(format!("{deep:#}"), "one: two: three");
}
