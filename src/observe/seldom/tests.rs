use super::*;

#[tokio::test(start_paused = true)]
async fn one_passes_each_second_and_the_others_are_counted() {
    let (seldom, mut seen) = (Seldom::default(), Vec::new());
    for _ in 0..25 {
        seldom.emit(|suppressed| seen.push(suppressed));
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert_eq!(seen, [0, 9, 9]);
}

#[tokio::test(start_paused = true)]
async fn what_is_rare_always_passes() {
    let (seldom, mut passed) = (Seldom::default(), 0);
    for _ in 0..5 {
        seldom.emit(|suppressed| passed += 1 + 10 * suppressed);
        tokio::time::advance(PAUSE).await;
    }
    assert_eq!(passed, 5);
}
