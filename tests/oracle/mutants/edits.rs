//! Mutants of the scripts: one edit each, and the judge that must notice.

use super::judges::Judge::{self, *};

/// Each mutant with a name, the algorithm that is judged, and the judge; below them the lines that
/// go, and those that come.
const EDITS: &str = include_str!("edits.txt");

const JUDGES: [Judge; 9] = [Saturating, Mixed, Use, Edges, Expiry, Corrupt, Clock, Held, Reset];

/// An edit of a script.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The algorithm that is judged.
    pub(crate) algorithm: &'static str,
    pub(crate) judge: Judge,
    pub(crate) from: String,
    pub(crate) to: String,
}

pub(crate) fn mutants() -> Vec<Mutant> {
    EDITS.split("\n\n").map(mutant).collect()
}

fn mutant(edit: &'static str) -> Mutant {
    let (head, lines) = edit.split_once('\n').expect("lines");
    let [name, algorithm, judge] = head.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{head}");
    };
    let judge = JUDGES.into_iter().find(|one| format!("{one:?}") == judge);
    let side = |sign: char| {
        let lines = lines.lines().filter_map(|line| line.strip_prefix(sign));
        let lines: Vec<_> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.join("\n")
    };
    Mutant { name, algorithm, judge: judge.expect(head), from: side('-'), to: side('+') }
}
