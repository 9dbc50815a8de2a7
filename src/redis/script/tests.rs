use super::*;
use crate::algorithm::TokenBucket;
use crate::core::Quota;

// Cases 76, 78 and 79.
#[test]
fn joined_suffixes_are_parted_again() {
    let parted = |joined, quotas| key_suffixes(joined, quotas).collect::<Vec<_>>();
    assert_eq!(parted("{a}{b}{a}", 3), ["{a}", "{b}", "{a}"]);
    assert_eq!(parted("{7}:a{8}:b", 2), ["{7}:a", "{8}:b"]);
    assert_eq!(parted("{a}", 2), ["{a}"]);
    assert_eq!(parted("{a}{b}", 1), ["{a}{b}"]);
}

/// Such a charge is decided by the script that every other one is decided by.
#[test]
fn a_charge_that_leaves_nothing_free_sends_the_same_bytes() {
    let api = TokenBucket::new(Quota::per_second(5));
    let scripts = Scripts::of(&api.parts());
    let sent = |keep_free: KeepFree| {
        let op = Op::Check { cost: 1, max_wait: 0 };
        let request = Request { key: "{a}".into(), quota: None, rule: None, keep_free, op };
        let mut command = Cmd::new();
        append_call(&mut command, None, &["rl:api:tb1:".into()], &[60, 1, 5], &[&request]);
        let script = scripts.choose([&request].into_iter()).digest().to_owned();
        (script, command.get_packed_command())
    };
    let (checks, plain) = sent(KeepFree::default());
    assert_eq!(sent(0.into()), (checks.clone(), plain.clone()));
    assert_eq!(sent((0, 0).into()), (checks.clone(), plain.clone()));
    let (complete, keeping) = sent(20.into());
    assert!(complete != checks && keeping.len() > plain.len());
}
