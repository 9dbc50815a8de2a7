//! Models of servers: all of them read the same in a path that is not refused.

use super::*;

/// The escapes of the test that a server decodes within a segment. `%25`, `%3f` and `%23` have
/// rules of their own.
const ESCAPES: [(&str, &str); 7] = [
    ("%61", "a"),
    ("%2e", "."),
    ("%2E", "."),
    ("%2f", "/"),
    ("%2F", "/"),
    ("%5c", "\\"),
    ("%3b", ";"),
];

/// Reads a path as servers do. Each removes dots and parameters, merges slashes and decodes, in its
/// own order.
fn servers(path: &str) -> [Vec<String>; 22] {
    let split = |path: &str| path.split('/').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let joined = |segments: &[String]| format!("/{}", segments.join("/"));
    let all = |path: &str| {
        let mut text = path.to_owned();
        for (escape, byte) in ESCAPES {
            text = text.replace(escape, byte);
        }
        text
    };
    let each = |segments: Vec<String>| segments.iter().map(|one| all(one)).collect::<Vec<_>>();
    let merged = |segments: Vec<String>| -> Vec<String> {
        let last = segments.len() - 1;
        let kept = segments.into_iter().enumerate();
        kept.filter(|(at, one)| !one.is_empty() || *at == last).map(|(_, one)| one).collect()
    };
    let without_dots = |segments: Vec<String>, decodes: bool| {
        let mut kept: Vec<String> = Vec::new();
        let last = segments.len() - 1;
        for (at, segment) in segments.into_iter().enumerate() {
            let read = if decodes { all(&segment) } else { segment.clone() };
            match &*read {
                "." | ".." => {
                    if read == ".." {
                        kept.pop();
                    }
                    if at == last {
                        kept.push(String::new());
                    }
                }
                _ => kept.push(segment),
            }
        }
        if kept.is_empty() { vec![String::new()] } else { kept }
    };
    let names = |segments: Vec<String>| -> Vec<String> {
        segments.iter().map(|one| one.split(';').next().unwrap().to_owned()).collect()
    };
    // A server for which `/x/` equals `/x`.
    let closed = |mut segments: Vec<String>| {
        _ = segments.pop_if(|last| last.is_empty());
        segments
    };
    let twice = all(&all(path).replace("%25", "%"));
    let until_query = |path: &str| {
        let path = all(path);
        path[..path.find("%3f").or(path.find("%23")).unwrap_or(path.len())].to_owned()
    };
    let dots = |segments| without_dots(segments, false);
    let whatwg = without_dots(split(&path.replace('\\', "/")), true);
    // A server that reads the path as an address.
    let without_host = |path: &str| match path.strip_prefix("//") {
        Some(rest) => {
            let rest = rest.trim_start_matches('/');
            rest.find('/').map_or("/", |end| &rest[end..]).to_owned()
        }
        None => path.to_owned(),
    };
    let address = without_dots(split(&without_host(&path.replace('\\', "/"))), true);
    let raw = dots(split(path));
    let decoded = split(&all(path));
    [
        dots(merged(decoded.clone())),
        merged(dots(decoded.clone())),
        dots(decoded.clone()),
        decoded,
        each(raw.clone()),
        each(merged(raw.clone())),
        each(dots(merged(split(path)))),
        dots(merged(split(&all(&joined(&raw))))),
        each(whatwg.clone()),
        each(merged(whatwg.clone())),
        dots(merged(split(&all(&joined(&whatwg))))),
        dots(merged(split(&all(path).replace('\\', "/")))),
        // Tomcat, Spring, Python and Express.
        dots(merged(split(&all(&joined(&names(split(path))))))),
        each(names(split(path))),
        closed(dots(merged(split(&all(path))))),
        closed(split(path)),
        // The second of two servers.
        dots(merged(names(split(&all(path))))),
        dots(merged(split(&twice))),
        dots(merged(split(&until_query(path)))),
        // IIS.
        dots(merged(split(&all(&path.replace("%u0061", "a").replace("%u002f", "/"))))),
        // Node's `new URL`, alone and after a decoding.
        each(address),
        dots(merged(split(&without_host(&all(path).replace('\\', "/"))))),
    ]
}

#[test]
fn all_servers_read_the_same_in_a_path_that_is_not_refused() {
    let row = "[[policy]]\nname = 'a'\nlimit = 9\nperiod = '1h'\nmatch = '/api/x'\nkey = 'path'";
    let policies = policies(row);
    let tokens = [
        ";a", "/..;", "%3bx", "%252f", "%252e", "%2561pi", "%3fa", "%23", "/", "/", "/", "//", ".",
        "..", "%2e", "%2E%2e", ".%2e", "%2f", "%2F..", "\\", "%5c", "/api", "/api/x", "api", "api",
        "%61pi", "%u0061pi", "x", "/x", "a", "/a", "/../", "/./",
    ];
    let mut dice = Dice(7);
    let (mut taken, mut passed) = (0, 0);
    for _ in 0..40_000 {
        let mut path = String::from(dice.word("/|/api"));
        for _ in 0..=dice.below(4) {
            path += dice.pick(&tokens);
        }
        let is_taken = match policies.charge(Head::from(&request("GET", &path, &[]))) {
            Keyed::Charge(_) => true,
            Keyed::Exempt => false,
            _ => continue,
        };
        *(if is_taken { &mut taken } else { &mut passed }) += 1;
        for (server, mut segments) in servers(&path).into_iter().enumerate() {
            _ = segments.pop_if(|last| last.is_empty());
            // Some servers find their handler without decoding.
            let read = segments.iter().map(|one| one.replace("%61", "a"));
            assert_eq!(read.eq(["api", "x"]), is_taken, "{path} {server} {segments:?}");
        }
    }
    assert!(taken > 100 && passed > 1_000, "{taken} {passed}");
}
