use std::net::{IpAddr, SocketAddr};

use fastrand::Rng;
use http::header::FORWARDED;
use http::{Extensions, HeaderValue, Request};

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
        // Bytes above 0x7F make only their own element invalid.
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

    // The client's element begins the last 8,192 bytes, and one more byte cuts it.
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
    // A cut address is not read as a shorter address: 2.3.4.5 is the end of 12.3.4.5.
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

fn one_of<'a>(random: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[random.usize(..texts.len())]
}

/// Up to twelve of these bytes.
fn noise(random: &mut Rng, bytes: &[u8]) -> String {
    let byte = |random: &mut Rng| char::from(bytes[random.usize(..bytes.len())]);
    (0..random.usize(..=12)).map(|_| byte(random)).collect()
}

fn element_of_a_list(random: &mut Rng) -> String {
    match random.usize(..11) {
        0 => noise(random, b" ,:.0123456789abcdef[]%x\"-"),
        1 => String::from("  "),
        2 => " ".repeat(random.usize(..9_000)),
        _ => one_of(random, &ADDRESSES).to_owned(),
    }
}

fn element_of_forwarded(random: &mut Rng) -> String {
    const OTHERS: [&str; 6] =
        ["proto=https", "by=_a", "secret", " ", r#"host="a,b;for=1.2.3.4\"""#, r#"by=""#];
    let pair = |random: &mut Rng| match random.usize(..14) {
        0 => one_of(random, &OTHERS).to_owned(),
        1 => noise(random, b" ,;=\"\\abcdef0123456789."),
        2..8 => {
            let name = one_of(random, &["for=", "For=", "for =", "xfor="]);
            format!("{name}{}", one_of(random, &ADDRESSES))
        }
        _ => {
            let name = one_of(random, &["for=", "FOR="]);
            format!("{name}\"{}\"", one_of(random, &ADDRESSES).replace('[', "\\["))
        }
    };
    let pairs: Vec<_> = (0..random.usize(1..3)).map(|_| pair(random)).collect();
    pairs.join(";")
}

/// Up to three lines, some of them long.
fn lines(random: &mut Rng, element: fn(&mut Rng) -> String) -> Vec<String> {
    let line = |random: &mut Rng| {
        let most = if random.usize(..10) == 0 { 70 } else { 6 };
        let elements: Vec<_> = (0..random.usize(..most)).map(|_| element(random)).collect();
        elements.join(", ")
    };
    (0..random.usize(..4)).map(|_| line(random)).collect()
}

fn hops(random: &mut Rng) -> Option<usize> {
    (random.usize(..10) < 3).then(|| random.usize(..6))
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

#[test]
fn lists_are_read_as_the_model_reads_them() {
    let mut random = Rng::with_seed(7239);
    for _ in 0..1_000 {
        let peer = one_of(&mut random, &[PROXY, "::ffff:10.0.0.5", "fd00::1", "198.51.100.4"]);
        let hops = hops(&mut random);
        agrees(&lines(&mut random, element_of_a_list), peer, hops, true);
    }
}

#[test]
fn forwarded_is_read_as_the_model_reads_it() {
    let mut random = Rng::with_seed(7239);
    for _ in 0..1_000 {
        let hops = hops(&mut random);
        agrees(&lines(&mut random, element_of_forwarded), PROXY, hops, false);
    }
}

mod model {
    //! Finds the client of a request in a slow and simple way.

    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    pub(super) fn client(
        peer: IpAddr,
        hops: Option<usize>,
        lines: &[String],
        is_list: bool,
    ) -> IpAddr {
        let text = lines.join(",");
        let mut current = canonical(peer);
        for (hop, element) in elements(&text, is_list).into_iter().enumerate() {
            if !is_trusted(current, hops, hop) {
                break;
            }
            let text = if is_list { Some(element) } else { parameter(&element) };
            match text.and_then(|text| address(&text)) {
                Some(address) => current = canonical(address),
                None => break,
            }
        }
        current
    }

    fn is_trusted(address: IpAddr, hops: Option<usize>, hop: usize) -> bool {
        match (hops, address) {
            (Some(hops), _) => hop < hops,
            (None, IpAddr::V4(address)) => address.octets()[0] == 10,
            (None, IpAddr::V6(address)) => address.octets()[0] == 0xfd,
        }
    }

    fn canonical(address: IpAddr) -> IpAddr {
        let IpAddr::V6(six) = address else { return address };
        match six.segments() {
            [0, 0, 0, 0, 0, 0xffff, high, low] => {
                Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
            }
            _ => address,
        }
    }

    /// Returns the elements from the right, without empty ones, up to the bounds.
    fn elements(text: &str, is_list: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut end = text.len();
        loop {
            let commas = (0..end).rev().filter(|place| text.as_bytes()[*place] == b',');
            let mut begins = commas.map(|place| place + 1);
            let begin = begins.find(|begin| is_list || is_balanced(&text[*begin..end]));
            let element = text[begin.unwrap_or(0)..end].trim_matches([' ', '\t']);
            let is_within = text.len() - begin.unwrap_or(0) <= 8_192;
            if !is_within || found.len() == 64 && !element.is_empty() {
                return found;
            }
            if !element.is_empty() {
                found.push(element.to_owned());
            }
            match begin {
                Some(begin) => end = begin - 1,
                None => return found,
            }
        }
    }

    /// Returns true if, read from the left, each quotation mark is closed and no backslash is
    /// outside of quotation marks.
    fn is_balanced(text: &str) -> bool {
        let (mut is_quoted, mut is_escaped) = (false, false);
        for character in text.chars() {
            if character == '\\' && !is_quoted {
                return false;
            }
            is_quoted ^= character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
        }
        !is_quoted
    }

    fn parameter(element: &str) -> Option<String> {
        if !element.is_ascii() || !is_balanced(element) {
            return None;
        }
        // Pairs of a name and a value, in which quoted characters are marked.
        let mut pairs = vec![vec![]];
        let (mut is_quoted, mut is_escaped) = (false, false);
        for character in element.chars() {
            let is_mark = !is_escaped && character == '"';
            let is_backslash = !is_escaped && is_quoted && character == '\\';
            if !is_quoted && character == ';' {
                pairs.push(vec![]);
            } else {
                let last = pairs.last_mut().unwrap();
                last.push((
                    character,
                    is_quoted && !is_mark && !is_backslash,
                    is_mark,
                    is_backslash,
                ));
            }
            is_quoted ^= is_mark;
            is_escaped = is_backslash;
        }
        let mut values = vec![];
        for pair in pairs {
            let plain: String = pair.iter().map(|part| part.0).collect();
            let Some((name, value)) = plain.split_once('=') else { continue };
            if name.trim_start_matches([' ', '\t']).to_lowercase() != "for" {
                continue;
            }
            let begin = pair.len() - value.len();
            let mut value = &pair[begin..];
            while let [rest @ .., (' ' | '\t', false, ..)] = value {
                value = rest;
            }
            let marks = value.iter().filter(|part| part.2).count();
            let is_whole = marks == 2 && value[0].2 && value[value.len() - 1].2;
            if marks > 0 && !is_whole {
                return None;
            }
            values
                .push(value.iter().filter(|part| !part.2 && !part.3).map(|part| part.0).collect());
        }
        if values.len() == 1 { values.pop() } else { None }
    }

    fn address(text: &str) -> Option<IpAddr> {
        let port = text.rsplit(':').next().unwrap_or_default();
        if text.contains('%') {
            return None;
        }
        let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let bracketed = bracketed.and_then(|text| text.parse::<Ipv6Addr>().ok());
        let with_port = text.parse::<SocketAddr>().ok().filter(|_| port.len() <= 5);
        let address = text.parse::<IpAddr>().ok();
        address.or(bracketed.map(IpAddr::V6)).or(with_port.map(|address| address.ip()))
    }
}
