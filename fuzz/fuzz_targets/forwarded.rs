#![no_main]

#[path = "../../tests/support/forwarded.rs"]
mod forwarded;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forwarded::forwarded(bytes));
