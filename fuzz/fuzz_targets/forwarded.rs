#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tower_sluice::fuzz::forwarded(bytes));
