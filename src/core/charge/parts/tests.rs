use super::*;

#[test]
fn a_charge_is_as_large_as_one_of_a_single_text() {
    assert_eq!(size_of::<Key>(), size_of::<String>());
}

/// Compilers move up to 128 bytes without a call.
#[test]
fn a_charge_is_short_enough_to_be_moved_in_place() {
    assert!(size_of::<Charge>() <= 128, "{} bytes", size_of::<Charge>());
}

#[test]
fn the_whole_waits_no_longer_than_any_part() {
    let [short, long] = [1, 2].map(Duration::from_secs);
    let parts = ["a", "b", "c"].map(Charge::from_static);
    assert_eq!(Charge::several(parts.clone()).longest_wait(), None);
    let [a, b, c] = parts;
    let whole = Charge::several([a.max_wait(long), b.max_wait(short), c]);
    assert_eq!((whole.longest_wait(), whole.key(), whole.units()), (Some(short), "", 1));
}

#[test]
fn tuples_and_arrays_are_charges_of_several_keys() {
    let keys = |charge: &Charge| {
        let key = |part: &Option<Charge>| part.as_ref().map(|part| part.key().to_owned());
        charge.parts().iter().map(key).collect::<Vec<_>>()
    };
    let text = |key: &str| Some(key.to_owned());
    assert_eq!(keys(&Charge::new("a")), []);
    assert_eq!(keys(&Charge::new(["a", "b"])), [text("a"), text("b")]);
    assert_eq!(keys(&Charge::new(("a", String::from("b")))), [text("a"), text("b")]);
    assert_eq!(keys(&Charge::several([Some(Charge::new("a")), None])), [text("a"), None]);
    let nested = Charge::new((("a", "b"), "c"));
    assert_eq!(keys(nested.parts()[0].as_ref().unwrap()), [text("a"), text("b")]);
}
