use super::*;
use crate::algorithm::{Mark, TokenBucket};

const SECOND: Duration = Duration::from_secs(1);

/// A store that cannot take slots back.
struct Keeps;

impl SettleUnits for Keeps {
    fn settle_units(&self, _: &ReservedUnits, _: u64, _: u64) -> Settlement {
        Settlement::gave_back(0)
    }
}

/// The store answers a charge, and the key is reset before the answer is read.
#[tokio::test(start_paused = true)]
async fn no_charge_finds_a_slot_that_was_given_before_a_reset() {
    for is_reset in [false, true] {
        let bucket = TokenBucket::new(Quota::per_second(1));
        let named = ConfiguredAlgorithm::new("api".into(), bucket).expect("an algorithm");
        let known = named.lines.known();
        if is_reset {
            named.lines.forget("key", true);
        }
        let reserved =
            ReservedUnits { key: Key::Constant("key"), quota: None, mark: Mark::default() };
        let decision = Decision::new(Outcome::Wait(SECOND));
        let mut decision = decision.with_reservation(named.reservation(1, reserved));
        named.line_up(&mut decision, &KeepFree::default(), known, || Arc::new(Keeps));
        let place = decision.reservation().and_then(Reservation::turn).expect("a place");
        place.add();
        assert!(place.leave().is_some());
        assert_eq!(named.lines.have_spares(), !is_reset);
    }
}
