//! The picture in the documents is the one that the example draws.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use support::repository;

#[test]
fn the_picture_is_what_the_algorithms_do() {
    let drawn = std::env::temp_dir().join(format!("compare-{}.svg", std::process::id()));
    let status =
        Command::new(support::example::built("compare")).arg(&drawn).status().expect("it runs");
    assert!(status.success());
    let read = |path: &Path| fs::read_to_string(repository().join(path)).expect("a picture");
    let now = read(&drawn);
    fs::remove_file(&drawn).expect("gone");
    assert_eq!(now, read("docs/compare.svg".as_ref()), "cargo run --release --example compare");

    // rustdoc has no files of its own, so the picture is in the link.
    let url = format!("[picture]: data:image/svg+xml;base64,{}\n", BASE64_STANDARD.encode(now));
    assert_eq!(url, read("docs/compare.url".as_ref()), "the picture in base64");
}
