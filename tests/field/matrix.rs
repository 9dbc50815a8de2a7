//! Holds each pair of a command and an answer against the rules, and writes `docs/refusals.md`.

use std::fmt::Write as _;
use std::fs;

use support::{Server, repository};
use tokio::task::JoinSet;
use tower_sluice::{Error, ErrorKind};

use super::answers::{Answer, COLUMNS, Column};
use super::commands::{COMMANDS, Command, IN_SCRIPTS, Need};
use super::scripts;
use super::sessions::{Outcome, outcome};

const BEGIN: &str = "\
# Refusals

This page lists what becomes of each command that the crate sends, for each answer that was met.
`tests/field/` asks a limiter in each pair, and writes this page. [When Redis
fails](guide/when-redis-fails.md) says what to do.

Any other error reply is of kind configuration, in the server's own words. Only the arguments of a
call are hidden.

## The answers

| answer | words | met at |
|---|---|---|
";

const LEGEND: &str = "
## The commands

A cell is the kind of the error. For each kind but state, a fallback that keeps a bound decides, such
as `.or_else(Memory::new(..))`. Every error shows the words of the server, or says what is missing.
`Pool::ready` finds each error of the first table, and those of `TIME` in the second one. It tries
no other command of the scripts: it writes nothing, and a limiter may not need the command.

| cell | kind | `.or_else(FailOpen)` |
|---|---|---|
| conf | configuration | does not admit |
| cap | capacity | does not admit |
| **infra** | infrastructure: the server is away | admits |
| state | state: the reply is not from Redis | does not admit |
| works | no error: the crate does not need the command, or its answer | |

A server that closes a connection may be ending, so that `FailOpen` admits. It is an error of
configuration if a server greets three connections in a row, and closes them at the same command,
for at least three seconds. That holds until the command is answered, or until the server does not
greet: then it is away.

A proxy that has lost its server is away, too. twemproxy, Envoy, Codis and predixy say so in words, and
haproxy closes before the greeting. By RESP2 the greeting is the answer to `PING`. So a server that
closes at `PING` is away as far as anybody can see.

";

/// The short name of an outcome.
fn cell(kind: Option<ErrorKind>) -> &'static str {
    match kind {
        None => "works",
        Some(ErrorKind::Configuration) => "conf",
        Some(ErrorKind::Capacity) => "cap",
        Some(ErrorKind::Infrastructure) => "**infra**",
        Some(ErrorKind::State) => "state",
        Some(_) => "other",
    }
}

/// Returns what is wrong with the outcome of a session.
fn faults_of_session(command: &Command, column: &Column, outcome: &Outcome) -> Vec<String> {
    let mut faults = Vec::new();
    let kind = outcome.error.as_ref().map(Error::kind);
    let expected = match column.answer {
        Answer::Words(_) if command.need == Need::AnyAnswer => vec![None],
        // A sentinel's primary must say that it is one.
        Answer::WrongType if command.need == Need::OrOtherwise => {
            vec![None, Some(ErrorKind::Configuration)]
        }
        Answer::WrongType => vec![None, Some(ErrorKind::State)],
        // It answers a PING, so it is a proxy, which serves neither clusters nor sentinels.
        Answer::Close if command.need == Need::OrOtherwise => {
            vec![None, command.kind_if_closed()]
        }
        Answer::Close => vec![command.kind_if_closed()],
        Answer::Words(_) if command.need == Need::OrOtherwise => {
            vec![None, column.kind]
        }
        _ => vec![column.kind],
    };
    if !expected.contains(&kind) {
        faults.push(format!("is {kind:?} and not {expected:?}"));
    }
    if outcome.fails_open != (kind == Some(ErrorKind::Infrastructure)) {
        faults.push(format!("fails open: {}", outcome.fails_open));
    }
    if outcome.falls_back != (kind != Some(ErrorKind::State)) {
        faults.push(format!("falls back: {}", outcome.falls_back));
    }
    if let Some(error) = &outcome.error
        && !is_visible(error, column, command.name)
    {
        faults.push(format!("hides the cause: {error:#}"));
    }
    let ready = outcome.ready.as_ref().map(Error::kind);
    // After a second of silence, an attempt may still be made, and it takes seconds to see that a
    // server closes each connection.
    let may_differ = ready.is_some() && matches!(column.answer, Answer::Silence | Answer::Close);
    if ready != kind && !may_differ {
        faults.push(format!("`ready` says {:?}", outcome.ready));
    }
    faults
}

/// Returns true if an operator sees why nothing is decided.
fn is_visible(error: &Error, column: &Column, command: &str) -> bool {
    column.is_visible(&format!("{error:#}"), command)
}

