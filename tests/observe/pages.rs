//! The page, the dashboard and the alerts name what the code has, and all of it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tower_sluice::observe::{self, Metric, MetricKind};

fn read(path: &str) -> String {
    let path = support::repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every metric of the crates.
fn every_metric() -> impl Iterator<Item = &'static Metric> {
    observe::METRICS.iter().chain(tower_sluice_policies::METRICS)
}

/// The line of a metric in the table of the page.
fn line(metric: &Metric) -> String {
    let (kind, unit) = (format!("{:?}", metric.kind).to_lowercase(), metric.unit.as_str());
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {kind}, {unit} | {} | {} |", metric.name, labels.join(", "), metric.help)
}

#[test]
fn the_page_lists_each_metric_as_the_code_has_it() {
    let page = read("docs/guide/metrics-and-alerts.md");
    let expected: Vec<_> = every_metric().map(line).collect();
    let found: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `rate_limit_") && line.matches(" | ").count() == 3)
        .collect();
    assert_eq!(found, expected, "the table should be:\n{}", expected.join("\n"));
}

/// The expressions of the alerts, each with the name of its alert.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = yaml_serde::from_str(&read("observability/alerts.yaml")).expect("YAML");
    let groups = rules["groups"].as_array().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    rules
        .map(|rule| {
            for annotation in ["summary", "description"] {
                assert!(rule["annotations"][annotation].is_string(), "{rule}");
            }
            assert!(rule["for"].is_string() && rule["labels"]["severity"].is_string(), "{rule}");
            (text(&rule["alert"]), text(&rule["expr"]))
        })
        .collect()
}

/// The expressions of the dashboard, each with the title of its panel.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&read("observability/dashboard.json")).expect("JSON");
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            // What Grafana puts in their place.
            let expression = expression.replace("$__rate_interval", "1m").replace("$limiter", ".*");
            found.push((title.to_owned(), expression));
        }
    }
    found
}

/// The words of an expression: names, texts, and every other character alone.
fn words(expression: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let (mut words, mut text) = (Vec::<String>::new(), false);
    let mut joins = false;
    for c in expression.chars() {
        let continues = text || joins && is_word(c);
        match words.last_mut().filter(|_| continues) {
            Some(word) => word.push(c),
            None if c.is_whitespace() => {}
            None => words.push(c.into()),
        }
        text ^= c == '"';
        joins = is_word(c);
    }
    words
}

/// The words inside of the bracket that `words` begin with.
fn listed<'a>(words: &'a [String], end: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let count = words.iter().position(|word| word == end).unwrap_or(words.len());
    words[..count].iter().skip(1).map(String::as_str)
}

/// The metrics that an expression reads.
///
/// # Errors
///
/// If a bracket has no partner, or if a metric or a label does not exist.
fn check(expression: &str) -> Result<BTreeSet<&'static str>, String> {
    let words = words(expression);
    let mut open = Vec::new();
    for word in &words {
        match &**word {
            "(" | "[" | "{" => open.push(word.as_str()),
            ")" | "]" | "}" => {
                let partner = open.pop();
                if !matches!(
                    (partner, &**word),
                    (Some("("), ")") | (Some("["), "]") | (Some("{"), "}")
                ) {
                    return Err(format!("{word} has no partner"));
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        return Err(format!("{open:?} have no partners"));
    }
    let mut metrics = BTreeSet::new();
    // The labels that it groups by belong to the metric that follows.
    let mut grouped: Vec<&str> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if word == "by" {
            grouped.extend(listed(&words[at + 1..], ")").filter(|word| *word != ","));
        }
        if !word.starts_with("rate_limit_") {
            continue;
        }
        let of_histogram = ["_bucket", "_sum", "_count"];
        let metric = every_metric().find(|metric| match metric.kind {
            MetricKind::Histogram => {
                word.strip_prefix(metric.name).is_some_and(|part| of_histogram.contains(&part))
            }
            _ => metric.name == word,
        });
        let metric = metric.ok_or_else(|| format!("there is no metric {word}"))?;
        let is_selector = words.get(at + 1).is_some_and(|next| next == "{");
        let selector = if is_selector { &words[at + 1..] } else { &[] };
        // What is selected stands in quotes.
        let labels: Vec<_> = listed(selector, "}")
            .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
            .chain(grouped.drain(..))
            .collect();
        // Prometheus adds the process that it asked, and `le` to the buckets.
        let is_known =
            |label: &&str| metric.labels.contains(label) || ["instance", "le"].contains(label);
        if let Some(label) = labels.into_iter().find(|label| !is_known(label)) {
            return Err(format!("{word} has no label {label}"));
        }
        metrics.insert(metric.name);
    }
    if metrics.is_empty() {
        return Err("it reads nothing".into());
    }
    Ok(metrics)
}

#[test]
fn the_dashboard_shows_each_metric_and_no_other() {
    let mut shown = BTreeSet::new();
    let panels = panels();
    assert!(panels.len() >= 15, "{}", panels.len());
    for (title, expression) in panels {
        let metrics = check(&expression);
        shown.extend(metrics.unwrap_or_else(|why| panic!("{title}: {why}: {expression}")));
    }
    let all: BTreeSet<_> = every_metric().map(|metric| metric.name).collect();
    assert_eq!(shown, all);
}

#[test]
fn each_alert_can_be_computed_and_is_on_the_page() {
    let page = read("docs/guide/metrics-and-alerts.md");
    let alerts = alerts();
    for (alert, expression) in &alerts {
        check(expression).unwrap_or_else(|why| panic!("{alert}: {why}: {expression}"));
        assert!(page.contains(&format!("| `{alert}` |")), "{alert} is not on the page");
    }
    let on_page = page.lines().filter(|line| line.starts_with("| `RateLimit")).count();
    assert_eq!(on_page, alerts.len());
}

