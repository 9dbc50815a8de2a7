//! The program as somebody meets it who has just installed it.

mod common;

use std::path::Path;

use common::Service;
use support::files::Files;
use support::installed::{assert_explained, assert_unit, run};

const SERVICE: &str = env!("CARGO_BIN_EXE_envoy-ratelimit");

#[test]
fn it_explains_itself() {
    assert_explained(SERVICE, &["--print-config", "[env: CONFIG", "Files:", "Signals:"]);
}

#[test]
fn its_example_is_a_file_that_it_reads() {
    let (code, example, _) = run(SERVICE, &["--print-config"]);
    assert_eq!(code, Some(0));
    let service = Service::start(&example, &[]);
    let (_, in_force) = service.get("/rlconfig");
    assert_eq!(in_force.lines().count(), example.matches("requests_per_unit:").count());
}

#[test]
fn exit_codes_say_whose_fault_it_is() {
    let folder = Files::new();
    let broken = folder.write("broken.yaml", "domain: x\ndescriptors: {}\n");
    let rules = folder.write("rules.yaml", "domain: x\n");
    assert_eq!(run(SERVICE, &[]).0, Some(2));
    for (config, option, expected) in [
        (rules.as_str(), "--on-error=allow", 2),
        (&rules, "--redis-timeout=0", 2),
        (&rules, "--max-of-address=0", 2),
        (&rules, "--redis-url=nowhere", 2),
        (&broken, "--shadow-mode", 78),
        ("no-such-file", "--shadow-mode", 78),
        (&rules, "--listen=192.0.2.1:80", 1),
    ] {
        let (code, out, err) = run(SERVICE, &["--config", config, option]);
        assert_eq!((code, out.as_str()), (Some(expected), ""), "{option}: {err}");
    }
}

#[test]
fn variables_of_switches_are_words() {
    for (name, value) in [("SHADOW_MODE", "TRUE"), ("SHADOW_MODE", "off"), ("ON_ERROR", "")] {
        let folder = Files::new();
        folder.write("rules.yaml", "domain: x\n");
        Service::run(folder, &[(name, value)]).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn its_unit_is_valid() {
    assert_unit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy-ratelimit.service"), SERVICE);
}
