//! Random numbers and steps for histories that land on the edges, the same in every run.

use tower_sluice::algorithm::Quotas;

/// Returns how often a test plays its number of random histories: as the variable `HISTORIES` says,
/// or once. The check is short for that; CONTRIBUTING.md names the command that plays more.
pub fn times() -> usize {
    std::env::var("HISTORIES").map_or(1, |text| text.parse().expect("a number"))
}

/// Numbers that are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// One of the words between bars.
    pub fn word<'a>(&mut self, words: &'a str) -> &'a str {
        self.pick(&words.split('|').collect::<Vec<_>>())
    }
}

/// A step forward that may land on an edge of one of the quotas.
pub fn step(dice: &mut Dice, quotas: &Quotas) -> i64 {
    let one = dice.pick(quotas.as_slice());
    let period = one.period().as_micros() as i64;
    let unit = (period / one.limit() as i64).max(1);
    dice.pick(&[0, 0, 1, unit - 1, unit, unit + 1, period / 3, period - 1, period, period + 1])
}
