//! The table at the end, and the exit code.

use std::process::ExitCode;

use support::trial::Played;

use crate::check::Proof;

/// The result of a check.
#[derive(Clone, Debug)]
pub(crate) enum Result {
    Kept,
    /// The server or its rights do not allow the check, for this reason.
    NotChecked(String),
    /// Too many calls had no answer, so that nothing is proven.
    Lost(String),
    /// With what was found.
    Broken(String),
}

/// A check: its name, what was done, and the result.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) done: String,
    pub(crate) result: Result,
}

impl Row {
    pub(crate) fn kept(name: impl Into<String>, done: impl Into<String>) -> Self {
        Self { name: name.into(), done: done.into(), result: Result::Kept }
    }

    pub(crate) fn not_checked(name: impl Into<String>, why: impl Into<String>) -> Self {
        let result = Result::NotChecked(why.into());
        Self { name: name.into(), done: String::from("-"), result }
    }

    pub(crate) fn lost(name: impl Into<String>, why: impl Into<String>) -> Self {
        let result = Result::Lost(why.into());
        Self { name: name.into(), done: String::from("-"), result }
    }

    /// Kept, unless calls without an answer cut too much short.
    pub(crate) fn played(name: impl Into<String>, done: impl Into<String>, all: Played) -> Self {
        let Played { parts, cut_short, .. } = all;
        match cut_short {
            0 => Self::kept(name, done),
            _ if cut_short * MOST_LOST > parts => {
                Self::lost(name, format!("calls without an answer ended {cut_short} of {parts}"))
            }
            _ => {
                let done = done.into();
                Self::kept(name, format!("{done}; lost calls ended {cut_short} of {parts}"))
            }
        }
    }

    /// Kept, unless there are `faults`.
    pub(crate) fn judged(
        name: impl Into<String>,
        done: impl Into<String>,
        faults: &[String],
    ) -> Self {
        let result = match faults {
            [] => Result::Kept,
            [first, ..] => Result::Broken(format!("{} faults: {first}", faults.len())),
        };
        Self { name: name.into(), done: done.into(), result }
    }
}

/// If more than one call in so many has no answer, nothing is proven.
pub(crate) const MOST_LOST: usize = 10;

/// The most characters of a reason.
const LONGEST: usize = 300;

/// Prints the rows, and returns the exit code that they mean. `is_whole`: all checks are over.
pub(crate) fn print(proof: &Proof, is_whole: bool) -> ExitCode {
    let rows = proof.rows();
    let width = |of: fn(&Row) -> &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default()
    };
    let [names, done] = [width(|row| &row.name), width(|row| &row.done)];
    println!("{:names$}  {:done$}  result", "check", "done");
    let [mut kept, mut not_checked, mut lost, mut broken] = [0; 4];
    for row in &rows {
        let result = match &row.result {
            Result::Kept => {
                kept += 1;
                String::from("kept")
            }
            Result::NotChecked(why) => {
                not_checked += 1;
                format!("not checked: {}", short(why))
            }
            Result::Lost(why) => {
                lost += 1;
                format!("LOST: {}", short(why))
            }
            Result::Broken(why) => {
                broken += 1;
                format!("BROKEN: {}", short(why))
            }
        };
        let line = format!("{:names$}  {:done$}  {result}", row.name, row.done);
        println!("{}", proof.access.hush(&line));
    }
    println!("{kept} kept, {not_checked} not checked, {lost} lost, {broken} broken");
    ExitCode::from(code(broken, lost, is_whole))
}

fn code(broken: usize, lost: usize, is_whole: bool) -> u8 {
    match (broken, lost, is_whole) {
        (0, 0, true) => 0,
        (0, 0, false) => 4,
        (0, ..) => 3,
        _ => 1,
    }
}

/// The text in one line. A long one lacks its middle: a panic begins with the place of a fault, and
/// ends with both answers.
fn short(text: &str) -> String {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let places: Vec<usize> = line.char_indices().map(|(place, _)| place).collect();
    match places.len().checked_sub(LONGEST) {
        None | Some(0) => line,
        Some(more) => {
            let half = LONGEST / 2;
            format!("{} .. {}", &line[..places[half]], &line[places[half + more]..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_table_without_faults_is_a_proof() {
        assert_eq!([code(0, 0, true), code(0, 0, false)], [0, 4]);
        assert_eq!([code(0, 1, true), code(0, 1, false)], [3, 3]);
        assert_eq!([code(1, 1, true), code(1, 0, false)], [1, 1]);
    }

    #[test]
    fn a_long_reason_keeps_its_end() {
        assert_eq!(short("a fault\n  left: 1\n right: 2"), "a fault left: 1 right: 2");
        let long = format!("step 7{}\n  left: 1\n right: 2", "\u{e9}".repeat(2 * LONGEST));
        let short = short(&long);
        assert_eq!(short.chars().count(), LONGEST + 4);
        assert!(short.starts_with("step 7") && short.ends_with("left: 1 right: 2"), "{short}");
    }
}
