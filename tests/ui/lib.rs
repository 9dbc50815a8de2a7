//! Compile errors that users meet, and the hints in them.
//!
//! `cargo test --manifest-path tests/ui/Cargo.toml` compares the messages. With
//! `TRYBUILD=overwrite` it writes them anew, as a new compiler may word them differently.

#[test]
fn compile_errors_say_what_to_do() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}
