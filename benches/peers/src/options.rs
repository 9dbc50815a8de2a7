//! The options of a run, as `run.sh` passes them: words of the form `name=value`.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Options {
    /// The server's port and process.
    pub(crate) port: u16,
    pub(crate) server: u32,
    /// True if the server has the module redis-cell.
    pub(crate) has_cell: bool,
    pub(crate) tasks: Vec<usize>,
    pub(crate) rounds: usize,
    /// The time for which a peer asks in each round.
    pub(crate) slot: Duration,
    /// Names of peers, or none for all. The yardstick is always measured.
    pub(crate) only: Vec<String>,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Self {
        let value = |name: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("{name}=.. is missing"))
        };
        let number = |name: &str| -> usize { value(name).parse().expect("a number") };
        let list = |name: &str| -> Vec<String> {
            value(name).split(',').filter(|word| !word.is_empty()).map(String::from).collect()
        };
        Self {
            port: number("port").try_into().expect("a port"),
            server: number("server").try_into().expect("the id of a process"),
            has_cell: value("cell") == "yes",
            tasks: list("tasks").iter().map(|tasks| tasks.parse().expect("a number")).collect(),
            rounds: number("rounds"),
            slot: Duration::from_millis(number("slot_ms") as u64),
            only: list("only"),
        }
    }

    pub(crate) fn includes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|one| one == name)
    }
}
