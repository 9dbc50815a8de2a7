//! Combinations: several limiters decide about one charge, all or nothing.
//!
//! `AllInTurn`, `AllAtOnce` and engines of other crates (`src/store.rs`) use one engine. Each
//! defines the parts of a charge (`member_charges.rs`), and those that share a call (`Rules`,
//! `at_once.rs`). `in_turn.rs` asks one step after another.

pub(crate) mod at_once;
pub(crate) mod decided;
pub(crate) mod held_reservations;
pub(crate) mod in_turn;
pub(crate) mod join_all;
mod member_charges;
pub(crate) mod whole_charge;

pub use member_charges::{MemberCharges, Parts};
