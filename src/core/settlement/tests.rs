use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use super::*;

/// Counts the wake-ups.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn poll(settlement: &mut Settlement) -> Option<Result<Settled, Error>> {
    match Pin::new(settlement).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn it_ends_when_its_sender_says_so_or_is_dropped() {
    let woken = Arc::new(WakeCount::default());
    let (sender, mut settlement) = Settlement::begin();
    let waker = Waker::from(Arc::clone(&woken));
    let pending = Pin::new(&mut settlement).poll(&mut Context::from_waker(&waker));
    assert!(pending.is_pending());
    sender.end(Ok(Settled::of(3)));
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(poll(&mut settlement).unwrap().unwrap(), Settled::of(3));

    let (sender, mut settlement) = Settlement::begin();
    drop(sender);
    assert_eq!(poll(&mut settlement).unwrap().unwrap_err().kind(), ErrorKind::State);
}

#[test]
fn an_observer_sees_the_result_whoever_awaits_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observer = || {
        let seen = Arc::clone(&seen);
        move |result: &Result<Settled, Error>| lock(&seen).push(result.as_ref().unwrap().given_back)
    };
    let (sender, mut settlement) = Settlement::begin();
    settlement.observe(observer());
    drop(settlement);
    sender.end(Ok(Settled::of(1)));
    let (sender, mut settlement) = Settlement::begin();
    sender.end(Ok(Settled::of(2)));
    settlement.observe(observer());
    Settlement::gave_back(3).observe(observer());
    assert_eq!(*lock(&seen), [1, 2, 3]);
}

#[test]
fn several_settle_what_the_most_of_them_did() {
    let error = || Err(Error::new(ErrorKind::Infrastructure, "away"));
    for (results, most) in [
        (vec![], Some(0)),
        (vec![Ok(0), Ok(2), Ok(1)], Some(2)),
        (vec![Ok(0), error()], None),
        (vec![error(), Ok(0)], None),
        (vec![error(), Ok(2)], Some(2)),
        (vec![Ok(2), error()], Some(2)),
        (vec![Ok(0), Ok(-3), Ok(-1)], Some(-3)),
    ] {
        let begun: Vec<_> = results.iter().map(|_| Settlement::begin()).collect();
        let (settlers, settlements): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
        let mut all = Settlement::all(settlements);
        for (sender, result) in settlers.into_iter().zip(results) {
            assert!(poll(&mut all).is_none());
            sender.end(result.map(Settled::of));
        }
        assert_eq!(poll(&mut all).expect("all have ended").ok(), most.map(Settled::of));
    }
}
