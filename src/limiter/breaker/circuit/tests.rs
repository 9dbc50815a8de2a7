use std::collections::HashSet;
use std::time::Duration;

use super::model::{MIN_FAILURES, Model, WINDOW, change_of_probes, trouble};
use super::*;

const CALLERS: usize = 3;
/// The pause in ticks, like all times here.
const PAUSE: u32 = 1;
const LOST: u32 = 5 * PAUSE;

const SETTINGS: Settings = Settings {
    window: ticks(WINDOW),
    min_failures: MIN_FAILURES as u32,
    failure_percent: 50,
    slow_after: None,
    pause: ticks(PAUSE),
};

const fn ticks(ticks: u32) -> Duration {
    Duration::from_millis(ticks as u64)
}

/// A caller that asks, in the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    permit: Permit,
    /// The number of state changes before it began.
    period: u32,
    begun: u32,
    is_probe: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    circuit: Circuit,
    model: Model,
    period: u32,
    now: u32,
    callers: Vec<Caller>,
    /// The probe that began last, if it is in flight.
    newest_probe: Option<Caller>,
}

impl World {
    fn closed() -> Self {
        Self {
            circuit: Circuit::new(),
            model: Model::Closed(Vec::new()),
            period: 0,
            now: 0,
            callers: Vec::new(),
            newest_probe: None,
        }
    }

    /// Makes a world with an open circuit, after two failures.
    fn open() -> Self {
        let mut world = Self::closed();
        for _ in 0..MIN_FAILURES {
            world.begin();
            world.end(0, Ending::Failed);
        }
        assert_eq!(world.circuit.closed_period(), None);
        world
    }

    fn begin(&mut self) {
        let probe_is_under_way =
            self.newest_probe.as_ref().is_some_and(|probe| self.now < probe.begun + LOST);
        let may_ask = match &self.model {
            Model::Closed(_) => true,
            Model::Open { failed, .. } => {
                failed.is_none_or(|failed| self.now >= failed + PAUSE) && !probe_is_under_way
            }
        };
        let is_open = matches!(self.model, Model::Open { .. });
        assert_eq!(self.circuit.refuses(ticks(self.now)), !may_ask, "{self:?}");
        let permit = self.circuit.admit(ticks(self.now), &SETTINGS);
        assert_eq!(permit.is_some(), may_ask, "{self:?}");
        let Some(permit) = permit else { return };
        assert_eq!(permit.is_probe(), is_open);
        let caller = Caller { permit, period: self.period, begun: self.now, is_probe: is_open };
        if is_open {
            self.newest_probe = Some(caller.clone());
        }
        self.callers.push(caller);
    }

    fn end(&mut self, caller: usize, outcome: Ending) {
        let caller = self.callers.remove(caller);
        let before = self.circuit.clone();
        let now = ticks(self.now);
        let change = self.circuit.end(caller.permit, outcome, now, ticks(PAUSE), &SETTINGS);
        if caller.period != self.period {
            assert_eq!((change, &self.circuit), (None, &before), "{caller:?}");
            return;
        }
        let is_newest_probe = self.newest_probe.as_ref() == Some(&caller);
        let expected = match &mut self.model {
            Model::Closed(ends) => {
                ends.push((self.now, outcome));
                trouble(ends).map(CircuitChange::Opened)
            }
            Model::Open { .. } if outcome == Ending::Answered => Some(CircuitChange::Closed),
            Model::Open { first, probes, failed } => {
                let is_load = matches!(outcome, Ending::Slow | Ending::Saturated);
                if is_newest_probe {
                    let says_much = matches!(outcome, Ending::Slow | Ending::Failed);
                    *failed = says_much.then_some(self.now);
                }
                (is_load || is_newest_probe && outcome == Ending::Failed).then(|| {
                    probes.push(outcome);
                    change_of_probes(*first, probes)
                })
            }
        };
        let keeps_failing_open = change == Some(CircuitChange::StaysOpen(Trouble::Errors));
        assert!(!(keeps_failing_open && outcome != Ending::Failed), "{caller:?} {self:?}");
        assert_eq!(change, expected, "{caller:?} {outcome:?} {self:?}");
        if is_newest_probe {
            self.newest_probe = None;
        }
        match change {
            Some(CircuitChange::Opened(first)) => {
                let failed = Some(self.now);
                self.enter(Model::Open { first, probes: Vec::new(), failed });
            }
            Some(CircuitChange::Closed) => {
                self.enter(Model::Closed(vec![(self.now, Ending::Answered)]));
            }
            Some(CircuitChange::StaysOpen(_)) | None => {}
        }
        let is_closed = matches!(self.model, Model::Closed(_));
        assert_eq!(self.circuit.closed_period().is_some(), is_closed);
    }

