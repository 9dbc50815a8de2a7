//! A quota, and nothing that counts it.

use tower_sluice::{Memory, Pool, Quota, Redis};

fn main() {
    let _ = Memory::new("api", Quota::per_second(5)); //~ a quota needs an algorithm that counts it: write `TokenBucket::new(quota)`
    let pool = Pool::connect("redis://127.0.0.1:6379").unwrap();
    let _ = Redis::new("api", Quota::per_second(5), pool); //~ `Quota` is not an algorithm that Redis can run
}
