//! What takes seconds or depends on the machine, so that no test of the check measures it:
//! `cargo bench --all-features --bench measures` runs all, and `-- faults`, `-- reload`,
//! `-- in_turn` and `-- waiters` one of them. Each also asserts what must hold on a quiet machine.

mod faults;
mod in_turn;
mod reload;
mod waiters;

#[tokio::main]
async fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if is_chosen("faults") {
        faults::run().await;
    }
    if is_chosen("reload") {
        reload::run().await;
    }
    if is_chosen("in_turn") {
        in_turn::run().await;
    }
    if is_chosen("waiters") {
        waiters::run().await;
    }
}
