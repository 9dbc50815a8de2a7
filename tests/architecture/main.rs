//! What the sources and the documents promise of each other: `modules.rs` holds the rules for which
//! module may use which, `fault_table/` writes the page of faults, and `guide.rs` checks the guide.

mod fault_table;
mod guide;
mod imports;
mod modules;

use support::repository as root;
