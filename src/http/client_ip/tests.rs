//! The table of the contract, and random headers against a plain model.

mod model;

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{Extensions, HeaderValue, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const PROXY: &str = "10.0.0.5";

fn behind_proxies() -> ClientIp {
    ClientIp::new().try_trusted_networks("10.0.0.0/8, fd00::/8").unwrap()
}

fn after_rfc_7239() -> ClientIp {
    behind_proxies().header(FORWARDED)
}

fn request<L: AsRef<[u8]>>(peer: Option<&str>, name: &HeaderName, lines: &[L]) -> Request<()> {
    let mut request = Request::new(());
    for line in lines {
        request.headers_mut().append(name, HeaderValue::from_bytes(line.as_ref()).unwrap());
    }
    if let Some(peer) = peer {
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 4711)));
    }
    request
}

/// The key of a request from `peer` with these lines.
fn key(client_ip: &ClientIp, peer: &str, lines: &[&str]) -> String {
    let request = request(Some(peer), client_ip.header.name(), lines);
    client_ip.of(Head::from(&request)).unwrap().to_string()
}

#[test]
fn the_walk_ends_at_the_first_address_that_is_not_trusted() {
    for (peer, lines, client) in [
        (PROXY, &["1.2.3.4, 203.0.113.9, 10.0.0.7"][..], "203.0.113.9"),
        (PROXY, &["1.2.3.4", "203.0.113.9"], "203.0.113.9"),
        (PROXY, &["1.2.3.4", "203.0.113.9", "10.0.0.7"], "203.0.113.9"),
        (PROXY, &["203.0.113.9, junk, 10.0.0.7"], "10.0.0.7"),
        (PROXY, &["10.1.1.1"], "10.1.1.1"),
        (PROXY, &["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
        (PROXY, &[], PROXY),
        (PROXY, &[""], PROXY),
        (PROXY, &[", ,", "\t,"], PROXY),
        (PROXY, &["203.0.113.9,, ,10.0.0.7,"], "203.0.113.9"),
        (PROXY, &["::ffff:203.0.113.9"], "203.0.113.9"),
        (PROXY, &["203.0.113.9, ::ffff:10.0.0.7"], "203.0.113.9"),
        (PROXY, &["2001:db8:1:2:3::9"], "2001:db8:1:2::/64"),
        (PROXY, &["203.0.113.9, [fd00::1]:80"], "203.0.113.9"),
        (PROXY, &["64:ff9b::cb00:7109"], "64:ff9b::cb00:7109"),
        (PROXY, &["203.0.113.9, fd00::1%eth0"], PROXY),
        (PROXY, &["203.0.113.9, unknown"], PROXY),
        // Bytes above 0x7F spoil their own element, and no other one.
        (PROXY, &["\u{e9}, 203.0.113.9, 10.0.0.7"], "203.0.113.9"),
        (PROXY, &["\u{e9}", "203.0.113.9"], "203.0.113.9"),
        (PROXY, &["203.0.113.9, \u{e9}, 10.0.0.7"], "10.0.0.7"),
        ("::ffff:10.0.0.5", &["203.0.113.9"], "203.0.113.9"),
        ("fd00::1", &["203.0.113.9"], "203.0.113.9"),
        ("198.51.100.4", &["203.0.113.9"], "198.51.100.4"),
        ("::ffff:198.51.100.4", &["203.0.113.9"], "198.51.100.4"),
        ("2001:db8:1:2:3::9", &["203.0.113.9"], "2001:db8:1:2::/64"),
    ] {
        assert_eq!(key(&behind_proxies(), peer, lines), client, "{peer} {lines:?}");
    }
}

#[test]
fn forwarded_is_read_after_its_rfc() {
    for (lines, client) in [
        (&[r#"for="[2001:db8:1:2:3::9]:4711""#][..], "2001:db8:1:2::/64"),
        (&["for=1.2.3.4, for=203.0.113.9;proto=https, for=10.0.0.7"], "203.0.113.9"),
        (&["for=1.2.3.4", "FOR=203.0.113.9"], "203.0.113.9"),
        (&[r#"for=203.0.113.9;host="a, for=1.2.3.4""#], "203.0.113.9"),
        (&[r#"by="x"#, r#"y";for=203.0.113.9"#], "203.0.113.9"),
        (&["for=1.2.3.4;host=\u{e9}, for=203.0.113.9"], "203.0.113.9"),
        (&["for=203.0.113.9;host=\u{e9}"], PROXY),
        (&["for=203.0.113.9, for=unknown"], PROXY),
        (&["for=203.0.113.9, for=_hidden, for=10.0.0.7"], "10.0.0.7"),
        (&["for=203.0.113.9, by=10.0.0.7"], PROXY),
        (&["203.0.113.9"], PROXY),
        (&[r#"for=1.2.3.4, for="203.0.113.9"#], PROXY),
        (&[r#"for="1.2.3.4, for=203.0.113.9"#], "203.0.113.9"),
        (&[r#"for=1.2.3.4;by=", for=203.0.113.9"#], "203.0.113.9"),
    ] {
        assert_eq!(key(&after_rfc_7239(), PROXY, lines), client, "{lines:?}");
    }
}

#[test]
fn one_header_is_believed_and_none_unless_set() {
    let mut request = request(Some(PROXY), &FORWARDED, &["for=203.0.113.1"]);
    for (name, value) in [("x-forwarded-for", "203.0.113.2"), ("cf-connecting-ip", "203.0.113.3")] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let of = |client_ip: ClientIp| client_ip.of(Head::from(&request)).unwrap().to_string();
    assert_eq!(of(ClientIp::new()), PROXY);
    assert_eq!(of(ClientIp::new().header(FORWARDED)), PROXY);
    assert_eq!(of(ClientIp::new().trusts_missing_peer(true)), PROXY);
    assert_eq!(of(behind_proxies()), "203.0.113.2");
    assert_eq!(of(after_rfc_7239()), "203.0.113.1");
    let other = HeaderName::from_static("cf-connecting-ip");
    assert_eq!(of(behind_proxies().header(other)), "203.0.113.3");
    assert_eq!(of(behind_proxies().header(HeaderName::from_static("x-real-ip"))), PROXY);
}

#[test]
fn hops_are_counted_from_the_right() {
    let lines = &["1.2.3.4, 203.0.113.9", "198.51.100.7"][..];
    for (hops, client) in
        [(0, PROXY), (1, "198.51.100.7"), (2, "203.0.113.9"), (3, "1.2.3.4"), (9, "1.2.3.4")]
    {
        assert_eq!(key(&ClientIp::new().trusted_hops(hops), PROXY, lines), client, "{hops}");
    }
    // The last setting counts.
    assert_eq!(key(&behind_proxies().trusted_hops(2), PROXY, lines), "203.0.113.9");
    let networks = ClientIp::new().trusted_hops(2).try_trusted_networks("").unwrap();
    assert_eq!(key(&networks, PROXY, lines), PROXY);
    assert_eq!(key(&ClientIp::new().trusted_hops(2), PROXY, &["1.2.3.4, junk"]), PROXY);
}

#[test]
fn without_a_peer_there_is_no_key_unless_that_is_trusted() {
    let list = HeaderName::from_static("x-forwarded-for");
    let of = |client_ip: ClientIp, lines: &[&str]| {
        let request = request(None, &list, lines);
        client_ip.of(Head::from(&request)).map(|client| client.to_string())
    };
    let lines = &["1.2.3.4, 203.0.113.9"];
    for client_ip in [ClientIp::new(), behind_proxies(), ClientIp::new().trusted_hops(2)] {
        assert_eq!(of(client_ip, lines), None);
    }
    let client = |client: &str| Some(client.to_owned());
    assert_eq!(of(ClientIp::new().trusts_missing_peer(true), lines), client("203.0.113.9"));
    assert_eq!(of(ClientIp::new().trusts_missing_peer(true), &["junk"]), None);
    assert_eq!(of(ClientIp::new().trusts_missing_peer(true), &[]), None);
    let hops = ClientIp::new().trusts_missing_peer(true).trusted_hops(2);
    assert_eq!(of(hops, lines), client("1.2.3.4"));
    let lines = &["1.2.3.4, 203.0.113.9, 10.0.0.7"];
    assert_eq!(of(behind_proxies().trusts_missing_peer(true), lines), client("203.0.113.9"));

    let request = request(None, &list, lines);
    assert!(matches!(behind_proxies().extract(&request), Keyed::Missing(_)));
    let own = behind_proxies().peer(|_: &Extensions| Some(IpAddr::from([10, 0, 0, 9])));
    assert_eq!(own.of(Head::from(&request)).unwrap().to_string(), "203.0.113.9");
}

#[test]
fn an_element_beyond_the_bounds_ends_the_walk() {
    let trusted = |count: usize| vec!["10.0.0.7"; count].join(",");
    let with_client =
        |count| key(&behind_proxies(), PROXY, &[&format!("203.0.113.9,{}", trusted(count))]);
    assert_eq!(with_client(63), "203.0.113.9");
    assert_eq!(with_client(64), "10.0.0.7");
    // Empty elements count only as bytes.
    let spread = format!("203.0.113.9{}10.0.0.7", ",".repeat(500));
    assert_eq!(key(&behind_proxies(), PROXY, &[&spread]), "203.0.113.9");

    // The client's element is the first of 8,192 bytes, and one byte more cuts it.
    for lines in [1, 2] {
        for (padding, client) in [(0, "203.0.113.9"), (1, "10.0.0.7")] {
            let last =
                format!("{}10.0.0.7", " ".repeat(8_192 - "203.0.113.9,10.0.0.7".len() + padding));
            let client_line = "1.2.3.4,203.0.113.9";
            let found = match lines {
                1 => key(&behind_proxies(), PROXY, &[&format!("{client_line},{last}")]),
                _ => key(&behind_proxies(), PROXY, &["1.2.3.4", "203.0.113.9", &last]),
            };
            assert_eq!(found, client, "{lines} lines, {padding} bytes more");
        }
    }
    // An address that is cut is not read as a shorter one: 2.3.4.5 is the end of 12.3.4.5.
    let last = format!("{}10.0.0.7", " ".repeat(8_192 - "2.3.4.5,10.0.0.7".len()));
    assert_eq!(key(&behind_proxies(), PROXY, &[&format!("12.3.4.5,{last}")]), "10.0.0.7");
}

const ADDRESSES: [&str; 14] = [
    "203.0.113.9",
    "10.0.0.7",
    "10.1.1.1",
    "::ffff:10.0.0.8",
    "fd00::1",
    "[fd00::2]",
    "[fd00::3]:80",
    "10.0.0.9:65535",
    "2001:db8:1:2:3::9",
    "[2001:db8::1]:4711",
    "198.51.100.7:80",
    "fd00::1%eth0",
    "unknown",
    "10.0.0.1:",
];

fn elements_of_a_list() -> impl Strategy<Value = String> {
    let noise = "[ ,:.0-9a-f\\[\\]%x\"-]{0,12}";
    prop_oneof![
        8 => select(&ADDRESSES[..]).prop_map(str::to_owned),
        1 => noise,
        1 => Just(String::from("  ")),
        1 => (0..9_000_usize).prop_map(|count| " ".repeat(count)),
    ]
}

fn elements_of_forwarded() -> impl Strategy<Value = String> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('[', "\\["));
    let pair = prop_oneof![
        6 => (select(&["for=", "For=", "for =", "xfor="][..]), select(&ADDRESSES[..]))
            .prop_map(|(name, address)| format!("{name}{address}")),
        6 => (select(&["for=", "FOR="][..]), select(&ADDRESSES[..]))
            .prop_map(move |(name, address)| format!("{name}{}", quoted(address))),
        1 => select(&["proto=https", "by=_a", "secret", " ", r#"host="a,b;for=1.2.3.4\"""#, r#"by=""#][..])
            .prop_map(str::to_owned),
        1 => "[ ,;=\"\\\\a-f0-9.]{0,12}",
    ];
    vec(pair, 1..3).prop_map(|pairs| pairs.join(";"))
}

fn lines(element: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![9 => 0..6_usize, 1 => 0..70_usize]
        .prop_flat_map({
            let element = element.boxed();
            move |count| vec(element.clone(), count)
        })
        .prop_map(|elements| elements.join(", "));
    vec(line, 0..4)
}

fn agrees(lines: &[String], peer: &str, hops: Option<usize>, is_list: bool) {
    let client_ip = if is_list { behind_proxies() } else { after_rfc_7239() };
    let client_ip = client_ip.ipv6_prefix(128);
    let client_ip = match hops {
        Some(hops) => client_ip.trusted_hops(hops),
        None => client_ip,
    };
    let request = request(Some(peer), client_ip.header.name(), lines);
    let found = client_ip.of(Head::from(&request)).unwrap().address();
    assert_eq!(found, model::client(peer.parse().unwrap(), hops, lines, is_list), "{lines:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn lists_are_read_as_the_model_reads_them(
        lines in lines(elements_of_a_list()),
        peer in select(&[PROXY, "::ffff:10.0.0.5", "fd00::1", "198.51.100.4"][..]),
        hops in proptest::option::weighted(0.3, 0..6_usize),
    ) {
        agrees(&lines, peer, hops, true);
    }

    #[test]
    fn forwarded_is_read_as_the_model_reads_it(
        lines in lines(elements_of_forwarded()),
        hops in proptest::option::weighted(0.3, 0..6_usize),
    ) {
        agrees(&lines, PROXY, hops, false);
    }
}
