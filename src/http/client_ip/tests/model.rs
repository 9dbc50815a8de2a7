//! The client of a request, found as slowly and as plainly as possible.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) fn client(peer: IpAddr, hops: Option<usize>, lines: &[String], is_list: bool) -> IpAddr {
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

/// The elements from the right, without empty ones, as far as they may be read.
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

/// Returns true if each quotation mark is closed, and no backslash stands outside, read from the
/// left.
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
            last.push((character, is_quoted && !is_mark && !is_backslash, is_mark, is_backslash));
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
        values.push(value.iter().filter(|part| !part.2 && !part.3).map(|part| part.0).collect());
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
