//! The cost of a decision as work grows: more keys, tasks, quotas, processes on one server, and
//! entries of a log. Cases that can be interleaved are, in rounds whose median counts.
//!
//! With a path as its argument it also draws the lines, and writes a link with the picture for
//! rustdoc: `-- growth docs/growth.svg`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::task::JoinSet;
use tower_sluice::algorithm::{InLua, TokenBucket};
use tower_sluice::{Charge, Limiter, Pool, Quota, Redis};

use crate::each_algorithm::log;
use crate::growth_chart::{Panel, draw};
use crate::measure::{Cost, median, processor};
use crate::site::{self, KEYS, Site};

const ROUNDS: usize = 5;
const TASKS: usize = 256;
const DECISIONS: usize = 60_000;

/// The time for which the processes on one server ask.
const TOGETHER: Duration = Duration::from_secs(2);

pub(crate) fn run(chart: Option<&str>) {
    let panels = [by_keys(), by_tasks(), by_quotas(), by_processes(), by_log()];
    on_the_wire();
    ten_million_keys();
    if let Some(path) = chart {
        draw(path, &panels).expect("a chart");
        let picture = BASE64_STANDARD.encode(fs::read(path).expect("a picture"));
        let url = path.replace(".svg", ".url");
        // rustdoc has no files of its own, so the picture is in the link.
        let link = format!("[growth-picture]: data:image/svg+xml;base64,{picture}\n");
        fs::write(&url, link).expect("written");
        println!("wrote {path} and {url}");
    }
}

/// It admits all. A first charge of `DEBT` keeps a key alive for ten minutes.
fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(1_000_000).burst(1_000_000_000))
}

const DEBT: u64 = 600_000_000;

/// A server with so many keys, which stay, and its limiter.
fn filled(keys: usize) -> (Site, Redis<TokenBucket>) {
    let site = Site::with_keys(keys);
    let limiter = site.limiter(bucket());
    site.charge_all(&limiter, DEBT);
    (site, limiter)
}

fn print(by: &str, at: usize, cost: &Cost) {
    let Cost { per_second, p50_us, p99_us, client_us, server_us, .. } = cost;
    println!(
        "growth by={by} at={at} per_second={per_second:.0} p50_us={p50_us:.0} p99_us={p99_us:.0} \
         client_us={client_us:.2} server_us={server_us:.2}"
    );
}

/// Prints a line for each case, and returns decisions per second.
fn compare(
    by: &'static str,
    title: &'static str,
    cases: &[usize],
    measure: impl Fn(usize) -> Cost,
) -> Panel {
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (costs, case) in rounds.iter_mut().zip(cases) {
            costs.push(measure(*case));
        }
    }
    let mut points = Vec::new();
    for (costs, case) in rounds.iter().zip(cases) {
        let cost = median(costs);
        print(by, *case, &cost);
        points.push((*case, cost.per_second));
    }
    Panel { title, unit: "decisions per second", points }
}

fn by_keys() -> Panel {
    let cases = [1_000, 10_000, 100_000, 1_000_000];
    let sites = cases.map(filled);
    let panel = compare("keys", "keys", &cases, |keys| {
        let (site, limiter) = sites.iter().find(|(site, _)| site.keys.len() == keys).expect("one");
        site.charge(limiter, TASKS, DECISIONS, keys)
    });
    for (site, _) in &sites {
        site.expect_keys(site.keys.len());
    }
    panel
}

fn by_tasks() -> Panel {
    let (site, limiter) = filled(KEYS);
    compare("tasks", "tasks that ask at once", &[1, 4, 16, 64, 256, 1_024, 4_096], |tasks| {
        let decisions = if tasks < 16 { DECISIONS / 10 } else { DECISIONS };
        site.charge(&limiter, tasks, decisions, KEYS)
    })
}

fn by_quotas() -> Panel {
    let site = Site::new();
    let one = site.limiter(bucket());
    let two = site.limiter((bucket(), bucket()));
    let four = site.limiter((bucket(), bucket(), bucket(), bucket()));
    let eight = site.limiter((
        bucket(),
        bucket(),
        bucket(),
        bucket(),
        bucket(),
        bucket(),
        bucket(),
        bucket(),
    ));
    compare("quotas", "quotas of a charge", &[1, 2, 4, 8], |quotas| match quotas {
        1 => warm(&site, &one),
        2 => warm(&site, &two),
        4 => warm(&site, &four),
        _ => warm(&site, &eight),
    })
}

fn warm<A: InLua>(site: &Site, limiter: &Redis<A>) -> Cost {
    site.charge(limiter, TASKS, DECISIONS, 10_000)
}

/// Time in the script for an admitted charge that is alone in its call, over one key.
fn by_log() -> Panel {
    let site = Site::new();
    let time = |entries: usize| (entries, log(&site, entries)[0]);
    let points = [10, 100, 1_000, 10_000, 100_000].map(time).to_vec();
    Panel { title: "entries of a sliding log", unit: "us in the script", points }
}

