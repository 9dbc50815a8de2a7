//! Models of servers: what each of them reads in a path, held against the readings of it.

use super::{Readings, spelled};

/// How servers find the segments of a path: each takes out dots, merges slashes and decodes, in
/// an order of its own.
fn servers(path: &str) -> [Vec<String>; 12] {
    let split = |path: &str| path.split('/').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let joined = |segments: &[String]| format!("/{}", segments.join("/"));
    let all = |path: &str| {
        let mut text = spelled(path);
        for (escape, byte) in [("%2E", "."), ("%2F", "/"), ("%5C", "\\")] {
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
    let dots = |segments| without_dots(segments, false);
    let whatwg = without_dots(split(&path.replace('\\', "/")), true);
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
    ]
}

#[test]
fn no_server_reads_a_path_that_is_no_reading() {
    let tokens = [
        "/", "/", "//", ".", "..", "%2e", "%2E%2e", ".%2e", "%2f", "%2F..", "\\", "%5c", "/api",
        "/api/x", "api", "%61pi", "x", "/x", "a", "/a", "/../", "/./",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut found = [0; 12];
    for _ in 0..20_000 {
        let mut path = String::from("/");
        for _ in 0..random.usize(1..8) {
            path += random.choice(tokens).expect("a token");
        }
        let is_taken =
            Readings::of(&path).each().is_none_or(|mut each| each.any(|one| one == "/api/x"));
        for (server, segments) in servers(&path).iter().enumerate() {
            if segments == &["api", "x"] {
                found[server] += 1;
                assert!(is_taken, "{path} {server}");
            }
        }
    }
    assert!(found.iter().all(|times| *times > 3), "{found:?}");
}
