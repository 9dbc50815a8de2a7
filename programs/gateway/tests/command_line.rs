//! The program as somebody meets it who has just installed it.

mod common;

use std::path::Path;

use common::Gateway;
use support::files::Files;
use support::installed::{assert_explained, assert_unit, run};

const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

#[test]
fn it_explains_itself() {
    assert_explained(GATEWAY, &["--print-config", "[env: UPSTREAM", "Files:", "Signals:"]);
}

#[test]
fn its_example_is_a_file_that_it_reads() {
    let (code, example, _) = run(GATEWAY, &["--print-config"]);
    assert_eq!(code, Some(0));
    let gateway = Gateway::start(&example, &[]);
    let policies = gateway.admin("GET", "/policies", "").json();
    let rows = example.matches("\n[[policy]]").count() + example.matches("\n[[interface]]").count();
    assert_eq!(policies["policies"].as_array().expect("a list").len(), rows);
}

#[test]
fn exit_codes_say_whose_fault_it_is() {
    let folder = Files::new();
    let broken = folder.write("broken.toml", "[[policy]]\nname = \"api\"\n");
    for (words, expected) in [
        (["--body-timeout", "1m"], 2),
        (["--max-connections", "0"], 2),
        (["--redis-url", "nowhere"], 2),
        (["--policies", &broken], 78),
        (["--policies", "no-such-file"], 78),
        (["--listen", "192.0.2.1:80"], 1),
    ] {
        let (code, out, err) = run(GATEWAY, &words);
        assert_eq!((code, out.as_str()), (Some(expected), ""), "{words:?}: {err}");
    }
}

#[test]
fn an_option_overrides_its_variable() {
    let mut command = std::process::Command::new(GATEWAY);
    command.env_clear().env("LISTEN", "nowhere").env("ADMIN", "127.0.0.1:0").env("HEADERS", "");
    command.args(["--listen", "127.0.0.1:0"]);
    let started = support::process::Process::listening::<2>(&mut command);
    started.unwrap_or_else(|stderr| panic!("it did not start: {stderr}"));
}

#[test]
fn its_unit_is_valid() {
    assert_unit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.service"), GATEWAY);
}
