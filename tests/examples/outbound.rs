//! Two processes of the example call one supplier.

use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Server, example};

#[test]
fn two_clients_together_keep_to_the_suppliers_quota() {
    let server = Server::start();
    let example = example::built("outbound");
    let start = || {
        let mut client = Command::new(&example);
        client.env("REDIS_URL", server.url()).env("CALLS", "6").stdout(Stdio::piped());
        client.spawn().expect("the example")
    };
    let pair = [start(), start()];
    // Both have ended before anything is asserted, so that neither outlives the test.
    let pair = pair.map(|client| client.wait_with_output().expect("ended"));
    let mut calls: Vec<u64> = pair
        .into_iter()
        .flat_map(|output| {
            assert!(output.status.success());
            let said = String::from_utf8(output.stdout).expect("text");
            said.lines()
                .map(|line| line.split(' ').next().unwrap().parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    calls.sort_unstable();
    assert_eq!(calls.len(), 12);
    // Together they wait eleven times 200 ms; alone each would be done after five. The rest is
    // for late starts.
    let took = Duration::from_micros(calls[11] - calls[0]);
    assert!(took >= Duration::from_millis(1_200), "{took:?}");
}
