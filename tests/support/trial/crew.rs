//! The crew: worker processes of this very binary, each with a pool of its own.
//!
//! A pipe starts them together: each says that it is ready and waits for a line. Each writes the
//! answers that it got to a file.

use std::fs;
use std::io::{BufRead, BufReader, Write as _, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::task::JoinSet;

use super::algorithms::{Algorithm, Site, pool};
use super::task::Task;
use super::trace::Row;
use super::workload::Workload;
use crate::scratch;

/// Calls that a run is cut at, for memory's sake.
const MOST_CALLS: usize = 2_000_000;

/// The number of tasks that call, and the time for which they do: from the environment, else what
/// suits a debug build.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub processes: u16,
    pub tasks: u16,
    pub seconds: u16,
}

impl Size {
    pub fn from_env() -> Self {
        Self {
            processes: number("ORACLE_PROCESSES", 4),
            tasks: number("ORACLE_TASKS", 32),
            seconds: number("ORACLE_SECONDS", 1),
        }
    }
}

/// A number from the environment.
pub fn number<T: FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

/// Runs a crew against the server at `url`. Returns how many calls it began, and a row for each.
pub fn run(algorithm: &Algorithm, workload: Workload, size: Size, url: &str) -> (usize, Vec<Row>) {
    let role = format!("{} {}", algorithm.name, workload.name());
    let mut crew: Vec<_> =
        (0..size.processes).map(|number| Worker::start(number, &role, size, url)).collect();
    crew.iter_mut().for_each(Worker::wait_until_ready);
    crew.iter_mut().for_each(Worker::go);
    let traces = crew.into_iter().map(Worker::finish);
    traces.fold((0, Vec::new()), |(calls, mut rows), (more_calls, more_rows)| {
        rows.extend(more_rows);
        (calls + more_calls, rows)
    })
}

/// A process of the crew, ended when it is dropped.
struct Worker {
    child: Child,
    go: ChildStdin,
    trace: PathBuf,
}

impl Worker {
    fn start(number: u16, role: &str, size: Size, url: &str) -> Self {
        let name = role.replace(' ', "-");
        let trace = scratch().join(format!("oracle-{}-{name}-{number}.trace", std::process::id()));
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["worker", "--exact", "--ignored", "--nocapture", "--quiet"])
            .env("ORACLE_ROLE", role)
            .env("ORACLE_WORKER", number.to_string())
            .env("ORACLE_URL", url)
            .env("ORACLE_TRACE", &trace)
            .env("ORACLE_PROCESSES", size.processes.to_string())
            .env("ORACLE_TASKS", size.tasks.to_string())
            .env("ORACLE_SECONDS", size.seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let go = child.stdin.take().expect("a pipe");
        Self { child, go, trace }
    }

    fn wait_until_ready(&mut self) {
        let said = BufReader::new(self.child.stdout.as_mut().expect("a pipe"));
        let ready = said.lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "a worker ended before it was ready");
    }

    fn go(&mut self) {
        writeln!(self.go, "go").expect("a worker that listens");
    }

    fn finish(mut self) -> (usize, Vec<Row>) {
        // Read to its end, or a worker that says more could never finish.
        let _ = std::io::copy(self.child.stdout.as_mut().expect("a pipe"), &mut std::io::sink());
        assert!(self.child.wait().expect("a status").success(), "a worker failed");
        let bytes = fs::read(&self.trace).expect("a trace");
        let (calls, rows) = bytes.split_first_chunk().expect("a count");
        let (rows, rest) = rows.as_chunks();
        assert!(rest.is_empty(), "a row is cut");
        (usize::from_le_bytes(*calls), rows.iter().map(Row::read).collect())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.trace);
    }
}

/// Does the work of a worker, if this process was started as one.
pub fn work() {
    let Ok(role) = std::env::var("ORACLE_ROLE") else { return };
    let var = |name| std::env::var(name).expect("a worker's variable");
    let (algorithm, workload) = role.split_once(' ').expect("an algorithm and a workload");
    let (algorithm, workload) = (Algorithm::called(algorithm), Workload::called(workload));
    let process = var("ORACLE_WORKER").parse().expect("a number");
    let size = Size::from_env();

    let quota = workload.quota(algorithm.quota);
    let site = Site { pool: pool(&var("ORACLE_URL")), clock: None };
    let limiter = workload.limiter((algorithm.limiter)(quota, site));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");

    println!("ready");
    let mut line = String::new();
    if stdin().read_line(&mut line).expect("a pipe") == 0 {
        return;
    }
    let end = Instant::now() + Duration::from_secs(size.seconds.into());
    let most_calls = MOST_CALLS / usize::from(size.processes) / usize::from(size.tasks);
    let mut tasks: JoinSet<Task> = JoinSet::new();
    for number in 0..size.tasks {
        let seed = u64::from(process) << 16 | u64::from(number);
        let mut task = Task {
            process,
            number,
            tasks: size.tasks,
            limiter: limiter.clone(),
            dice: fastrand::Rng::with_seed(seed),
            end,
            most_calls,
            rows: Vec::new(),
            calls: 0,
        };
        tasks.spawn_on(
            async move {
                workload.run(&mut task, quota.burst_size()).await;
                task
            },
            runtime.handle(),
        );
    }
    let tasks = runtime.block_on(tasks.join_all());
    write(Path::new(&var("ORACLE_TRACE")), &tasks);
}

/// The calls begun, then a row for each.
fn write(path: &Path, tasks: &[Task]) {
    let calls: usize = tasks.iter().map(|task| task.calls).sum();
    let mut bytes = calls.to_le_bytes().to_vec();
    for row in tasks.iter().flat_map(|task| &task.rows) {
        row.write(&mut bytes);
    }
    fs::write(path, bytes).expect("a trace");
}
