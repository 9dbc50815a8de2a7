//! All histories up to a depth, breadth first: equal states with equal books are visited once.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

use tower_sluice::algorithm::{Algorithm, Check, Refund, Verdict};

use super::book::{Book, Booking};
use super::checks::Place;
use super::kinds::{HORIZON, Kind};

/// A multiple of every period, so that windows of the clock begin there.
const START: i64 = 840;

/// The steps of the clock between two events, in µs: the last is past every horizon and window.
const CLOCK_STEPS: [i64; 8] = [0, 1, 2, 3, 5, -1, -4, -61];

/// The result of an exploration.
pub struct Seen {
    /// Different states, whatever their books.
    pub states: usize,
    /// States at an instant, each with its book, at which everything was checked.
    pub nodes: usize,
    pub violation: Option<String>,
}

/// An event at an instant.
#[derive(Clone, Copy, Debug)]
enum Event {
    Charge {
        cost: i64,
        max_wait: i64,
    },
    /// A booking, by its place in the book, and the units that its caller used.
    Settle {
        booking: usize,
        used: i64,
    },
    /// A booking, by its place in the book.
    Renew {
        booking: usize,
    },
}

/// An event with the step of the clock before it, after others.
struct Link {
    clock_step: i64,
    event: Event,
    before: History,
}

type History = Option<Rc<Link>>;

struct Node<A: Algorithm> {
    state: Option<A::State>,
    /// The time that the clock shows.
    now: i64,
    /// The time that has truly passed.
    passed: i64,
    went_back: bool,
    book: Book,
    history: History,
}

impl<A: Algorithm> Clone for Node<A> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            book: self.book.clone(),
            history: self.history.clone(),
            ..*self
        }
    }
}

/// Hashes a text of the value: states have no hash of their own.
fn digest_of(value: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{value:?}").as_bytes());
    hasher.finish()
}

/// Makes all histories of up to `depth` events, and checks every instant of each, until one fails.
pub fn explore<A: Algorithm>(kind: &Kind<A>, depth: usize) -> Seen {
    let mut nodes = HashSet::new();
    let mut states = HashSet::new();
    let mut violation = None;
    let mut frontier: Vec<Node<A>> = (0..kind.phases).map(Node::new).collect();
    'all: for left in (0..=depth).rev() {
        let mut next = Vec::new();
        let mut reached = HashSet::new();
        for node in frontier {
            for clock_step in CLOCK_STEPS {
                let node = node.after(kind, clock_step);
                if !nodes.insert(node.digest()) {
                    continue;
                }
                states.insert(digest_of(&node.state));
                if let Err(why) = node.check(kind) {
                    violation = Some(node.tell(why, clock_step));
                    break 'all;
                }
                for event in node.events(kind).into_iter().filter(|_| left > 0) {
                    match node.play(kind, clock_step, event) {
                        Ok(Some(after)) if reached.insert(after.digest()) => next.push(after),
                        Ok(_) => {}
                        Err(why) => {
                            violation = Some(node.tell(format!("{event:?}: {why}"), clock_step));
                            break 'all;
                        }
                    }
                }
            }
        }
        frontier = next;
    }
    Seen { states: states.len(), nodes: nodes.len(), violation }
}

impl<A: Algorithm> Node<A> {
    fn new(phase: i64) -> Self {
        let now = START + phase;
        let (book, passed) = (Book::default(), now);
        Self { state: None, now, passed, went_back: false, book, history: None }
    }

    fn after(&self, kind: &Kind<A>, clock_step: i64) -> Self {
        let mut next = self.clone();
        next.now += clock_step;
        next.passed += clock_step.max(0);
        next.went_back |= clock_step < 0;
        let clamped = next.state.as_ref().and_then(|state| A::clamp(&kind.rule, state, next.now));
        if clock_step < 0 && clamped.is_some() {
            for booking in &mut next.book.bookings {
                booking.is_forgotten |= booking.slot > next.passed;
            }
        }
        next
    }

    /// Two nodes with this in common go on alike.
    fn digest(&self) -> u64 {
        let bookings = self
            .book
            .bookings
            .iter()
            .filter(|one| one.used > 0 || one.is_held || one.mark.is_some());
        let bookings: Vec<_> = bookings
            .map(|one| {
                (
                    one.slot - self.passed,
                    one.decided - self.passed,
                    one.used,
                    one.is_held,
                    &one.mark,
                )
            })
            .collect();
        let settled: Vec<_> =
            self.book.settled.iter().map(|(at, units)| (at - self.passed, units)).collect();
        let passed = if self.went_back { None } else { Some(self.passed) };
        digest_of(&(&self.state, self.now, passed, bookings, settled))
    }

