//! A real Envoy before an upstream, with limits from the service: `test.sh` fetches Envoy.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use common::{Service, exchange};
use support::files::Files;
use support::process::Process;
use support::{Server, free_port, until};

const CONFIG: &str = include_str!("../envoy.yaml");
const RULES: &str = include_str!("../rules.yaml");

/// Rules whose windows do not end while a test runs.
fn rules() -> String {
    RULES.replace("unit: minute", "unit: year").replace("unit: hour", "unit: year")
}

/// A running Envoy, ended when it is dropped.
struct Envoy {
    _process: Process,
    address: SocketAddr,
    _folder: Files,
}

impl Envoy {
    /// One before an upstream of its own, that asks these services.
    fn start(services: &[SocketAddr], denies: bool) -> Self {
        // The upstream comes first: it could take a port that is only chosen.
        let upstream = upstream();
        let (folder, port) = (Files::new(), free_port());
        let endpoint = |address: SocketAddr| {
            let address = format!("{{address: 127.0.0.1, port_value: {}}}", address.port());
            format!("- endpoint: {{address: {{socket_address: {address}}}}}\n")
        };
        let known =
            "- endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8081}}}\n";
        let endpoints: Vec<String> = services.iter().map(|one| endpoint(*one)).collect();
        let config = CONFIG
            .replace(known, &endpoints.join("              "))
            .replace("port_value: 10000", &format!("port_value: {port}"))
            .replace("port_value: 9000", &format!("port_value: {}", upstream.port()))
            .replace("failure_mode_deny: false", &format!("failure_mode_deny: {denies}"));
        let file = folder.write("envoy.yaml", &config);
        let envoy = std::env::var_os("ENVOY").expect("run test.sh, which fetches Envoy");
        let options = ["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"];
        let process = Process::start(Command::new(envoy).args(options).args(["-c", &file]));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let this = Self { _process: process.expect("a process"), address, _folder: folder };
        until("Envoy listens", || std::net::TcpStream::connect(address).is_ok());
        this
    }

    /// The status of a request, and the head of the answer.
    fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let (status, head, _) = exchange(self.address, "GET", path, headers, "");
        (status, head)
    }

    fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        self.ask(path, headers).0
    }
}

/// Answers every request with 200.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while let Ok(1..) = stream.read(&mut bytes) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
#[ignore = "needs Envoy: test.sh"]
fn envoy_limits_by_headers_paths_and_addresses() {
    let service = Service::start(&rules(), &[("RESPONSE_HEADERS", "true")]);
    let envoy = Envoy::start(&[service.grpc], false);
    for left in (0..5).rev() {
        let (status, head) = envoy.ask("/", &[("x-user", "bob")]);
        assert_eq!(status, 200);
        assert!(head.contains("ratelimit-limit: 5\r\n"), "{head}");
        assert!(head.contains(&format!("ratelimit-remaining: {left}\r\n")), "{head}");
        assert!(head.contains("ratelimit-reset: "), "{head}");
    }
    let (status, head) = envoy.ask("/", &[("x-user", "bob")]);
    assert_eq!(status, 429);
    assert!(head.contains("x-envoy-ratelimited: true"), "{head}");
    let statuses = (0..11).map(|_| envoy.status("/", &[("x-user", "alice")]));
    assert_eq!(statuses.filter(|status| *status == 200).count(), 10);
    let slow: Vec<u16> = (0..3).map(|_| envoy.status("/slow", &[])).collect();
    assert_eq!(slow, [200, 200, 429]);
    assert_eq!(envoy.status("/", &[("user-agent", "a bot")]), 429);
    assert_eq!(envoy.status("/", &[("user-agent", "curl")]), 200);
    // 18 passed, and those that were refused took nothing of the address.
    let left = (0..100).take_while(|_| envoy.status("/", &[]) == 200).count();
    assert_eq!(left, 100 - 18);
}

#[test]
#[ignore = "needs Envoy: test.sh"]
fn envoy_sees_changed_rules() {
    let service = Service::start(&rules(), &[]);
    let envoy = Envoy::start(&[service.grpc], false);
    let statuses: Vec<u16> = (0..3).map(|_| envoy.status("/slow", &[])).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let more = rules().replace("requests_per_unit: 2\n", "requests_per_unit: 3\n");
    std::fs::write(service.folder.join("rules.yaml"), more).unwrap();
    until("one more passes", || envoy.status("/slow", &[]) == 200);
    assert_eq!(envoy.status("/slow", &[]), 429);
}

#[test]
#[ignore = "needs Envoy: test.sh"]
fn without_the_service_the_failure_mode_decides() {
    let mut service = Service::start(&rules(), &[]);
    let (open, closed) =
        (Envoy::start(&[service.grpc], false), Envoy::start(&[service.grpc], true));
    for envoy in [&open, &closed] {
        assert_eq!(envoy.status("/", &[]), 200);
        assert_eq!(envoy.status("/", &[("user-agent", "bot")]), 429);
    }
    service.process.kill();
    assert_eq!(open.status("/", &[("user-agent", "bot")]), 200);
    assert_eq!(closed.status("/", &[]), 500);
}

#[test]
#[ignore = "needs Envoy: test.sh"]
fn without_redis_the_failure_mode_decides() {
    let mut redis = Server::start();
    let service = Service::start(&rules(), &[("REDIS_URL", &redis.url())]);
    let (open, closed) =
        (Envoy::start(&[service.grpc], false), Envoy::start(&[service.grpc], true));
    assert_eq!((open.status("/", &[]), closed.status("/", &[])), (200, 200));
    redis.kill();
    assert_eq!((open.status("/", &[]), closed.status("/", &[])), (200, 500));
    redis.restart();
    until("it decides again", || closed.status("/", &[]) == 200);
}

#[test]
#[ignore = "needs Envoy: test.sh"]
fn two_services_over_one_redis_are_one_limit() {
    let redis = Server::start();
    let url = redis.url();
    let variables = [("REDIS_URL", &*url), ("REDIS_TIMEOUT", "30")];
    let services = [0, 1].map(|_| Service::start(&rules(), &variables));
    let envoy = Envoy::start(&services.each_ref().map(|one| one.grpc), false);
    let statuses = (0..20).map(|_| envoy.status("/", &[("x-user", "alice")]));
    assert_eq!(statuses.filter(|status| *status == 200).count(), 10);
    let series = "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}";
    assert!(services.iter().all(|one| one.metric(series) > 0), "both were asked");
}
