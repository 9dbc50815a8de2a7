use super::*;

#[test]
fn a_call_takes_half_of_the_charges_without_an_answer() {
    let mut partitions = Partitions::new(64, 2, false);
    let send_half = |partitions: &mut Partitions| {
        assert_eq!((partitions.next(), partitions.max_size(3)), (Some((3, 7)), 24));
        partitions.shrink(3, 24);
        partitions.call_begins(3, 24, false);
    };
    partitions.push(3, 7, 48);
    send_half(&mut partitions);
    send_half(&mut partitions);
    assert_eq!(partitions.next(), None, "two calls are in flight");
    // One of them is answered, and its callers ask again.
    partitions.call_ended(3, 24, None);
    partitions.arrived(3, 24);
    send_half(&mut partitions);
}

#[test]
fn few_charges_share_a_call() {
    for (is_routed, fewest) in [(false, MIN_SHARED), (true, MIN_SHARED_IN_CLUSTER)] {
        let mut partitions = Partitions::new(64, 2, is_routed);
        partitions.push(3, 7, fewest - 1);
        assert_eq!((partitions.next(), partitions.max_size(3)), (Some((3, 7)), 64));
        partitions.arrived(3, 1);
        assert_eq!((partitions.next(), partitions.max_size(3)), (Some((3, 7)), fewest / 2));
    }
}

#[test]
fn charges_of_one_key_share_a_call_until_it_is_full() {
    let mut partitions = Partitions::new(64, 4, false);
    partitions.call_begins(3, 2, true);
    // One caller alone says nothing about the keys of many.
    partitions.call_begins(3, 1, false);
    partitions.call_ended(3, 1, None);
    partitions.call_ended(3, 2, None);
    partitions.push(3, 7, 64);
    assert_eq!(partitions.max_size(3), 64);
    partitions.arrived(3, 1);
    assert_eq!(partitions.max_size(3), 33);
}

#[test]
fn a_far_server_has_more_calls_in_flight() {
    let mut partitions = Partitions::new(64, 16, false);
    partitions.push(3, 7, 99);
    let send_all = |partitions: &mut Partitions| {
        let mut sent = 0;
        while partitions.next().is_some() {
            partitions.shrink(3, 1);
            partitions.call_begins(3, 1, false);
            sent += 1;
        }
        sent
    };
    assert_eq!(send_all(&mut partitions), 4);
    // A call without an answer says nothing.
    partitions.call_ended(3, 1, None);
    assert_eq!(send_all(&mut partitions), 1);
    partitions.call_ended(3, 1, Some(Duration::from_millis(1)));
    assert_eq!(send_all(&mut partitions), 2);
}

#[test]
fn a_partition_is_kept_while_it_has_something_to_do() {
    let mut partitions = Partitions::new(64, 2, false);
    let known = |partitions: &Partitions| partitions.partitions.len();
    for requests in [1, 30] {
        partitions.push(3, 7, requests);
        assert_eq!((known(&partitions), partitions.next()), (1, Some((3, 7))));
        partitions.pop(3);
        partitions.shrink(3, requests);
        partitions.call_begins(3, requests, false);
        // The partition is no longer listed, but its call runs.
        assert_eq!(partitions.next(), None);
        assert_eq!(known(&partitions), 1);
        partitions.call_ended(3, requests, None);
        assert_eq!(known(&partitions), 0);
    }
    partitions.push(3, 7, 30);
    partitions.pop(3);
    partitions.shrink(3, 30);
    assert_eq!((partitions.next(), known(&partitions)), (None, 0));
    partitions.push(3, 7, 1);
    partitions.set_connecting(3, true);
    partitions.pop(3);
    partitions.shrink(3, 1);
    assert_eq!((partitions.next(), known(&partitions)), (None, 1));
    partitions.set_connecting(3, false);
    assert_eq!(known(&partitions), 0);
}
