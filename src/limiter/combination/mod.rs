//! Combinations: several limiters decide about one charge, all or nothing.
//!
//! `AllInTurn`, `AllAtOnce` and policies are three fronts of one engine. A front says which parts a
//! charge has (`member_charges.rs`) and which of them share a call (`Rules`, `at_once.rs`).
//! `in_turn.rs` asks one step after another, and stops at the first refusal. `held_reservations.rs`
//! holds what was taken: it is given back, unless all admit. `joined_decision.rs` makes one
//! decision of several. Where one call decides about several charges, `whole_charge.rs` makes one
//! charge of them.

pub(crate) mod at_once;
pub(crate) mod held_reservations;
pub(crate) mod in_turn;
pub(crate) mod join_all;
pub(crate) mod joined_decision;
mod member_charges;
#[cfg(any(feature = "redis", feature = "policies"))]
pub(super) mod whole_charge;

pub use member_charges::{MemberCharges, Parts};