    fn check(&self, kind: &Kind<A>) -> Result<(), String> {
        let has_held = self.book.bookings.iter().any(|booking| booking.is_held);
        Place { kind, state: &self.state, now: self.now, has_held }.check()
    }

    /// Everything that may happen now. Under any longer wait a charge is taken in the same way, as
    /// `check` shows: so the longest and none stand for all.
    fn events(&self, kind: &Kind<A>) -> Vec<Event> {
        let charges = (1..kind.max_cost)
            .flat_map(|cost| [0, HORIZON].map(|max_wait| Event::Charge { cost, max_wait }));
        let settlements = self.book.bookings.iter().enumerate().flat_map(|(booking, one)| {
            let most = if one.mark.is_some() { one.cost + 1 } else { -1 };
            let used = (0..=most).filter(|used| *used != one.cost || A::holds(&kind.rule));
            used.map(move |used| Event::Settle { booking, used })
        });
        let held = self.book.bookings.iter().enumerate();
        let held = held.filter(|(_, one)| A::holds(&kind.rule) && one.mark.is_some());
        let renewals = held.map(|(booking, _)| Event::Renew { booking });
        charges.chain(settlements).chain(renewals).collect()
    }

    /// The node after an event; none if nothing has changed.
    fn play(&self, kind: &Kind<A>, clock_step: i64, event: Event) -> Result<Option<Self>, String> {
        let mut next = self.clone();
        match event {
            Event::Charge { cost, max_wait } => {
                let check = Check::new(cost, max_wait);
                let answer = A::step(&kind.rule, &mut next.state, self.now, check);
                let wait = match answer.verdict {
                    Verdict::Allow => 0,
                    Verdict::Wait(wait) => wait,
                    _ if next.state == self.state => return Ok(None),
                    _ => -1,
                };
                if wait >= 0 {
                    let (decided, slot) = (self.passed, self.passed + wait);
                    let latest = self.book.latest().filter(|_| !A::holds(&kind.rule));
                    if latest.is_some_and(|latest| latest > slot) && !self.went_back {
                        return Err(format!("{answer:?} overtakes the slot at {latest:?}"));
                    }
                    let booking = Booking {
                        decided,
                        slot,
                        cost,
                        used: cost,
                        is_forgotten: false,
                        is_held: A::holds(&kind.rule),
                        mark: answer.mark,
                    };
                    next.book.bookings.push(booking);
                }
            }
            Event::Renew { booking } => {
                let one = &mut next.book.bookings[booking];
                let mark = one.mark.take().expect("not settled yet");
                let (mark, is_held) =
                    A::renew(&kind.rule, &mut next.state, self.now, one.cost, &mark);
                one.mark = Some(mark);
                if is_held {
                    one.decided = self.passed;
                }
            }
            Event::Settle { booking, used } => {
                let booking = &mut next.book.bookings[booking];
                let (cost, mark) = (booking.cost, booking.mark.take().expect("not settled yet"));
                let refund = Refund { units: cost - used, cost, mark: &mark };
                let given = A::settle(&kind.rule, &mut next.state, self.now, &refund);
                let possible = refund.units.min(0)..=refund.units.max(0);
                if given.is_some_and(|given| !possible.contains(&given)) {
                    return Err(format!("gave back {given:?}"));
                }
                // More than was taken is a penalty, of which the bound is not checked.
                booking.used = used.min(cost);
                let hold = kind.bounds.iter().find_map(|bound| bound.max_hold);
                let is_sure = kind.bounds.len() == 1
                    || !self.went_back && hold > Some(self.passed - booking.decided);
                if given.is_some() && is_sure && hold.is_some() {
                    booking.is_held = false;
                    next.book.settled.push((self.passed, used.min(cost)));
                }
            }
        }
        if let Some(why) = next.book.over(kind, self.went_back, self.passed) {
            return Err(why);
        }
        let before = self.history.clone();
        next.history = Some(Rc::new(Link { clock_step, event, before }));
        Ok(Some(next))
    }

    /// Tells what is wrong, and all that led to it.
    fn tell(&self, why: String, clock_step: i64) -> String {
        let mut events = vec![format!("{clock_step:+} µs")];
        let mut link = &self.history;
        while let Some(one) = link {
            events.push(format!("{:+} µs: {:?}", one.clock_step, one.event));
            link = &one.before;
        }
        events.reverse();
        format!("{why}\nafter {}, at {}, with {:?}", events.join(", "), self.now, self.state)
    }
}