    fn enter(&mut self, model: Model) {
        (self.model, self.newest_probe) = (model, None);
        self.period += 1;
    }

    /// Asserts that after any behaviour of the callers, a later one may ask, and its answer
    /// closes the circuit.
    fn assert_it_recovers(&self) {
        let (mut circuit, later) = (self.circuit.clone(), ticks(self.now + LOST));
        let permit = circuit.admit(later, &SETTINGS).expect("somebody may ask");
        circuit.end(permit, Ending::Answered, later, ticks(PAUSE), &SETTINGS);
        assert_eq!(circuit.state(later), BreakerState::Closed, "{self:?}");
    }

    fn assert_state(&self) {
        let state = self.circuit.state(ticks(self.now));
        let expected = match &self.model {
            Model::Closed(_) => BreakerState::Closed,
            Model::Open { failed, .. }
                if self.newest_probe.is_none()
                    && failed.is_some_and(|failed| self.now < failed + PAUSE) =>
            {
                BreakerState::Open
            }
            Model::Open { .. } => BreakerState::HalfOpen,
        };
        assert_eq!(state, expected, "{self:?}");
    }

    fn successors(&self) -> Vec<World> {
        let mut found = Vec::new();
        let mut then = |step: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            step(&mut world);
            found.push(world);
        };
        for passed in [1, WINDOW] {
            then(&|world| world.now += passed);
        }
        if self.callers.len() < CALLERS {
            then(&World::begin);
        }
        for caller in 0..self.callers.len() {
            use Ending::{Answered, Failed, Saturated, Slow, Unknown};
            for outcome in [Answered, Failed, Slow, Saturated, Unknown] {
                then(&|world| world.end(caller, outcome));
            }
        }
        found
    }
}

/// Takes every sequence of `depth` steps from `root`.
fn explore(root: World, depth: usize) -> usize {
    let mut seen = HashSet::from([root.clone()]);
    let mut frontier = vec![root];
    for _ in 0..depth {
        let mut next = Vec::new();
        for world in frontier.iter().flat_map(World::successors) {
            if !seen.contains(&world) {
                world.assert_it_recovers();
                world.assert_state();
                seen.insert(world.clone());
                next.push(world);
            }
        }
        frontier = next;
    }
    seen.len()
}

// Case 106.
#[test]
fn no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit() {
    let worlds = explore(World::closed(), 9) + explore(World::open(), 8);
    println!("fault case=106 worlds={worlds}");
    assert!(worlds > 50_000, "only {worlds} were seen");
}

/// An answer may be the first of a store that is back. The failure after it opens the circuit.
#[test]
fn some_failures_open_with_a_failure_and_never_with_an_answer() {
    use Ending::{Answered, Failed};
    let mut world = World::closed();
    let end = |world: &mut World, outcome| {
        world.begin();
        world.end(0, outcome);
    };
    for _ in 0..2 {
        [Answered, Failed, Failed].into_iter().for_each(|outcome| end(&mut world, outcome));
        world.now += WINDOW / 2;
    }
    end(&mut world, Answered);
    assert!(matches!(world.model, Model::Closed(_)));
    end(&mut world, Failed);
    assert!(matches!(world.model, Model::Open { first: Trouble::SomeErrors, .. }));
}
