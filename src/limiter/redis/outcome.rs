//! What comes of a call: the charges have their answers, or a cluster sends them elsewhere.

use super::cluster::redirect::Next;
use super::request::Request;
use super::script_call::ScriptCall;

/// The result of a call whose charges have their answers.
#[derive(Default)]
pub(super) struct CallOutcome {
    pub(super) refunds: Vec<Request>,
    pub(super) unfinished: Vec<Unfinished>,
    /// Whether the server replied, be it with an error.
    pub(super) was_answered: bool,
}

/// A script call that no server has run, and where it goes next.
pub(super) struct Unfinished {
    pub(super) call: ScriptCall,
    pub(super) next: Next,
    /// Whether nothing else is sent for its slot meanwhile if it carries refunds.
    pub(super) keeps_slot: bool,
}