/// Processes that ask as fast as they can, 256 tasks each. They share the machine's cores with the
/// server.
fn by_processes() -> Panel {
    let (site, _) = filled(KEYS);
    let cases = [1, 2, 4, 8];
    let mut points = Vec::new();
    for processes in cases {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| together(&site, processes)).collect();
        let Cost { per_second, client_us, server_us, .. } = median(&rounds);
        println!(
            "growth by=processes at={processes} per_second={per_second:.0} \
             client_us={client_us:.2} server_us={server_us:.2}"
        );
        points.push((processes, per_second));
    }
    Panel { title: "processes on one server", unit: "decisions per second", points }
}

fn together(site: &Site, processes: usize) -> Cost {
    let mut children: Vec<_> = (0..processes).map(|_| Process::start(site)).collect();
    let server = processor(site.server.id());
    children.iter_mut().for_each(Process::begin);
    let ends: Vec<_> = children.into_iter().map(Process::end).collect();
    let decisions: f64 = ends.iter().map(|(decisions, _)| decisions).sum();
    let client: f64 = ends.iter().map(|(_, client)| client).sum();
    let server = processor(site.server.id()) - server;
    Cost {
        per_second: decisions / TOGETHER.as_secs_f64(),
        client_us: client * 1e6 / decisions,
        server_us: server.as_secs_f64() * 1e6 / decisions,
        ..Cost::default()
    }
}

/// One of several processes: it runs [`worker`], and ends by itself.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(site: &Site) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["growth-worker", &site.server.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut ready = String::new();
        output.read_line(&mut ready).expect("a line when it is connected");
        Self { child, output }
    }

    /// Closes its input, which it takes for the sign to begin.
    fn begin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The decisions that it made, and the seconds of processor time that it took.
    fn end(mut self) -> (f64, f64) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of figures");
        self.child.wait().expect("it ends by itself");
        let mut figures = line.split_whitespace().map(|figure| figure.parse().expect("a number"));
        (figures.next().expect("decisions"), figures.next().expect("seconds"))
    }
}

/// One of several processes that share a server.
pub(crate) fn worker(url: &str) {
    let (runtime, keys) = (site::runtime(), site::keys(KEYS));
    let limiter = site::limiter(&Pool::connect(url).expect("an address"), bucket());
    let _ = runtime.block_on(limiter.check(&Charge::new("first"))).expect("a decision");
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the end of the input");
    let (begun, spent) = (Instant::now(), processor(std::process::id()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, keys) = (limiter.clone(), Arc::clone(&keys));
        let asking = async move {
            let mut random = fastrand::Rng::with_seed(task as u64);
            let mut decisions = 0;
            while begun.elapsed() < TOGETHER {
                let charge = Charge::new(Arc::clone(&keys[random.usize(..keys.len())]));
                drop(limiter.check(&charge).await.expect("a decision"));
                decisions += 1;
            }
            decisions
        };
        tasks.spawn_on(asking, runtime.handle());
    }
    let decisions: usize = runtime.block_on(tasks.join_all()).into_iter().sum();
    let spent = processor(std::process::id()) - spent;
    println!("{decisions} {}", spent.as_secs_f64());
}

/// The bytes of a decision on the wire, both ways, by the server's own account.
fn on_the_wire() {
    let (site, limiter) = filled(KEYS);
    let cases = [("one_in_a_call", 1, KEYS), ("64_in_a_call", TASKS, KEYS), ("hot", TASKS, 1)];
    // What asking the server for its account adds to it.
    let (first, second) = (site.network(), site.network());
    let own = [second[0] - first[0], second[1] - first[1]];
    for (case, tasks, keys) in cases {
        let decisions = if tasks == 1 { 5_000 } else { DECISIONS / TASKS * TASKS };
        let before = site.network();
        site.charge(&limiter, tasks, decisions, keys);
        let after = site.network();
        let each = |way: usize| (after[way] - before[way] - own[way]) / decisions as f64;
        println!("growth wire={case} to_server={:.1} to_client={:.1}", each(0), each(1));
    }
}

/// Ten million keys: what they take, and what a decision then costs.
fn ten_million_keys() {
    const MANY: usize = 10_000_000;
    let site = Site::with_keys(MANY);
    let limiter = site.limiter(bucket());
    let empty = site.used_memory();
    site.charge_all(&limiter, DEBT);
    let bytes = site.used_memory() - empty;
    let charge = |_| site.charge(&limiter, TASKS, DECISIONS, MANY);
    let rounds: Vec<_> = (0..ROUNDS).map(charge).collect();
    print("keys", MANY, &median(&rounds));
    site.expect_keys(MANY);
    println!("growth keys={MANY} bytes={bytes:.0} bytes_of_a_key={:.0}", bytes / MANY as f64);
}
