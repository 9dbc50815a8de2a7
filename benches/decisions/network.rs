//! Decisions over a network: a relay delays all bytes, on their way there and back. Most
//! applications have such a network, and a call on loopback takes a tenth of its time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Pool, Quota};

use crate::against_redis::{BURST, DEBT, ask_lean, lean_call, load_lean};
use crate::measure::{median, median_of};
use crate::site::{self, KEYS, Site};

const ROUNDS: usize = 7;
const TASKS: [usize; 5] = [1, 16, 64, 256, 1_024];

/// Of each direction.
const DELAY: Duration = Duration::from_micros(250);

/// Prints a line for each number of tasks.
pub(crate) fn run() {
    let site = Site::new();
    let address = format!("redis://{}", relay_to(site.server.port()));
    let bucket = TokenBucket::new(Quota::per_second(1_000_000).burst(BURST));
    let limiter = {
        // The pool's tasks run on the client thread.
        let _guard = site.runtime.enter();
        site::limiter(&Pool::connect(&address).expect("an address"), bucket)
    };
    site.charge_all(&limiter, DEBT);
    let (connection, digest) = site.runtime.block_on(async {
        let client = redis::Client::open(address).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a server");
        let digest = load_lean(&mut connection).await;
        (connection, digest)
    });
    let bare = move |key: Arc<str>| ask_lean(connection.clone(), lean_call(&digest, &key, 1));
    for tasks in TASKS {
        let decisions = if tasks == 1 { 1_000 } else { 1_000 * tasks.min(60) };
        let [mut ours, mut theirs] = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            theirs.push(site.drive(tasks, decisions, KEYS, bare.clone()));
            ours.push(site.charge(&limiter, tasks, decisions, KEYS));
        }
        let each = |of: fn(&crate::measure::Cost) -> f64| {
            median_of(ours.iter().zip(&theirs).map(|(one, other)| of(one) / of(other)))
        };
        let (own, other) = (median(&ours), median(&theirs));
        println!(
            "bench case=network tasks={tasks} ratio={:.2} p50_ratio={:.2} p50_us={:.0} p99_us={:.0} \
             evalsha_p50_us={:.0} evalsha_p99_us={:.0} per_second={:.0}",
            each(|cost| cost.per_second),
            each(|cost| cost.p50_us),
            own.p50_us,
            own.p99_us,
            other.p50_us,
            other.p99_us,
            own.per_second,
        );
    }
}

/// Starts a relay to a server, which lasts as long as the process. Returns its address.
fn relay_to(port: u16) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for caller in listener.incoming() {
            let caller = caller.expect("a caller");
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
            for (from, to) in [(&caller, &server), (&server, &caller)] {
                to.set_nodelay(true).expect("a socket");
                delay(from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            }
        }
    });
    address
}

/// Passes bytes on when their time has come.
fn delay(mut from: TcpStream, mut to: TcpStream) {
    let (sender, due) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let passed = sender.send((Instant::now() + DELAY, bytes[..length].to_vec()));
            if passed.is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in due {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
    });
}
