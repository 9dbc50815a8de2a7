//! Costs that answers state: tokens of language models, which no code of the application counts.

mod common;

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};

use common::client::Connection;
use common::upstream::Upstream;
use common::{Answer, Gateway};
use support::{Server, until};

/// 1,000 tokens a day for each key. A request is charged 10 until its answer states more.
fn table(algorithm: &str, cost: &str) -> String {
    format!(
        "[[policy]]\nname = \"tokens\"\nalgorithm = \"{algorithm}\"\nlimit = 1000\nperiod = \"1000days\"\n\
         key = \"header:x-api-key\"\ncost = {cost}\n\
         [[policy]]\nname = \"requests\"\nalgorithm = \"fixed_window\"\nanchored = true\nlimit = 100\n\
         period = \"1000days\"\nkey = \"header:x-api-key\"\n"
    )
}

const TOTAL: &str = "{ response_json = \"/usage/total_tokens\", charge = 10 }";

const USAGE: &str = "{\"choices\": [], \"usage\": {\"prompt_tokens\": 13, \"total_tokens\": 70}}";

/// An upstream that answers with these lines of a head, and a body in chunks.
fn answering(head: &str, chunks: &[&str]) -> Upstream {
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunks: Vec<_> = chunks.iter().map(|chunk| (*chunk).to_owned()).collect();
    Upstream::start(move |_, mut stream| {
        send(&mut stream, &head);
        chunks.iter().for_each(|chunk| send_chunk(&mut stream, chunk));
        send(&mut stream, "0\r\n\r\n");
    })
}

fn send(stream: &mut BufReader<TcpStream>, text: &str) {
    let _ = stream.get_mut().write_all(text.as_bytes());
}

fn send_chunk(stream: &mut BufReader<TcpStream>, text: &str) {
    send(stream, &format!("{:x}\r\n{text}\r\n", text.len()));
}

fn left(gateway: &Gateway, policy: &str) -> u64 {
    let answer = gateway.admin("GET", &format!("/keys/{policy}/alice"), "");
    answer.json()["remaining"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

fn ask(gateway: &Gateway) -> Answer {
    gateway.get_as("alice", "/v1/chat/completions")
}

/// Waits until so many tokens are left. Each request has cost one of the other row.
fn is_left(gateway: &Gateway, tokens: u64, requests: u64) {
    until(&format!("{tokens} are left"), || left(gateway, "tokens") == tokens);
    assert_eq!(left(gateway, "requests"), 100 - requests);
}

/// A gateway before an upstream, with these rows in memory.
fn before(upstream: &Upstream, table: &str) -> Gateway {
    Gateway::start(table, &[("UPSTREAM", &upstream.url())])
}

#[test]
fn tokens_are_limited_in_memory_and_over_redis() {
    let server = Server::start();
    let upstream = answering("content-type: application/json", &[USAGE]);
    let (url, redis) = (upstream.url(), server.url());
    for store in [vec![], vec![("REDIS_URL", redis.as_str())]] {
        for algorithm in ["token_bucket", "budget", "fixed_window", "sliding_window"] {
            let table = table(algorithm, "\"response_json:/usage/total_tokens\"");
            let table = table.replace("name = \"tokens\"", &format!("name = \"{algorithm}\""));
            let table = table.replace("limit = 1000", "limit = 100");
            let variables = [vec![("UPSTREAM", url.as_str())], store.clone()].concat();
            let gateway = Gateway::start(&table, &variables);
            until("it decides", || {
                gateway.get_as("bob", "/").status == 200 && left(&gateway, algorithm) == 100
            });
            let user = format!("{algorithm}-{}", store.len());
            let status = || gateway.get_as(&user, "/").status;
            let left = || {
                let path = format!("/keys/{algorithm}/{user}");
                gateway.admin("GET", &path, "").json()["remaining"].clone()
            };
            assert_eq!(status(), 200);
            until("70 are taken", || left() == 30);
            // The charge fits, and what is missing is taken too.
            assert_eq!(status(), 200);
            until("all are taken", || left() == 0);
            assert_eq!(status(), 429, "{algorithm}");
        }
    }
}

/// The events reach the caller as they come, and no byte is changed. The usage is cut in two.
#[test]
fn a_stream_passes_as_it_is_and_its_last_usage_counts() {
    static FIRST_HAS_COME: Barrier = Barrier::new(2);
    let parts = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}],\"usage\":null}\r\n\r\n",
        ": keep-alive\r\n\r\ndata: {\"choices\":[],\"usage\":{\"total_tok",
        "ens\":7",
        "0}}\r\n\r\ndata: [DONE]\r\n\r\n",
    ];
    let upstream = Upstream::start(move |_, mut stream| {
        let kind = "content-type: text/event-stream; charset=utf-8";
        send(
            &mut stream,
            &format!("HTTP/1.1 200 OK\r\n{kind}\r\ntransfer-encoding: chunked\r\n\r\n"),
        );
        send_chunk(&mut stream, parts[0]);
        FIRST_HAS_COME.wait();
        parts[1..].iter().for_each(|part| send_chunk(&mut stream, part));
        send(&mut stream, "0\r\n\r\n");
    });
    let gateway = before(&upstream, &table("budget", TOTAL));
    let mut caller = Connection::open(gateway.listen);
    caller.send_head("GET", "/", &[("x-api-key", "alice")], None);
    assert_eq!(caller.head().0, 200);
    assert_eq!(caller.chunk().expect("an event"), parts[0].as_bytes());
    // It is held meanwhile.
    is_left(&gateway, 990, 1);
    FIRST_HAS_COME.wait();
    let mut rest = Vec::new();
    while let Some(chunk) = caller.chunk() {
        rest.extend(chunk);
    }
    assert_eq!(rest, parts[1..].concat().as_bytes());
    is_left(&gateway, 930, 1);
}