/// Returns the kind of the errors of calls in whose scripts a command is refused, and faults.
fn judge_scripts(
    command: &str,
    column: &Column,
    outcome: &scripts::Outcome,
) -> (Option<ErrorKind>, Vec<String>) {
    let mut faults = Vec::new();
    let expected = column.kind.unwrap_or(ErrorKind::State);
    let scripts::Outcome { errors, fallbacks, ready } = outcome;
    // `ready` works with any answer to INFO.
    let may_be_unseen = command == "INFO" || column.answer == Answer::WrongType;
    if errors.is_empty() && !may_be_unseen {
        faults.push("is never sent".into());
    }
    let found = ready.as_ref().map(Error::kind);
    if found != (command == "TIME").then_some(expected)
        || ready.as_ref().is_some_and(|error| !is_visible(error, column, command))
    {
        faults.push(format!("`ready` says {ready:?}"));
    }
    for (error, (fails_open, falls_back)) in errors.iter().zip(fallbacks) {
        if *fails_open != (error.kind() == ErrorKind::Infrastructure)
            || *falls_back != (error.kind() != ErrorKind::State)
        {
            faults.push(format!("fails open: {fails_open}, falls back: {falls_back}"));
        }
        if error.kind() != expected || !is_visible(error, column, command) {
            faults.push(format!("is {:?} and not {expected:?}: {error:#}", error.kind()));
        }
    }
    (errors.first().map(Error::kind), faults)
}

fn row(page: &mut String, name: &str, cells: &[&str]) {
    writeln!(page, "| {name} | {} |", cells.join(" | ")).expect("a text");
}

fn paused() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

// Cases 156, 175, 176, 177 and 178.
#[test]
fn every_refusal_has_its_kind_and_its_words() {
    let (mut page, mut faults) = (String::from(BEGIN), Vec::new());
    for column in &COLUMNS {
        let words = match column.answer {
            Answer::Words(words) => format!("`{}`", words.replace("{}", "..").trim()),
            _ => "none".into(),
        };
        row(&mut page, column.name, &[&words, column.source]);
    }
    page.push_str(LEGEND);
    let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    row(&mut page, "command", &names);
    row(&mut page, "---", &names.iter().map(|_| "---").collect::<Vec<_>>());
    let (mut counts, mut hidden) = (std::collections::BTreeMap::<_, usize>::new(), 0);
    for command in &COMMANDS {
        let mut cells = Vec::new();
        for column in &COLUMNS {
            let outcome = paused().block_on(outcome(command.topology, command.name, column.answer));
            let found = faults_of_session(command, column, &outcome);
            hidden += usize::from(found.iter().any(|fault| fault.starts_with("hides")));
            let pair = |fault| format!("{} x {}: {fault}", command.label(), column.name);
            faults.extend(found.into_iter().map(pair));
            cells.push(cell(outcome.error.map(|error| error.kind())));
        }
        row(&mut page, &command.label(), &cells);
        cells.iter().for_each(|cell| *counts.entry(*cell).or_default() += 1);
    }
    page.push_str("\nThe commands inside the scripts, which have no silence of their own:\n\n");
    let inside: Vec<_> = COLUMNS
        .iter()
        .filter(|column| !matches!(column.answer, Answer::Silence | Answer::Close))
        .collect();
    let names: Vec<_> = inside.iter().map(|column| column.name).collect();
    row(&mut page, "command", &names);
    row(&mut page, "---", &names.iter().map(|_| "---").collect::<Vec<_>>());
    let server = Server::with(&[]);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for command in IN_SCRIPTS {
        let all = runtime.block_on(async {
            let mut asked = JoinSet::new();
            for (place, column) in inside.iter().enumerate() {
                let (port, answer) = (server.port(), column.answer);
                asked.spawn(async move { (place, scripts::outcome(port, command, answer).await) });
            }
            let mut all = asked.join_all().await;
            all.sort_by_key(|(place, _)| *place);
            all
        });
        let mut cells = Vec::new();
        for (column, (_, outcome)) in inside.iter().zip(all) {
            let (kind, found) = judge_scripts(command, column, &outcome);
            let errors = &outcome.errors;
            hidden += usize::from(errors.iter().any(|error| !is_visible(error, column, command)));
            let pair = |fault| format!("{command} in a script x {}: {fault}", column.name);
            faults.extend(found.into_iter().map(pair));
            cells.push(cell(kind));
        }
        row(&mut page, &format!("`{command}`"), &cells);
        cells.iter().for_each(|cell| *counts.entry(*cell).or_default() += 1);
    }
    let total: usize = counts.values().sum();
    println!(
        "refusals: {total} cells, {counts:?}, {hidden} hide the words, {} faults",
        faults.len()
    );
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let path = repository().join("docs/refusals.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("a file");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/refusals.md is out of date: UPDATE=1 writes it");
}
