//! A request that reaches the handler of a limited path is taken by its policy or refused, however
//! the path is spelled. Over real sockets: axum here, and further servers with `tests/paths.sh`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::Router;
use axum::routing::get;
use http::Uri;

use super::*;

/// Paths with handlers, which answer with the names of the policies.
const HANDLERS: [(&str, &str, &str); 3] = [
    ("login", "/login", "/login"),
    ("user", "/users/7", "/users/{id}"),
    ("api", "/api/x", "/api/{*rest}"),
];

/// The texts that an attacker puts between the segments of a path.
const BETWEEN: &str = "/|/.|/./|/x/..|/x/../|//|//x|/x//../..|;a=b|;|/;a|/..;/|/x/..;a|%2f|%2F|\
    %2e|/%2e|/x/%2e%2E|%2f.|\\|%5c|/x\\..|%3b|%252f|/%252e|/x%252f..|%3f|/x%c0%af..";

/// The same at the end.
const END: &str = "/|/.|//|//.|/..|/x/..|%2f|%2f.|%2f..%2flogin|;a=b|/;a|%3ba|%3fa|%23a|%252f|\
    \\|%5c|%20|%0a|%00|%c2%a0|%ef%bb%bf|%ff|.|%2e";

/// A spelling of a path. Most reach its handler in some server.
fn spelling(dice: &mut Dice, path: &str, ignores_case: bool) -> String {
    let mut spelling = String::new();
    for segment in path.split('/').skip(1) {
        if dice.below(3) == 0 {
            spelling += dice.word(BETWEEN);
        }
        if dice.below(8) > 0 {
            spelling.push('/');
        }
        for letter in segment.chars() {
            match dice.below(24) {
                0 => spelling += &format!("%{:02x}", u32::from(letter)),
                3 if dice.below(4) == 0 => spelling += &format!("%09{letter}"),
                1 => spelling += &format!("%25{:02X}", u32::from(letter)),
                2 if ignores_case => spelling.push(letter.to_ascii_uppercase()),
                _ => spelling.push(letter),
            }
        }
    }
    if dice.below(2) == 0 {
        spelling += dice.word(END);
    }
    if !spelling.starts_with('/') { format!("/{spelling}") } else { spelling }
}

fn table(ignores_case: bool) -> Policies {
    let row = |(name, _, path)| {
        let case = if ignores_case { ", ignore_case = true" } else { "" };
        format!(
            "[[policy]]\nname = '{name}'\nlimit = 1000000\nperiod = '1h'\n\
             match = {{ path = '{path}'{case} }}\n"
        )
    };
    policies(&HANDLERS.map(row).concat())
}

/// A connection that is made again whenever the server closes it.
struct Client {
    server: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    /// The body of the answer to a GET, if its status is 200.
    fn get(&mut self, path: &str) -> Option<String> {
        for _ in 0..3 {
            let server = self.server;
            let stream = self.stream.take().unwrap_or_else(|| {
                BufReader::new(TcpStream::connect(server).expect("a connection"))
            });
            if let Some((answer, stream)) = ask(stream, path) {
                self.stream = stream;
                return answer;
            }
        }
        // Some servers close the connection for a byte 0.
        None
    }
}

type Answered = (Option<String>, Option<BufReader<TcpStream>>);

/// `None` if the connection ended before an answer.
fn ask(mut stream: BufReader<TcpStream>, path: &str) -> Option<Answered> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes()).ok()?;
    let (mut status, mut length, mut closes, mut is_chunked) = (0, None, false, false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            _ if line.starts_with("http/") => {
                status = line.split(' ').nth(1)?.parse().ok()?;
                closes = line.starts_with("http/1.0");
            }
            _ if line.is_empty() => break,
            Some(("content-length", value)) => length = value.parse().ok(),
            Some(("connection", "close")) => closes = true,
            Some(("transfer-encoding", _)) => is_chunked = true,
            _ => {}
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) if !is_chunked => {
            body.resize(length, 0);
            stream.read_exact(&mut body).ok()?;
        }
        // Such an answer is that of no handler.
        _ => return Some(((status == 200 && is_chunked).then(String::new), None)),
    }
    let body = String::from_utf8_lossy(&body).trim().to_owned();
    Some(((status == 200).then_some(body), (!closes).then_some(stream)))
}

/// Sends spellings to one server. Returns how many reached which handler and were charged.
async fn escape(server: SocketAddr, spellings: usize, ignores_case: bool) -> BTreeMap<String, u32> {
    let policies = table(ignores_case);
    let (mut dice, mut charged) = (Dice(7), BTreeMap::new());
    let mut client = Client { server, stream: None };
    let (mut escaped, mut refused) = (Vec::new(), 0);
    for _ in 0..spellings {
        let (_, path, _) = dice.pick(&HANDLERS);
        let spelling = spelling(&mut dice, path, ignores_case);
        // What no server of hyper would accept never gets to the policies.
        let Ok(uri) = spelling.parse::<Uri>() else { continue };
        let answer = client.get(uri.path());
        let Some(handler) = answer.filter(|body| HANDLERS.iter().any(|one| one.0 == *body)) else {
            continue;
        };
        let request = request("GET", uri.path(), &[]);
        let is_taken = match policies.charge(Head::from(&request)) {
            Keyed::Exempt => false,
            Keyed::Charge(_) => {
                let decision = check(&policies, &request).await.expect("taken").expect("decided");
                decision.policies().any(|one| one.name() == handler)
                    || decision.limiter() == Some(&handler)
            }
            _ => {
                refused += 1;
                continue;
            }
        };
        if !is_taken {
            escaped.push(spelling);
        }
        *charged.entry(handler).or_default() += 1;
    }
    let escapes = escaped.len();
    println!("{spellings} spellings, charged {charged:?}, {refused} refused, {escapes} escaped");
    assert!(escaped.is_empty(), "{escaped:?}");
    charged
}

// Case 168.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_that_reaches_a_handler_escapes_its_policy() {
    let app = Router::new()
        .route("/login", get(async || "login"))
        .route("/users/{id}", get(async || "user"))
        .route("/api/{*rest}", get(async || "api"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let axum = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let charged = escape(axum, 2_000, false).await;
    assert_eq!(charged.len(), HANDLERS.len(), "{charged:?}");
    // Such as `tomcat=127.0.0.1:8080 express:i=127.0.0.1:8081`, of which one ignores case.
    let others = std::env::var("PATH_SERVERS").unwrap_or_default();
    for server in others.split_whitespace() {
        let (name, address) = server.split_once('=').expect("name=address");
        print!("{name} ");
        let address = address.parse().expect("an address");
        let charged = escape(address, 10_000, name.ends_with(":i")).await;
        assert_eq!(charged.len(), HANDLERS.len(), "{charged:?}");
    }
}
