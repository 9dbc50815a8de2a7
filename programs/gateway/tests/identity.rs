//! The caller that a request is charged to, behind proxies and without.

mod common;

use common::Gateway;

const BY_IP: &str = r#"
    [[policy]]
    name = "ip"
    algorithm = "fixed_window"
    limit = 3
    period = "1d"
    key = "client_ip"
"#;

/// Returns how many of these requests are admitted, each with one value of the header.
fn admitted(gateway: &Gateway, header: &str, values: impl Iterator<Item = String>) -> usize {
    let status = |value: String| gateway.send("GET", "/", &[(header, &value)], b"").status;
    values.map(status).filter(|status| *status == 200).count()
}

#[test]
fn without_trusted_proxies_a_header_is_never_believed() {
    let gateway = Gateway::with_policies(BY_IP);
    let forged = (0..50).map(|n| format!("203.0.113.{n}"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", forged), 3);
    assert_eq!(gateway.send("GET", "/", &[("forwarded", "for=9.9.9.9")], b"").status, 429);
}

#[test]
fn a_trusted_proxy_names_callers() {
    let gateway = Gateway::start(BY_IP, &[("TRUSTED", "10.0.0.0/8, 127.0.0.1/32")]);
    // Forged elements stand to the left of what the proxy appended.
    let forged = (0..20).map(|n| format!("198.51.100.{n}, 203.0.113.9, 10.0.0.7"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", forged), 3);
    let others = (0..20).map(|n| format!("203.0.114.{n}"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", others), 20);
    // All addresses of one /64 are one caller, and an IPv4 address has one form.
    let same = (0..20).map(|n| format!("2001:db8:1:2::{n:x}"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", same), 3);
    let same = std::iter::once("::ffff:203.0.113.9".to_owned());
    assert_eq!(admitted(&gateway, "x-forwarded-for", same), 0);
    // The other header is not read.
    let other = (0..20).map(|n| format!("for=198.18.0.{n}"));
    assert_eq!(admitted(&gateway, "forwarded", other), 3);
    let stands = gateway.admin("GET", "/keys/ip/203.0.113.9", "");
    assert_eq!(stands.json()["remaining"], 0, "{stands:?}");
    let stands = gateway.admin("GET", "/keys/ip/2001:db8:1:2::77", "");
    assert_eq!(stands.json()["remaining"], 0, "{stands:?}");
}

#[test]
fn forwarded_unlocks_the_other_header() {
    let trusted = [("TRUSTED", "127.0.0.1/32"), ("FORWARDED", "forwarded")];
    let gateway = Gateway::start(BY_IP, &trusted);
    let forwarded = (0..20).map(|n| format!("for=203.0.113.{n};proto=https"));
    assert_eq!(admitted(&gateway, "forwarded", forwarded), 20);
    let quoted = (0..20).map(|n| format!("for=\"[2001:db8:1:2:3::{n:x}]:4711\""));
    assert_eq!(admitted(&gateway, "forwarded", quoted), 3);
    let ignored = (0..20).map(|n| format!("203.0.115.{n}"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", ignored), 3);
}

#[test]
fn an_element_that_cannot_be_read_ends_the_walk() {
    let gateway = Gateway::start(BY_IP, &[("TRUSTED", "127.0.0.1/32,10.0.0.0/8")]);
    let junk = (0..20).map(|n| format!("203.0.113.{n}, junk, 10.0.0.7"));
    assert_eq!(admitted(&gateway, "x-forwarded-for", junk), 3);
    let stands = gateway.admin("GET", "/keys/ip/10.0.0.7", "");
    assert_eq!(stands.json()["remaining"], 0, "{stands:?}");
    // A byte above 0x7F spoils its own element alone.
    let bytes = "203.0.113.1, \u{e9}, 203.0.113.200";
    assert_eq!(gateway.send("GET", "/", &[("x-forwarded-for", bytes)], b"").status, 200);
    let stands = gateway.admin("GET", "/keys/ip/203.0.113.200", "");
    assert_eq!(stands.json()["remaining"], 2, "{stands:?}");
}
