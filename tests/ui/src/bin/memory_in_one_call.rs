//! `AllAtOnce` is for limiters in Redis.

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, Memory, Quota};

fn main() {
    let user = Memory::new("user", TokenBucket::new(Quota::per_second(10)));
    let everybody = Memory::new("everybody", TokenBucket::new(Quota::per_second(100)));
    let _ = AllAtOnce::new((user, everybody), |charge| [charge.clone(), Charge::new("all")]); //~ for `Memory` and any other limiters take `AllInTurn`, with an array `[one.boxed(), other.boxed()]`
}
