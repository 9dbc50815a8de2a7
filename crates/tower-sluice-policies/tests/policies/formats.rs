//! One table in each format: equal policies, and equal errors with row and field.

use tower_sluice_policies::TableError;

use super::*;

/// A reader of one format.
type Reader = fn(&str) -> Result<Rows, String>;

fn toml(text: &str) -> Result<Rows, String> {
    ::toml::from_str(text).map_err(|error| error.to_string())
}

fn json(text: &str) -> Result<Rows, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn yaml(text: &str) -> Result<Rows, String> {
    yaml_serde::from_str(text).map_err(|error| error.to_string())
}

/// The rows of one table as three formats have them.
fn in_each(toml_text: &str, json_text: &str, yaml_text: &str) -> [Rows; 3] {
    [toml(toml_text).expect("TOML"), json(json_text).expect("JSON"), yaml(yaml_text).expect("YAML")]
}

/// The policies of some rows, as they serialize.
fn built(rows: &Rows) -> Result<serde_json::Value, TableError> {
    let policies = Policies::builder().build(rows)?;
    let each = policies.policies().into_iter().map(|one| {
        let mode = format!("{:?}", one.mode());
        serde_json::json!([serde_json::to_value(one.policy()).expect("a row"), mode])
    });
    Ok(each.collect())
}

