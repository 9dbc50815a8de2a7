//! The counts of the commands that a server ran.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

/// The counts of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    pub calls: u64,
    /// Those that did not run, such as without a right.
    pub rejected: u64,
    /// Those that ran, and ended with an error.
    pub failed: u64,
}

/// Reads the section `commandstats` of `INFO`.
pub fn read(section: &str) -> HashMap<String, Calls> {
    let lines = section.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
    let read = |(name, fields): (&str, &str)| {
        let number = |field: &str| {
            let found = fields.split(',').find_map(|pair| pair.strip_prefix(field));
            found.map_or(0, |number| number.parse().expect("a number"))
        };
        let calls = Calls {
            calls: number("calls="),
            rejected: number("rejected_calls="),
            failed: number("failed_calls="),
        };
        (name.to_owned(), calls)
    };
    lines.map(read).collect()
}

/// Asks for all commands, by their names in lower case.
pub async fn all(connection: &mut MultiplexedConnection) -> HashMap<String, Calls> {
    let mut ask = redis::cmd("INFO");
    let section: String =
        ask.arg("commandstats").query_async(connection).await.expect("statistics");
    read(&section)
}

/// Returns the number of times that the server ran `command`.
pub async fn calls(connection: &mut MultiplexedConnection, command: &str) -> u64 {
    all(connection).await.get(command).copied().unwrap_or_default().calls
}

/// Returns the number of times that scripts ran.
pub async fn script_calls(connection: &mut MultiplexedConnection) -> u64 {
    let all = all(connection).await;
    ["eval", "evalsha"].iter().filter_map(|name| all.get(*name)).map(|of| of.calls).sum()
}
