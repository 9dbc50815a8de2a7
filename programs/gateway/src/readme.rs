//! `README.md` names every setting, every field of a row and every metric.

use clap::CommandFactory;
use tower_sluice::observe::METRICS;

use crate::settings::Settings;

const README: &str = include_str!("../README.md");
/// The documentation of rows.
const FIELDS: &str = include_str!("../../../crates/tower-sluice-policies/policies.md");

fn assert_named(name: &str) {
    assert!(README.contains(&format!("`{name}`")), "README.md does not name {name}");
}

#[test]
fn every_setting_is_named() {
    let command = Settings::command();
    let names: Vec<_> = command.get_arguments().filter_map(|option| option.get_env()).collect();
    assert!(names.len() > 8);
    names.into_iter().for_each(|name| assert_named(&name.to_string_lossy()));
}

#[test]
fn every_metric_is_named() {
    // The gateway has no breaker.
    let metrics = METRICS.iter().chain(tower_sluice_policies::METRICS);
    let names = metrics.map(|metric| metric.name).filter(|name| !name.contains("breaker"));
    names.for_each(assert_named);
}

#[test]
fn every_field_of_a_row_is_named() {
    let begin = FIELDS.find("## Fields").expect("a section");
    let tables = FIELDS[begin..].split("## Keys").next().expect("a part");
    let rows = tables.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.flat_map(|row| row.trim_start_matches(['|', ' ']).split(" | ").take(2));
    let fields = cells.filter_map(|cell| cell.strip_prefix('`')?.split_once('`'));
    let mut fields: Vec<&str> = fields.map(|(field, _)| field).collect();
    // Requests have no names here.
    fields.retain(|field| *field != "name");
    fields.retain(|field| field.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    assert!(fields.contains(&"cache_ratio") && fields.contains(&"cold_factor"), "{fields:?}");
    fields.into_iter().for_each(assert_named);
}
