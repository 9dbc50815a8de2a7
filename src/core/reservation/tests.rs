use super::*;

#[test]
fn of_different_keys_none_is_kept() {
    let [one, other, third] = [1, 2, 3].map(|hash| NonZeroU64::new(hash).unwrap());
    let mut reservation = Reservation::new(Owner::new(), 1, ());
    assert_eq!(reservation.charged, None);
    for (key, kept) in [(one, one), (one, one), (other, SEVERAL), (third, SEVERAL)] {
        reservation.add_charged(key);
        assert_eq!(reservation.charged, Some(kept));
    }
    assert_eq!(reservation.into_payload::<u8>().unwrap_err().cost(), 1);
}

#[test]
fn what_is_held_has_the_same_owner() {
    let mine = Owner::new();
    let held = Reservation::new(mine, 1, ()).held();
    assert_eq!((held.owner(), held.is_held()), (mine, true));
    let spent = held.with_held(false);
    assert_eq!((spent.owner(), spent.is_held()), (mine, false));
}
