//! The tables of the page.

use std::fmt::Write as _;

use super::lines::Run;
use super::names::{IN_PROCESS, Name, OVER_REDIS, OWN, is_own, version};

/// The table of costs is for this many tasks.
const BUSY: usize = 256;

pub(super) fn all(runs: &[Run]) -> String {
    let mut page = String::new();
    for (number, run) in runs.iter().enumerate() {
        let beside = &run.about["beside"];
        page += &match beside.as_str() {
            "0" => String::from("## Over Redis\n\n"),
            loops => format!("## Over Redis, with {loops} idle-priority busy loops beside\n\n"),
        };
        page += &about(run);
        page += &ratios(run);
        page += &ahead(run);
        if number == 0 {
            page += &costs(run);
        }
    }
    page += &in_process(&runs[0]);
    page += &versions(&runs[0]);
    page += &left_out(&runs[0]);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn about(run: &Run) -> String {
    let about = &run.about;
    format!(
        "{} interleaved rounds of {} ms each, on {} cores of {}, redis-server {}, {}. A figure is the \
         median of the rounds.\n\n",
        about["rounds"],
        about["slot_ms"],
        about["cores"],
        about["cpu"],
        about["redis"],
        about["rustc"],
    )
}

/// Decisions per second, divided by those of the yardstick.
fn ratios(run: &Run) -> String {
    let tasks = run.tasks();
    let mut table =
        String::from("Decisions per second, divided by those of one EVALSHA each:\n\n| tasks |");
    for tasks in &tasks {
        let _ = write!(table, " {} |", thousands(*tasks as f64));
    }
    table += "\n|---|";
    table += &"---|".repeat(tasks.len());
    table.push('\n');
    for Name { name, label, .. } in OVER_REDIS {
        let cells: Vec<_> = tasks.iter().map(|tasks| run.figure(name, *tasks, "ratio")).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let mark = if *name == OWN { "**" } else { "" };
        let _ = write!(table, "| {mark}{label}{mark} |");
        for cell in cells {
            let text = cell.map_or(String::from("-"), |ratio| format!("{ratio:.2}"));
            let _ = write!(table, " {mark}{text}{mark} |");
        }
        table.push('\n');
    }
    table += "\nDecisions per second of one EVALSHA each:";
    for tasks in tasks {
        let rate = run.figure("evalsha", tasks, "per_second").unwrap_or_default();
        let _ = write!(table, " {} with {},", thousands(rate), thousands(tasks as f64));
    }
    table.pop();
    table + ".\n\n"
}

/// The yardstick on one key: beside this crate's layer over many keys it says nothing.
const HOT_YARDSTICK: &str = "evalsha_hot";

/// Lists the peers that decide more per second than this crate's layer.
fn ahead(run: &Run) -> String {
    let mut list = String::new();
    for tasks in run.tasks() {
        let Some(own) = run.figure(OWN, tasks, "ratio") else { continue };
        let mut faster: Vec<(f64, &str)> = OVER_REDIS
            .iter()
            .filter(|name| !is_own(name.name) && name.name != HOT_YARDSTICK)
            .filter_map(|name| Some((run.figure(name.name, tasks, "ratio")?, name.label)))
            .filter(|(ratio, _)| *ratio > own)
            .collect();
        faster.sort_by(|one, other| other.0.total_cmp(&one.0));
        let named: Vec<_> =
            faster.iter().map(|(ratio, label)| format!("{label} {ratio:.2}")).collect();
        let named = if named.is_empty() { String::from("none") } else { named.join(", ") };
        let _ =
            writeln!(list, "- {} tasks, where it has {own:.2}: {named}.", thousands(tasks as f64));
    }
    format!("Ahead of tower-sluice in its layer:\n\n{list}\n").replace("- 1 tasks", "- 1 task")
}

fn costs(run: &Run) -> String {
    let mut table = format!(
        "What a decision costs at {BUSY} tasks, and its median time:\n\n\
         | | client, µs | server, µs | allocations | p50 at 1 task, µs | p50 at {BUSY} tasks, µs |\n\
         |---|---|---|---|---|---|\n"
    );
    for Name { name, label, .. } in OVER_REDIS {
        let cells = [
            (BUSY, "client_us", 1),
            (BUSY, "server_us", 1),
            (BUSY, "allocs", 1),
            (1, "p50_us", 0),
            (BUSY, "p50_us", 0),
        ]
        .map(|(tasks, field, digits)| match run.figure(name, tasks, field) {
            Some(figure) => format!("{figure:.digits$}"),
            None => String::from("-"),
        });
        if cells.iter().any(|cell| cell != "-") {
            let _ = writeln!(table, "| {label} | {} |", cells.join(" | "));
        }
    }
    table + "\n"
}

fn in_process(run: &Run) -> String {
    if run.in_process.is_empty() {
        return String::new();
    }
    let mut table = String::from(
        "## In one process\n\nOne thread, 100,000 keys that exist:\n\n\
         | | | ns | allocations |\n|---|---|---|---|\n",
    );
    for Name { name, label, how, .. } in IN_PROCESS {
        if let Some(line) = run.in_process.iter().find(|line| line["name"] == *name) {
            let _ = writeln!(table, "| {label} | {how} | {} | {} |", line["ns"], line["allocs"]);
        }
    }
    table + "\n"
}

fn versions(run: &Run) -> String {
    let mut table = String::from("## What is measured\n\n| | version | |\n|---|---|---|\n");
    for Name { name, label, package, how } in OVER_REDIS {
        if !run.peers.iter().any(|line| line["name"] == *name) {
            continue;
        }
        let version = match *name {
            "redis_benchmark" => run.about["redis"].clone(),
            _ if is_own(name) => format!("at {}", run.about["commit"]),
            _ => package.and_then(version).unwrap_or("?").to_owned(),
        };
        let module = match *name {
            "tower_redis_cell" => format!(", module redis-cell {}", run.about["cell"]),
            _ => String::new(),
        };
        let _ = writeln!(table, "| {label} | {version}{module} | {how} |");
    }
    for package in ["tower_governor", "governor"] {
        let _ =
            writeln!(table, "| {package} | {} | in one process |", version(package).unwrap_or("?"));
    }
    table + "\n"
}

fn left_out(run: &Run) -> String {
    if run.left_out.is_empty() {
        return String::new();
    }
    let mut list = String::from("Left out of this run:\n\n");
    for line in &run.left_out {
        let label = OVER_REDIS.iter().find(|name| name.name == line["name"]).map(|name| name.label);
        let _ = writeln!(list, "- {}: {}.", label.unwrap_or(&line["name"]), line["why"]);
    }
    list + "\n"
}

/// 12345 as 12,345.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
