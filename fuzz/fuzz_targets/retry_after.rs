#![no_main]

#[path = "../../tests/support/retry_after.rs"]
mod retry_after;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| retry_after::retry_after(bytes));
