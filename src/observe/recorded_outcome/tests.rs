use super::*;

#[test]
fn each_kind_stands_at_its_index() {
    use ErrorKind::{Capacity, Configuration, Infrastructure, Request, Saturation, State};
    for kind in [Infrastructure, Saturation, Capacity, Configuration, Request, State] {
        let name = format!("{kind:?}").to_lowercase();
        assert_eq!(KINDS[kind_index(&Error::new(kind, ""))], name);
    }
}
