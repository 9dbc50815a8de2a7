//! A sorted set: members in the order of their scores, and then of their bytes.

use super::resp::Word;

/// The members of a sorted set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedSet {
    members: Vec<(f64, Word)>,
}

impl SortedSet {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Scores and members, from the lowest score on.
    pub fn members(&self) -> &[(f64, Word)] {
        &self.members
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.members.iter().find(|(_, one)| one == member).map(|(score, _)| *score)
    }

    /// Adds a member or moves it. Returns whether it is new.
    pub fn insert(&mut self, score: f64, member: Word) -> bool {
        let is_new = !self.remove(&member);
        let before = |one: &(f64, Word)| {
            one.0.partial_cmp(&score).expect("no score is NaN").then_with(|| one.1.cmp(&member))
                == std::cmp::Ordering::Less
        };
        let place = self.members.partition_point(before);
        self.members.insert(place, (score, member));
        is_new
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let place = self.members.iter().position(|(_, one)| one == member);
        place.map(|place| self.members.remove(place)).is_some()
    }

    /// Removes the members of some ranks.
    pub fn remove_ranks(&mut self, ranks: std::ops::Range<usize>) {
        self.members.drain(ranks);
    }

    /// The ranks of scores within bounds.
    pub fn ranks_of(&self, low: Bound, high: Bound) -> std::ops::Range<usize> {
        let first = self.members.partition_point(|(score, _)| low.is_above(*score));
        let end = self.members.partition_point(|(score, _)| !high.is_below(*score));
        first..end.max(first)
    }

    /// The ranks from one to another, both included, where negative ones count from the end.
    pub fn ranks(&self, first: i64, last: i64) -> std::ops::Range<usize> {
        let length = self.len() as i64;
        let from_start = |rank: i64| if rank < 0 { rank.saturating_add(length) } else { rank };
        let first = from_start(first).clamp(0, length);
        let end = from_start(last).saturating_add(1).clamp(first, length);
        first as usize..end as usize
    }
}

/// An end of a range of scores: `5`, or `(5`, which leaves out 5 itself.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    pub fn read(text: &[u8]) -> Option<Self> {
        let open = text.strip_prefix(b"(");
        let score = score(open.unwrap_or(text))?;
        Some(Self { score, is_open: open.is_some() })
    }

    fn is_above(self, score: f64) -> bool {
        score < self.score || self.is_open && score == self.score
    }

    fn is_below(self, score: f64) -> bool {
        score > self.score || self.is_open && score == self.score
    }
}

/// The score that a text is: a number or an infinity.
pub fn score(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|score: &f64| !score.is_nan())
}
