use super::*;

#[test]
fn callers_who_have_just_been_answered_are_expected_again() {
    let mut partitions = Partitions::new(64);
    partitions.set_max_in_flight(2);
    let send_half = |partitions: &mut Partitions| {
        assert_eq!((partitions.next(true), partitions.max_size(3)), (Some((3, 7)), 8));
        partitions.shrink(3, 8);
        partitions.call_begins(3, 8, false);
    };
    partitions.push(3, 7, 16);
    send_half(&mut partitions);
    assert_eq!(partitions.next(false), None, "the other half waits for the answers");
    // The answers come. The other half is sent unchanged, before their callers ask again.
    partitions.call_ended(3, 8);
    partitions.allow_next();
    send_half(&mut partitions);
    partitions.arrived(3, 8);
    send_half(&mut partitions);
    // One caller is left.
    for _ in 0..2 {
        partitions.call_ended(3, 8);
    }
    partitions.arrived(3, 1);
    assert_eq!((partitions.next(false), partitions.max_size(3)), (Some((3, 7)), 4));
    partitions.shrink(3, 1);
    partitions.call_begins(3, 1, true);
    partitions.call_ended(3, 1);
    assert_eq!(partitions.max_size(3), 64);
}

#[test]
fn charges_of_one_key_share_a_call() {
    let mut partitions = Partitions::new(64);
    partitions.set_max_in_flight(2);
    // The keys are known after the first call. Its other half then waits for no answer.
    partitions.push(3, 7, 16);
    assert_eq!(partitions.max_size(3), 8);
    partitions.shrink(3, 8);
    partitions.call_begins(3, 8, true);
    assert_eq!(partitions.next(false), Some((3, 7)));
    // One caller alone says nothing about the keys of many.
    partitions.call_begins(3, 1, false);
    partitions.arrived(3, 23 - partitions.partitions[&3].unanswered());
    assert_eq!(partitions.max_size(3), 64);
    partitions.arrived(3, 1);
    assert_eq!(partitions.max_size(3), 12);
    partitions.call_begins(3, 2, false);
    assert!(!partitions.limits.is_hot);
}

#[test]
fn a_full_call_is_found_behind_small_ones() {
    let mut partitions = Partitions::new(64);
    partitions.set_max_in_flight(2);
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
    let mut partitions = Partitions::new(64);
    partitions.set_max_in_flight(2);
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
