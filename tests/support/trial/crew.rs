//! The crew: worker processes, each with a pool of its own. Those of a test are its very binary.
//!
//! A pipe starts them together: each says that it is ready and waits for a line. Each writes the
//! answers that it got to a file.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::task::JoinSet;
use tower_sluice::Pool;

use super::algorithms::{Algorithm, Site};
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
    pub time: Duration,
}

impl Size {
    pub fn from_env() -> Self {
        Self {
            processes: number("ORACLE_PROCESSES", 4),
            tasks: number("ORACLE_TASKS", 32),
            time: Duration::from_secs_f64(number("ORACLE_SECONDS", 1.0)),
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

/// Runs a crew of this very binary against the server at `url`. Returns how many calls it began,
/// and a row for each.
pub fn run(algorithm: &Algorithm, workload: Workload, size: Size, url: &str) -> (usize, Vec<Row>) {
    let worker = || {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["worker", "--exact", "--ignored", "--nocapture", "--quiet"]);
        command
    };
    run_with(&worker, &scratch(), "", algorithm, workload, size, url)
}

/// The same by workers of the caller's own: `worker` is the command of a program that calls
/// [`work`], and `folder` takes its traces. All keys begin with `prefix`, unless that is empty.
///
/// # Panics
///
/// If a worker fails, or after [`end_all`].
pub fn run_with(
    worker: &dyn Fn() -> Command,
    folder: &Path,
    prefix: &str,
    algorithm: &Algorithm,
    workload: Workload,
    size: Size,
    url: &str,
) -> (usize, Vec<Row>) {
    let name = format!("{}-{}", algorithm.name, workload.name());
    let start = |number: u16| {
        let process = std::process::id();
        let trace = folder.join(format!("oracle-{process}-{name}-{number}.trace"));
        let mut command = worker();
        command
            .env("ORACLE_ROLE", format!("{} {}", algorithm.name, workload.name()))
            .env("ORACLE_WORKER", number.to_string())
            .env("ORACLE_URL", url)
            .env("ORACLE_PREFIX", prefix)
            .env("ORACLE_TRACE", &trace)
            .env("ORACLE_PROCESSES", size.processes.to_string())
            .env("ORACLE_TASKS", size.tasks.to_string())
            .env("ORACLE_SECONDS", size.time.as_secs_f64().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Worker::start(command, trace)
    };
    let mut crew: Vec<_> = (0..size.processes).map(start).collect();
    crew.iter_mut().for_each(Worker::wait_until_ready);
    crew.iter_mut().for_each(Worker::go);
    let traces = crew.into_iter().map(Worker::finish);
    traces.fold((0, Vec::new()), |(calls, mut rows), (more_calls, more_rows)| {
        rows.extend(more_rows);
        (calls + more_calls, rows)
    })
}

/// The workers that run. `None` once they were all ended: then no further one starts.
static CREW: Mutex<Option<Vec<Arc<Mutex<Child>>>>> = Mutex::new(Some(Vec::new()));

/// Ends all workers of this process, and lets no further one start.
pub fn end_all() {
    let crew = CREW.lock().unwrap_or_else(PoisonError::into_inner).take();
    crew.unwrap_or_default().iter().for_each(end);
}

fn end(child: &Arc<Mutex<Child>>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    let _ = child.wait();
}

/// A process of the crew, ended when it is dropped.
struct Worker {
    child: Arc<Mutex<Child>>,
    go: ChildStdin,
    says: BufReader<ChildStdout>,
    trace: PathBuf,
}

impl Worker {
    fn start(mut command: Command, trace: PathBuf) -> Self {
        let mut crew = CREW.lock().unwrap_or_else(PoisonError::into_inner);
        let crew = crew.as_mut().expect("workers may start");
        let mut child = command.spawn().expect("a worker");
        let go = child.stdin.take().expect("a pipe");
        let says = BufReader::new(child.stdout.take().expect("a pipe"));
        let child = Arc::new(Mutex::new(child));
        crew.retain(|child| Arc::strong_count(child) > 1);
        crew.push(Arc::clone(&child));
        Self { child, go, says, trace }
    }

    fn wait_until_ready(&mut self) {
        let said = self.says.by_ref();
        let ready = said.lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "a worker ended before it was ready");
    }

    fn go(&mut self) {
        writeln!(self.go, "go").expect("a worker that listens");
    }

    fn finish(mut self) -> (usize, Vec<Row>) {
        // Read to its end, or a worker that says more could never finish.
        let _ = std::io::copy(&mut self.says, &mut std::io::sink());
        let status = self.child.lock().expect("a worker").wait().expect("a status");
        assert!(status.success(), "a worker failed");
        let bytes = fs::read(&self.trace).expect("a trace");
        let (calls, rows) = bytes.split_first_chunk().expect("a count");
        let (rows, rest) = rows.as_chunks();
        assert!(rest.is_empty(), "a row is cut");
        (usize::from_le_bytes(*calls), rows.iter().map(Row::read).collect())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        end(&self.child);
        let _ = fs::remove_file(&self.trace);
    }
}

/// Does the work of a worker, if this process was started as one, over connections that `pool`
/// makes to an address.
pub fn work(pool: impl Fn(&str) -> Pool) {
    let Ok(role) = std::env::var("ORACLE_ROLE") else { return };
    let var = |name| std::env::var(name).expect("a worker's variable");
    let (algorithm, workload) = role.split_once(' ').expect("an algorithm and a workload");
    let (algorithm, workload) = (Algorithm::called(algorithm), Workload::called(workload));
    let process = var("ORACLE_WORKER").parse().expect("a number");
    let size = Size::from_env();

    let quota = workload.quota(algorithm.quota);
    let (pool, prefix) = (pool(&var("ORACLE_URL")), var("ORACLE_PREFIX"));
    let site = if prefix.is_empty() { Site::new(pool) } else { Site::under(&prefix, pool) };
    let limiter = workload.limiter((algorithm.limiter)(quota, site));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");

    println!("ready");
    let mut line = String::new();
    if stdin().read_line(&mut line).expect("a pipe") == 0 {
        return;
    }
    let end = Instant::now() + size.time;
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