#[test]
fn an_answer_without_a_usable_cost_keeps_the_charge() {
    let json = "content-type: application/json";
    let sse = "content-type: text/event-stream";
    let usage = |number: &str| format!("{{\"usage\": {{\"total_tokens\": {number}}}}}");
    for (head, body, tokens) in [
        (json, "{\"id\": 1}".to_owned(), 990),
        (json, usage("null"), 990),
        (json, usage("-70"), 990),
        (json, usage("70.5"), 990),
        (json, usage("\"70\""), 990),
        (json, usage("99999999999999999999999"), 990),
        (json, usage("70").replace("}}", "}"), 990),
        (json, usage("3"), 997),
        ("content-type: text/html", usage("70"), 990),
        ("content-type: application/json\r\ncontent-encoding: gzip", usage("70"), 990),
        // Without `stream_options.include_usage`.
        (sse, "data: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n".to_owned(), 990),
        (sse, format!("data: {}\n\n", usage("-1")), 990),
        (sse, format!("data: {}", usage("70")), 930),
    ] {
        let upstream = answering(head, &[&body]);
        let gateway = before(&upstream, &table("token_bucket", TOTAL));
        let answer = ask(&gateway);
        assert_eq!((answer.status, answer.text()), (200, body.clone()), "{head}");
        is_left(&gateway, tokens, 1);
    }
}

/// What came before counts if it is more than the charge: nobody pays less by hanging up.
#[test]
fn a_broken_stream_costs_at_least_its_charge() {
    for (seen, tokens) in [(3, 990), (70, 930)] {
        let event = format!("data: {{\"usage\": {{\"total_tokens\": {seen}}}}}\n\n");
        let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        // The upstream breaks off, once the caller has the event.
        let (sent, has_come) = (event.clone(), Arc::new(Barrier::new(2)));
        let breaks_off = Arc::clone(&has_come);
        let breaking = Upstream::start(move |_, mut stream| {
            send(&mut stream, begin);
            send_chunk(&mut stream, &sent);
            breaks_off.wait();
        });
        // The caller hangs up.
        let sent = event.clone();
        let endless = Upstream::start(move |_, mut stream| {
            send(&mut stream, begin);
            send_chunk(&mut stream, &sent);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        for (upstream, has_come) in [(breaking, Some(has_come)), (endless, None)] {
            let gateway = before(&upstream, &table("budget", TOTAL));
            let mut caller = Connection::open(gateway.listen);
            caller.send_head("GET", "/", &[("x-api-key", "alice")], None);
            assert_eq!(caller.head().0, 200);
            assert_eq!(caller.chunk().expect("an event"), event.as_bytes());
            if let Some(has_come) = has_come {
                has_come.wait();
                assert!(caller.is_closed());
            }
            drop(caller);
            is_left(&gateway, tokens, 1);
        }
    }
    // It never answers.
    let silent = Upstream::start(|_, stream| drop(stream));
    let gateway = before(&silent, &table("budget", TOTAL));
    assert_eq!(ask(&gateway).status, 502);
    is_left(&gateway, 990, 1);
}

/// Most clients ask for compressed answers, of which nothing can be read.
#[test]
fn the_upstream_is_not_asked_for_what_cannot_be_read() {
    let upstream = Upstream::showing_heads();
    for (cost, asks) in [(TOTAL, false), ("\"response_header:x-tokens\"", true), ("1", true)] {
        let gateway = before(&upstream, &table("token_bucket", cost));
        let headers = [("x-api-key", "alice"), ("accept-encoding", "gzip, br")];
        let seen = gateway.send("GET", "/", &headers, b"").text().to_lowercase();
        assert_eq!(seen.contains("accept-encoding: gzip, br"), asks, "{cost}: {seen}");
    }
}

/// Anthropic states the input and the output in two events.
#[test]
fn numbers_of_several_events_are_added() {
    let cost = "{ response_json = [\"/message/usage/input_tokens\", \"/usage/output_tokens\"], charge = 10 }";
    let start = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":472,\"output_tokens\":2}}}\n\n";
    let delta = "event: message_delta\ndata: {\"usage\":{\"output_tokens\":89}}\n\n";
    for (body, tokens) in [([start, delta].concat(), 439), (start.to_owned(), 528)] {
        let upstream = answering("content-type: text/event-stream", &[&body]);
        let gateway = before(&upstream, &table("token_bucket", cost));
        assert_eq!(ask(&gateway).status, 200);
        is_left(&gateway, tokens, 1);
    }
}

#[test]
fn a_header_of_the_answer_states_the_cost() {
    for (head, tokens) in
        [("x-tokens: 70", 930), ("x-tokens: 0", 1_000), ("x-tokens: -1", 990), ("x-other: 1", 990)]
    {
        let upstream = answering(head, &["hello"]);
        let cost = "{ response_header = \"x-tokens\", charge = 10 }";
        let gateway = before(&upstream, &table("token_bucket", cost));
        assert_eq!(ask(&gateway).text(), "hello");
        is_left(&gateway, tokens, 1);
    }
    // The gateway's own answer has a body too.
    let gateway = Gateway::with_policies(&table("token_bucket", TOTAL));
    let headers = [("x-api-key", "alice"), ("content-type", "application/json")];
    let answer = gateway.send("POST", "/echo", &headers, USAGE.as_bytes());
    assert_eq!((answer.status, answer.text().as_str()), (200, USAGE));
    is_left(&gateway, 930, 1);
    let shown = gateway.admin("GET", "/policies", "").json();
    let cost = &shown["policies"][0]["cost"];
    assert_eq!(cost["response_json"], "/usage/total_tokens", "{shown}");
    assert_eq!(cost["charge"], 10);
}
