//! Combinations: several limiters decide about one charge, all or nothing.
//!
//! `AllInTurn`, `AllAtOnce` and engines of other crates (`src/store.rs`) use one engine. Each
//! defines the parts of a charge (`member_charges.rs`) and the parts that share a call (`Rules`,
//! `at_once.rs`). `in_turn.rs` asks one step after another, and stops at the first refusal.
//! `held_reservations.rs` holds the taken units: they are given back unless all admit. `decided.rs`
//! joins several decisions into one. If one call decides about several charges, `whole_charge.rs`
//! makes one charge from them.

pub(crate) mod at_once;
pub(crate) mod decided;
pub(crate) mod held_reservations;
pub(crate) mod in_turn;
pub(crate) mod join_all;
mod member_charges;
pub(crate) mod whole_charge;

pub use member_charges::{MemberCharges, Parts};
