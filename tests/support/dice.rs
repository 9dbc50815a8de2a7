//! Random numbers and steps for histories that land on the edges, the same in every run.

use tower_sluice::algorithm::Quotas;

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
}

/// A step forward that may land on an edge of one of the quotas.
pub fn step(dice: &mut Dice, quotas: &Quotas) -> i64 {
    let one = dice.pick(quotas.as_slice());
    let period = one.period().as_micros() as i64;
    let unit = (period / one.limit() as i64).max(1);
    dice.pick(&[0, 0, 1, unit - 1, unit, unit + 1, period / 3, period - 1, period, period + 1])
}