#[test]
fn each_alert_is_played_until_it_fires_and_ends() {
    let tests: Value = yaml_serde::from_str(&read("observability/alerts_test.yaml")).expect("YAML");
    let tests = tests["tests"][0]["alert_rule_test"].as_array().expect("tests");
    let ends = |alert: &str| {
        let tests = tests.iter().filter(|test| test["alertname"] == alert);
        let firing = tests.map(|test| !test["exp_alerts"].as_array().expect("alerts").is_empty());
        firing.collect::<BTreeSet<_>>() == BTreeSet::from([true, false])
    };
    for (alert, _) in alerts() {
        assert!(ends(&alert), "{alert}");
    }
}

#[test]
fn each_range_holds_two_scrapes_a_minute_apart() {
    for (alert, expression) in alerts() {
        for range in expression.split('[').skip(1) {
            let minutes = range.split_once("m]").and_then(|(number, _)| number.parse::<u32>().ok());
            assert!(minutes.is_some_and(|minutes| minutes >= 5), "{alert}: {expression}");
        }
    }
}

#[test]
fn a_wrong_expression_is_found() {
    for (wrong, why) in [
        ("sum(rate(rate_limit_decision_total[5m]))", "no metric"),
        ("rate(rate_limit_decision_seconds[5m])", "no metric"),
        ("sum by (key) (rate_limit_waiters)", "no label key"),
        ("rate_limit_waiters{outcome=\"denied\"}", "no label outcome"),
        ("1 + 1", "reads nothing"),
        ("sum by (limiter (rate_limit_waiters)", "no partners"),
        ("sum(rate_limit_waiters])", "no partner"),
    ] {
        let found = check(wrong).unwrap_err();
        assert!(found.contains(why), "{wrong}: {found}");
    }
    check("rate_limit_waiters > 1").unwrap();
}

/// The page names only metrics that exist, in prose too.
#[test]
fn each_name_on_the_pages_exists() {
    for path in ["docs/guide/metrics-and-alerts.md", "docs/guide/when-redis-fails.md", "README.md"]
    {
        let page = read(path);
        for (at, _) in page.match_indices("rate_limit_") {
            let rest = &page[at..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            let is_known = every_metric().any(|metric| metric.name == name);
            assert!(is_known, "{path} names {name}");
        }
    }
}
