use super::*;

fn put(shard: &mut Shard<i64>, name: usize, now: i64, expires_at: i64) -> Result<(), Error> {
    let set = |kept: &mut KeyState<i64>| {
        kept.state = Some(expires_at);
        ((), Some(expires_at))
    };
    let name = name.to_string();
    let name = name.as_bytes();
    shard.update((hash(&shard.hasher, name), name), now, set)
}

fn examined(shard: &Shard<i64>, now: i64) -> usize {
    shard.ages.iter().filter(|Reverse((age, _))| *age > now).count()
}

/// Every key might have expired by its first instant, but none has, since all were changed
/// later.
#[test]
fn a_decision_looks_at_a_bounded_number_of_keys() {
    const KEYS: usize = 10_000;
    let mut shard = Shard::new(KEYS, true, RandomState::new());
    for expires_at in [10, 1_000] {
        (0..KEYS).for_each(|key| put(&mut shard, key, 0, expires_at).unwrap());
    }
    assert_eq!(examined(&shard, 100), 0);
    for decisions in 1..=3 {
        assert_eq!(put(&mut shard, KEYS, 100, 1_000).unwrap_err().kind(), ErrorKind::Capacity);
        assert_eq!(examined(&shard, 100), decisions * MAX_EXAMINED);
    }
    shard.maintain(100);
    assert_eq!(examined(&shard, 100), 3 * MAX_EXAMINED + EXAMINED_PER_DECISION);
    // If decisions keep up with the changes, an old key is found at once.
    (0..KEYS).for_each(|_| shard.maintain(100));
    put(&mut shard, KEYS, 1_000, 2_000).unwrap();
    assert_eq!(shard.len(), KEYS);
}

#[test]
fn old_keys_that_may_not_go_stay_until_room_is_needed() {
    let mut shard = Shard::new(3, false, RandomState::new());
    (0..3).for_each(|key| put(&mut shard, key, 0, 10).unwrap());
    shard.maintain(20);
    assert_eq!(shard.len(), 3);
    put(&mut shard, 3, 20, 30).unwrap();
    assert_eq!(shard.len(), 3);
    shard.may_evict = true;
    shard.maintain(20);
    assert_eq!(shard.len(), 1);
}

/// A quarter of the memory is free, so only new keys look at others.
#[test]
fn with_room_only_new_keys_make_old_ones_go() {
    let mut shard = Shard::new(8, true, RandomState::new());
    put(&mut shard, 0, 0, 30).unwrap();
    (1..5).for_each(|key| put(&mut shard, key, 0, 10).unwrap());
    put(&mut shard, 0, 20, 30).unwrap();
    shard.maintain(20);
    assert_eq!(shard.len(), 5);
    put(&mut shard, 5, 20, 30).unwrap();
    put(&mut shard, 6, 20, 30).unwrap();
    assert_eq!(shard.len(), 3);
    (0..20).for_each(|key| put(&mut shard, key, 20, 30).unwrap_or_default());
    assert_eq!(shard.len(), 8);
}

#[test]
fn every_name_is_kept_as_it_was() {
    for length in 0..70 {
        let name = vec![b'x'; length];
        assert_eq!(EntryName::from(&*name).as_bytes(), name);
    }
}

#[test]
fn a_short_name_takes_no_more_than_its_bytes_and_its_length() {
    assert_eq!(size_of::<EntryName>(), MAX_IN_PLACE + 1);
}
