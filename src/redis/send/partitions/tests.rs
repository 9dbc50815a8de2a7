use super::*;

#[test]
fn callers_who_have_just_been_answered_are_expected_again() {
    let mut partitions = Partitions::new(64, 2);
    let send_half = |partitions: &mut Partitions| {
        assert_eq!((partitions.next(true), partitions.max_size(3)), (Some((3, 7)), 24));
        partitions.shrink(3, 24);
        partitions.call_begins(3, 24, false);
    };
    partitions.push(3, 7, 48);
    send_half(&mut partitions);
    assert_eq!(partitions.next(false), None, "the other half waits for the answers");
    // The answers come. The other half is sent unchanged, before their callers ask again.
    partitions.call_ended(3, 24);
    partitions.allow_next();
    send_half(&mut partitions);
    partitions.arrived(3, 24);
    send_half(&mut partitions);
    // One caller is left.
    for _ in 0..2 {
        partitions.call_ended(3, 24);
    }
    partitions.arrived(3, 1);
    assert_eq!((partitions.next(false), partitions.max_size(3)), (Some((3, 7)), 12));
    partitions.shrink(3, 1);
    partitions.call_begins(3, 1, true);
    partitions.call_ended(3, 1);
    assert_eq!(partitions.max_size(3), 64);
}

#[test]
fn few_charges_share_a_call() {
    let mut partitions = Partitions::new(64, 2);
    partitions.push(3, 7, 23);
    assert_eq!((partitions.next(true), partitions.max_size(3)), (None, 64));
    partitions.arrived(3, 1);
    assert_eq!((partitions.next(true), partitions.max_size(3)), (Some((3, 7)), 12));
}

#[test]
fn of_one_key_only_the_charges_that_are_there_count() {
    for is_one_key in [false, true] {
        let mut partitions = Partitions::new(64, 2);
        partitions.push(3, 7, 32);
        partitions.shrink(3, 16);
        partitions.call_begins(3, 16, is_one_key);
        // One caller alone says nothing about the keys of many.
        partitions.call_begins(3, 1, !is_one_key);
        partitions.call_ended(3, 1);
        partitions.call_ended(3, 16);
        assert_eq!(partitions.max_size(3), if is_one_key { 64 } else { 16 });
    }
}

#[test]
fn charges_of_one_key_share_a_call_until_it_is_full() {
    let mut partitions = Partitions::new(64, 4);
    partitions.call_begins(3, 2, true);
    partitions.call_ended(3, 2);
    partitions.push(3, 7, 64);
    assert_eq!((partitions.next(true), partitions.max_size(3)), (None, 64));
    partitions.arrived(3, 1);
    assert_eq!((partitions.next(true), partitions.max_size(3)), (Some((3, 7)), 33));
}

#[test]
fn half_of_the_calls_are_sent_at_once_if_they_are_full() {
    for (waiting, at_once) in [(64 + 63, 1), (2 * 64, 2), (9 * 64, 2)] {
        let mut partitions = Partitions::new(64, 4);
        partitions.push(3, 7, waiting);
        let send = |partitions: &mut Partitions| {
            let is_sent = partitions.next(false).is_some();
            if is_sent {
                partitions.shrink(3, 64);
                partitions.call_begins(3, 64, false);
            }
            is_sent
        };
        let sent = (0..4).filter(|_| send(&mut partitions)).count();
        assert_eq!(sent, at_once, "of {waiting} charges");
        // Answers come, or other charges.
        partitions.allow_next();
        partitions.arrived(3, 64);
        assert!(send(&mut partitions), "{waiting}");
    }
}

#[test]
fn a_full_call_is_found_behind_small_ones() {
    let mut partitions = Partitions::new(64, 2);
    for partition in 0..9 {
        partitions.push(partition, 7, if partition == 5 { 30 } else { 1 });
    }
    assert_eq!(partitions.next(true), Some((5, 7)));
    assert_eq!(partitions.pop(5), Some(7));
    assert_eq!(partitions.next(true), None);
    assert_eq!(partitions.next(false), Some((0, 7)));
}

#[test]
fn a_partition_is_kept_while_it_has_something_to_do() {
    let mut partitions = Partitions::new(64, 2);
    let known = |partitions: &Partitions| partitions.partitions.len();
    for requests in [1, 30] {
        partitions.push(3, 7, requests);
        assert_eq!((known(&partitions), partitions.next(false)), (1, Some((3, 7))));
        partitions.pop(3);
        partitions.shrink(3, requests);
        partitions.call_begins(3, requests, false);
        // The partition is no longer listed, but its call runs.
        assert_eq!((partitions.next(false), partitions.next(true)), (None, None));
        assert_eq!(known(&partitions), 1);
        partitions.call_ended(3, requests);
        assert_eq!(known(&partitions), 0);
    }
    for only_whole in [false, true] {
        partitions.push(3, 7, 30);
        partitions.pop(3);
        partitions.shrink(3, 30);
        assert_eq!((partitions.next(only_whole), known(&partitions)), (None, 0));
    }
    partitions.push(3, 7, 1);
    partitions.set_connecting(3, true);
    partitions.pop(3);
    partitions.shrink(3, 1);
    assert_eq!((partitions.next(false), known(&partitions)), (None, 1));
    partitions.set_connecting(3, false);
    assert_eq!(known(&partitions), 0);
}
