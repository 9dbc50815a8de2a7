//! The lines that a run prints: a word and fields of the form `name=value`.

use std::collections::BTreeMap;

/// A line's fields by name.
pub(super) type Line = BTreeMap<String, String>;

/// The lines of one run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The machine, the versions and the options.
    pub(super) about: Line,
    pub(super) peers: Vec<Line>,
    pub(super) in_process: Vec<Line>,
    pub(super) left_out: Vec<Line>,
}

impl Run {
    /// Every run begins with a line `run ..`.
    pub(super) fn read_all(text: &str) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for line in text.lines() {
            let Some((kind, fields)) = line.split_once(' ') else { continue };
            let fields = read(fields);
            match (kind, runs.last_mut()) {
                ("run", _) => runs.push(Self { about: fields, ..Self::default() }),
                ("peer", Some(run)) => run.peers.push(fields),
                ("in_process", Some(run)) => run.in_process.push(fields),
                ("left_out", Some(run)) => run.left_out.push(fields),
                _ => {}
            }
        }
        assert!(!runs.is_empty(), "no line of a run");
        runs
    }

    /// A figure of a peer, unless it failed or was not measured.
    pub(super) fn figure(&self, name: &str, tasks: usize, field: &str) -> Option<f64> {
        let tasks = tasks.to_string();
        let line = self.peers.iter().find(|line| line["name"] == name && line["tasks"] == tasks)?;
        if line["failed"] == "0" { line[field].parse().ok() } else { None }
    }

    /// The numbers of tasks, in order.
    pub(super) fn tasks(&self) -> Vec<usize> {
        let mut tasks: Vec<usize> =
            self.peers.iter().filter_map(|line| line["tasks"].parse().ok()).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }
}

/// Values with spaces stand in quotes.
fn read(mut text: &str) -> Line {
    let mut fields = Line::new();
    while let Some((name, rest)) = text.split_once('=') {
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').expect("a closing quote"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        fields.insert(name.trim().to_owned(), value.to_owned());
        text = rest;
    }
    fields
}
