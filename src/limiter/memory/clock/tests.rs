use super::*;

#[test]
fn a_suspended_machine_moves_the_clock_on_and_nothing_moves_it_back() {
    let unseen = Unseen::since_now();
    assert_eq!(unseen.time(0), 0);
    let hour = 3_600 * SECOND;
    // The times of both clocks, and what passed unseen by then.
    let table = [
        (hour, hour + 9 * SECOND, 0),
        (hour, 30 * hour, 29 * hour),
        // It is set back, and corrected a little.
        (2 * hour, 2 * hour, 29 * hour),
        (2 * hour, 31 * hour + SECOND, 29 * hour),
        (3 * hour, 99 * hour, 96 * hour),
    ];
    for (own, world, expected) in table {
        unseen.compare(own, world);
        assert_eq!(unseen.time(0), expected, "{own} {world}");
    }
}

/// Its own clock stands still, and that of the world does not.
#[tokio::test(start_paused = true)]
async fn paused_time_is_not_unseen() {
    let clock = Clock::tokio(true);
    let before = clock.now().unwrap();
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(clock.now().unwrap() - before, 60 * SECOND);
}
