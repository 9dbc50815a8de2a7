//! Budgets: every answer is the model's, and what is settled keeps to the bound.

use crate::{crew, turn};
use support::Server;
use support::trial::held;

#[test]
fn what_is_held_and_settled_is_the_models_and_within_the_bound() {
    let _turn = turn();
    let server = Server::with(&[]);
    let histories = crew::number("ORACLE_HISTORIES", 30);
    let settlements = held::walk(&server.url(), histories).expect("as the model");
    println!("oracle algorithm=budget histories={histories} settlements={settlements} over=0");
    assert!(settlements as u64 > 20 * histories, "{settlements}");
}