/// Returns what is wrong with a row of these fields, in each format.
fn wrong(fields: [&str; 3]) -> Vec<String> {
    let [in_toml, in_json, in_yaml] = fields;
    let toml_text = format!("[[policy]]\nname = 'bad'\nlimit = 5\nperiod = '1s'\n{in_toml}");
    let json_text =
        format!(r#"{{"policy": [{{"name": "bad", "limit": 5, "period": "1s", {in_json}}}]}}"#);
    let yaml_text =
        format!("policy:\n  - name: bad\n    limit: 5\n    period: 1s\n    {in_yaml}\n");
    let each: [(Reader, String); 3] = [(toml, toml_text), (json, json_text), (yaml, yaml_text)];
    let error = |(read, text): (Reader, String)| {
        let rows = read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let error = built(&rows).expect_err(&text);
        let [row] = error.rows() else { panic!("{text}: {error}") };
        assert_eq!(row.row(), "bad", "{error}");
        assert!(row.field().is_some(), "{error}");
        error.to_string()
    };
    each.map(error).into()
}

/// A source of texts is read as strictly as a file.
#[test]
fn a_field_that_occurs_twice_in_a_text_is_an_error() {
    let texts = |pattern| {
        let fields = [("name", "bad"), ("limit", "5"), ("period", "1s"), ("match", pattern)];
        Policies::builder().build(&Rows::from_iter([Row::from_texts(fields)]))
    };
    assert!(texts(r#"{"path": "/a"}"#).is_ok());
    let error = texts(r#"{"path": "/login", "path": "/x"}"#).unwrap_err();
    assert_eq!(error.rows()[0].field(), Some("match"));
    assert!(error.to_string().contains("occurs twice"), "{error}");
}

/// One table in three formats. That in YAML is as people write it: without quotes where none are
/// needed, and with an anchor.
const TOML: &str = include_str!("formats/table.toml");
const JSON: &str = include_str!("formats/table.json");
const YAML: &str = include_str!("formats/table.yaml");

#[test]
fn a_table_makes_the_same_policies_in_every_format() {
    let [first, second, third] = in_each(TOML, JSON, YAML).map(|rows| built(&rows).unwrap());
    assert_eq!(first.as_array().unwrap().len(), 3);
    assert_eq!(first, second);
    assert_eq!(first, third);
    // As it was written.
    assert_eq!(first[0][0]["max_wait"], "500ms");
}

#[test]
fn a_table_without_rows_is_empty_in_every_format() {
    for rows in in_each("", "{}", "").into_iter().chain(in_each(
        "policy = []\ninterface = []",
        r#"{"policy": [], "interface": null}"#,
        "# Nothing yet.\npolicy:\ninterface: []\n",
    )) {
        assert_eq!(rows, Rows::default());
    }
}

// Case 169.
#[test]
fn a_table_without_policies_is_an_error_unless_it_says_so() {
    let built = |rows: &Rows| Policies::builder().build(rows);
    let told = in_each("allow_empty = true", r#"{"allow_empty": true}"#, "allow_empty: true");
    let untold = in_each("allow_empty = false", r#"{"policy": []}"#, "interface:\npolicy: []");
    let full = Policies::builder().build(&in_each(TOML, JSON, YAML)[0]).unwrap();
    for rows in untold.iter().chain([&Rows::default(), &Rows::from_iter([])]) {
        let error = built(rows).expect_err("no policy");
        assert!(error.rows().is_empty() && error.to_string().contains("allow_empty"), "{error}");
        // On reload the table from before stays.
        full.load(rows).unwrap_err();
        assert_eq!(full.policies().len(), 3);
    }
    for rows in told.iter().chain([&Rows::none()]) {
        assert!(built(rows).unwrap().policies().is_empty());
        full.load(rows).unwrap();
        assert!(full.policies().is_empty());
        full.load(&in_each(TOML, JSON, YAML)[0]).unwrap();
    }
    for wrong in ["allow_empty = 1", "allow_empty = 'yes'"] {
        toml::from_str::<Rows>(wrong).unwrap_err();
    }
}

#[test]
fn a_whole_number_may_have_a_point() {
    let tables = in_each(
        "[[policy]]\nname = 'a'\nlimit = 5.0\nperiod = '1s'\ncost = 2.0\non_error = { local = 3.0 }",
        r#"{"policy": [{"name": "a", "limit": 5e0, "period": "1s", "cost": 2.0, "on_error": {"local": 3.0}}]}"#,
        "policy: [{name: a, limit: 5.0, period: 1s, cost: 2., on_error: {local: 3e0}}]",
    );
    for rows in tables {
        let policy = &built(&rows).unwrap()[0][0];
        assert_eq!((&policy["limit"], &policy["cost"]), (&5.into(), &2.into()));
    }
}

/// A table of numbers, such as one of SQL, has 1 and 0 for true and false.
#[test]
fn every_flag_may_be_a_number() {
    let rows = |flag: &str| {
        let text = format!(
            "[[policy]]\nname = 'a'\nalgorithm = 'fixed_window'\nlimit = 1\nperiod = '1s'\n\
             anchored = {flag}\nshadow = {flag}\n\
             match = {{ path = '/a', ignore_case = {flag} }}\n\
             [[policy]]\nname = 'b'\nalgorithm = 'smooth_bursty'\nlimit = 1\nperiod = '1s'\n\
             max_burst = '1s'\nstart_empty = {flag}\nwait_for_own_cost = {flag}"
        );
        let policies = Policies::builder().build(&toml(&text).expect("TOML"))?;
        let each = policies.policies();
        Ok::<_, TableError>(
            each.iter().map(|one| one.policy().chosen_algorithm()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(rows("1").unwrap(), rows("true").unwrap());
    assert_eq!(rows("0").unwrap(), rows("false").unwrap());
    assert_ne!(rows("0").unwrap(), rows("1").unwrap());
    rows("2").unwrap_err();
}

#[test]
fn the_same_fault_is_the_same_error_in_every_format() {
    for (field, fields) in [
        (
            "period",
            ["period2 = 1\nburst = 5", r#""period2": 1, "burst": 5"#, "period2: 1\n    burst: 5"],
        ),
        ("max_wait", ["max_wait = 60", r#""max_wait": 60"#, "max_wait: 60"]),
        ("burst", ["burst = 5.5", r#""burst": 5.5"#, "burst: 5.5"]),
        ("burst", ["burst = -1", r#""burst": -1"#, "burst: -1"]),
        ("burst", ["burst = '5'", r#""burst": "5""#, "burst: '5'"]),
        ("burst", ["burst = true", r#""burst": true"#, "burst: true"]),
        // YAML 1.2 has no other words for true and false.
        ("enabled", ["enabled = 'on'", r#""enabled": "on""#, "enabled: on"]),
        ("shadow", ["shadow = 'off'", r#""shadow": "off""#, "shadow: off"]),
        ("shadow", ["shadow = 'yes'", r#""shadow": "yes""#, "shadow: yes"]),
        ("key", ["key = [['path']]", r#""key": [["path"]]"#, "key: [[path]]"]),
        ("key", ["key = { a = { b = 1 } }", r#""key": {"a": {"b": 1}}"#, "key: {a: {b: 1}}"]),
        ("limits", ["limits = 5", r#""limits": 5"#, "limits: 5"]),
        ("match", ["match = { paths = '/' }", r#""match": {"paths": "/"}"#, "match: {paths: /}"]),
        ("match", ["match = { path = [] }", r#""match": {"path": []}"#, "match: {path: []}"]),
        ("match", ["match = { header = {} }", r#""match": {"header": {}}"#, "match: {header: {}}"]),
        ("cost", ["cost = 1e300", r#""cost": 1e300"#, "cost: 1.0e+300"]),
        ("on_error", ["on_error = 'open'", r#""on_error": "open""#, "on_error: open"]),
    ] {
        let errors = wrong(fields);
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
        let begin = format!("policy \"bad\": {field}");
        assert!(errors[0].starts_with(&begin), "{} of {begin}", errors[0]);
    }
}

/// JSON has neither; in the others such a number must not pass for an absent field.
#[test]
fn a_number_that_is_not_finite_is_an_error_of_its_field() {
    for field in ["cost", "cache_ratio", "burst", "max_wait", "horizon", "on_error", "shadow", "x"]
    {
        for (in_toml, in_yaml) in [("nan", ".nan"), ("inf", ".inf"), ("-inf", "-.inf")] {
            let row = "name = 'bad'\nlimit = 5\nperiod = '1s'";
            let first = toml(&format!("[[policy]]\n{row}\n{field} = {in_toml}")).unwrap();
            let row = "{name: bad, limit: 5, period: 1s";
            let second = yaml(&format!("policy: [{row}, {field}: {in_yaml}}}]")).unwrap();
            for rows in [first, second] {
                let error = built(&rows).expect_err(field);
                assert_eq!(error.rows()[0].row(), "bad");
                assert_eq!(error.rows()[0].field(), Some(field), "{error}");
            }
        }
    }
    for text in ["limit = nan\nperiod = '1s'", "limit = 5\nperiod = inf", "limit = inf\nperiod = 1"]
    {
        let rows = toml(&format!("[[policy]]\nname = 'bad'\n{text}")).unwrap();
        let error = built(&rows).unwrap_err();
        assert!(error.to_string().contains("not a finite number"), "{error}");
    }
    let rows = toml("[[policy]]\nname = nan\nlimit = 1\nperiod = '1s'").unwrap();
    assert_eq!(built(&rows).unwrap_err().to_string(), "policy 1: name: NaN is not a finite number");
    let rows = toml("[[policy]]\nname = 'a'\nlimit = 1\nperiod = '1s'\nmatch = { path = [nan] }");
    assert_eq!(built(&rows.unwrap()).unwrap_err().rows()[0].field(), Some("match"));
}

#[test]
fn a_field_that_is_there_twice_is_an_error() {
    let rows = json(r#"{"policy": [{"name": "a", "limit": 5, "limit": 9, "period": "1s"}]}"#);
    let error = built(&rows.unwrap()).unwrap_err();
    assert_eq!(error.to_string(), r#"policy "a": limit: "limit" occurs twice"#);
    let rows = json(
        r#"{"policy": [{"name": "a", "limit": 5, "period": "1s", "match": {"path": "/a", "path": "/b"}}]}"#,
    );
    assert_eq!(built(&rows.unwrap()).unwrap_err().rows()[0].field(), Some("match"));
    // The parser of TOML sees it before, and says the line. So may that of YAML.
    assert!(toml("[[policy]]\nname = 'a'\nlimit = 5\nlimit = 6").unwrap_err().contains("line 4"));
    let rows = yaml("policy:\n  - name: a\n    limit: 5\n    limit: 6\n    period: 1s\n");
    let error = rows.and_then(|rows| built(&rows).map_err(|error| error.to_string()));
    let error = error.unwrap_err();
    assert!(error.contains("limit") || error.contains("line 4"), "{error}");
}

#[test]
fn what_is_no_table_is_an_error_in_every_format() {
    for (read, text) in [
        (toml as Reader, "policy = 5"),
        (toml, "policy = [5]"),
        (toml, "[policy]\nname = 'a'"),
        (toml, "[[polcy]]\nname = 'a'"),
        (json, "[]"),
        (json, r#"{"policy": {"name": "a"}}"#),
        (json, r#"{"policy": [null]}"#),
        (json, r#"{"policy": [{"limit": 1e400}]}"#),
        (json, r#"{"polcy": []}"#),
        (json, r#"{"policy": [], "policy": []}"#),
        (yaml, "policy: a"),
        (yaml, "policy:\n  name: a"),
        (yaml, "- name: a"),
        (yaml, "polcy: []"),
        (yaml, "policy: [{name: a, limit: 5"),
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    // Nothing is nested deeper than a parser goes.
    let deep = format!(r#"{{"policy": [{{"key": {}1{}}}]}}"#, "[".repeat(1_000), "]".repeat(1_000));
    assert!(json(&deep).is_err() && yaml(&deep).is_err());
}

#[test]
fn a_large_table_is_read_and_checked() {
    let mut text = String::from("policy:\n");
    for row in 0..10_000 {
        text += &format!("  - {{name: p{row}, limit: 5, period: 1s, match: /p{row}}}\n");
    }
    let rows = yaml(&text).unwrap();
    let policies = Policies::builder().build(&rows).unwrap();
    assert_eq!(policies.policies().len(), 10_000);
    assert_eq!(policies.get("p9999").unwrap().policy().name(), "p9999");
    policies.load(&rows).unwrap();
    let mut twice = rows;
    twice.policy[9_999] = twice.policy[0].clone();
    let error = policies.load(&twice).unwrap_err();
    assert_eq!(error.to_string(), "policy \"p0\": name: another row has this name");
}
