//! An estimate says what a check would answer, and takes nothing.

use super::*;

use support::algorithms::{Visit, each_algorithm};
use support::dice::step;

const START: i64 = 1_767_225_600_000_000;

/// An estimate is what the step then answers, but for the units; and it says how the key stands.
#[test]
fn every_estimate_is_what_the_step_then_answers() {
    struct Histories(usize);
    impl Visit for Histories {
        fn visit<A: InLua>(&mut self, algorithm: A) {
            let quotas = algorithm.quota();
            let rule = algorithm.rule(quotas.clone()).expect("a rule");
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
            let (mut now, mut state) = (START, None);
            for _ in 0..2_000 {
                now += step(&mut dice, &quotas) / 2;
                let check = Check::new(dice.pick(&[0, 1, 1, 2, 5, 6]), dice.pick(&[0, 60_000_000]));
                let estimate = A::estimate(&rule, state.as_ref(), now, check);
                let report = A::report(&rule, state.as_ref(), now);
                assert_eq!((estimate.report, &estimate.mark), (report, &None), "{}", A::NAME);
                let answer = A::step(&rule, &mut state, now, check);
                assert_eq!(estimate.verdict, answer.verdict, "{} {check:?}", A::NAME);
                self.0 += usize::from(matches!(answer.verdict, Verdict::Wait(_)));
            }
        }
    }
    let mut histories = Histories(0);
    each_algorithm(Quota::per_second(5), &mut histories);
    assert!(histories.0 > 500, "{}", histories.0);
}
