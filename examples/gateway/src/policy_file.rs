//! The policy file: read at the start, when it changes, and at SIGHUP.
//!
//! It is read, and its table is built, beside the tasks of the runtime: a file system that hangs,
//! or a large table, delays neither requests nor the end of the process.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking as beside};
use tokio::time::timeout;

use crate::gate::Gate;

/// The default table: in force where neither `POLICIES` nor the file beside the manifest is there.
const DEFAULT: &str = include_str!("../policies.toml");
const DEFAULT_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies.toml");

/// The time that the file must be left alone before it is read, so that it is read whole.
const QUIET: Duration = Duration::from_millis(50);
/// The longest time that a file is left alone which is written again and again.
const LONGEST_QUIET: Duration = Duration::from_millis(200);
/// The pause between two looks at the file without an event.
const LOOK: Duration = Duration::from_millis(400);
/// The time that a file of no bytes is left alone: most editors empty a file before they write it.
const EMPTY: Duration = Duration::from_millis(150);
/// The time that loading may take before that is reported.
const SLOW: Duration = Duration::from_secs(5);
/// The most bytes of a file: some 100,000 policies.
const MOST: u64 = 16 << 20;

/// Hands tables from a file to the gate. Clones share what was wrong with the last one.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFile {
    gate: Gate,
    wrong: Arc<Mutex<Option<String>>>,
}

impl PolicyFile {
    /// Reads the file and goes on watching it.
    ///
    /// # Errors
    ///
    /// If the table cannot be in force.
    pub(crate) async fn open(path: Option<PathBuf>, gate: Gate) -> Result<Self, Box<dyn Error>> {
        let this = Self { gate, wrong: Arc::default() };
        // From here on SIGHUP ends no process.
        let hangup = signal(SignalKind::hangup())?;
        let path =
            path.or_else(|| Some(DEFAULT_PATH.into()).filter(|path: &PathBuf| path.exists()));
        let Some(path) = path else {
            this.gate.load(DEFAULT).map_err(|error| format!("the default policies: {error}"))?;
            return Ok(this);
        };
        let loading = this.clone();
        let loaded = beside(move || {
            // Watched before it is read, so that no change falls between.
            let changes = Changes::watch(&path)?;
            let text = read(&path)?;
            loading.load(&path, &text)?;
            Ok::<_, String>((path, text, changes))
        });
        let (path, text, changes) = loaded.await??;
        tokio::spawn(this.clone().follow(path, text.into(), changes, hangup));
        Ok(this)
    }

    /// Returns what is wrong with the file, while an older table is in force.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn follow(
        self,
        path: PathBuf,
        mut last: Arc<str>,
        mut changes: Changes,
        mut hangup: Signal,
    ) {
        loop {
            let is_asked = tokio::select! {
                _ = hangup.recv() => true,
                changed = changes.next() => match changed {
                    true => false,
                    false => return,
                },
            };
            let this = self.clone();
            let (of, before) = (path.clone(), Arc::clone(&last));
            let loading = beside(move || this.load_again(&of, &before, is_asked));
            match self.awaited(&path, loading).await {
                Ok(Some(text)) => {
                    last = text.into();
                    self.report(&path, None);
                }
                Ok(None) => {}
                Err(error) => self.report(&path, Some(error)),
            }
        }
    }

    /// Waits for a loading, and says when it takes long.
    async fn awaited<T>(
        &self,
        path: &Path,
        mut loading: JoinHandle<Result<T, String>>,
    ) -> Result<T, String> {
        let ended = match timeout(SLOW, &mut loading).await {
            Ok(ended) => ended,
            Err(_) => {
                let error = format!("{} is being read for more than {SLOW:?}", path.display());
                self.report(path, Some(error));
                loading.await
            }
        };
        ended.unwrap_or_else(|error| Err(format!("{} cannot be read: {error}", path.display())))
    }

    /// Reads the file, and puts its table into force. `None` if it is the one in force.
    fn load_again(
        &self,
        path: &Path,
        last: &str,
        is_asked: bool,
    ) -> Result<Option<String>, String> {
        let mut text = read(path);
        if text.as_ref().is_ok_and(String::is_empty) {
            std::thread::sleep(EMPTY);
            text = read(path);
        }
        let text = text?;
        // An event may concern another file of the folder.
        if !is_asked && self.wrong().is_none() && text == last {
            return Ok(None);
        }
        self.load(path, &text)?;
        Ok(Some(text))
    }

    fn load(&self, path: &Path, text: &str) -> Result<(), String> {
        self.gate.load(text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Says each error once, and once that it is repaired.
    fn report(&self, path: &Path, error: Option<String>) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match &error {
            Some(error) if wrong.as_ref() != Some(error) => {
                eprintln!("gateway: {error}; the table from before stays in force");
            }
            Some(_) => {}
            None => eprintln!("gateway: {} is in force", path.display()),
        }
        *wrong = error;
    }
}

fn read(path: &Path) -> Result<String, String> {
    let wrong = |why: &str| format!("{} cannot be read: {why}", path.display());
    let open = || {
        // Without waiting for somebody who writes, should it be a pipe.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let kind = file.metadata()?;
        Ok::<_, std::io::Error>((file, kind))
    };
    let (file, kind) = open().map_err(|error| wrong(&error.to_string()))?;
    if !kind.is_file() {
        return Err(wrong("it is no regular file"));
    }
    let mut text = String::new();
    let bytes = file.take(MOST + 1).read_to_string(&mut text);
    let bytes = bytes.map_err(|error| wrong(&error.to_string()))?;
    match u64::try_from(bytes).is_ok_and(|bytes| bytes <= MOST) {
        true => Ok(text),
        false => Err(wrong(&format!("it holds more than {} MiB", MOST >> 20))),
    }
}

/// Says when the file, or something in its folder, has changed.
struct Changes {
    path: PathBuf,
    /// The file as it was when it was last read.
    seen: Option<Stamp>,
    events: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

/// The marks of a version of a file: its place, its length and the time of its change.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

async fn stamp_beside(path: &Path) -> Option<Stamp> {
    let path = path.to_owned();
    beside(move || stamp(&path)).await.ok().flatten()
}

impl Changes {
    /// Watches folders, since a file that is renamed over another is another file. A link is
    /// watched in its own folder and in that of its target.
    fn watch(path: &Path) -> Result<Self, String> {
        let (sender, events) = mpsc::channel(1);
        let wrong = |error| format!("{} cannot be watched: {error}", path.display());
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Reading the file is no change of it.
                if event.is_ok_and(|event| event.kind.is_access()) {
                    return;
                }
                // One that waits is enough.
                let _ = sender.try_send(());
            })
            .map_err(wrong)?;
        let mut folders = vec![folder(path)];
        folders.extend(fs::canonicalize(path).ok().as_deref().map(folder));
        folders.dedup();
        for folder in folders {
            watcher.watch(&folder, RecursiveMode::NonRecursive).map_err(wrong)?;
        }
        // A file that is mounted alone changes without its folder.
        let _ = watcher.watch(path, RecursiveMode::NonRecursive);
        Ok(Self { path: path.to_owned(), seen: stamp(path), events, _watcher: watcher })
    }

    /// Waits for a change, and then until nothing changes any more.
    async fn next(&mut self) -> bool {
        tokio::select! {
            event = self.events.recv() => if event.is_none() {
                return false;
            },
            () = differs(&self.path, self.seen) => {}
        }
        let quiet = async { while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {} };
        let _ = timeout(LONGEST_QUIET, quiet).await;
        self.seen = stamp_beside(&self.path).await;
        true
    }
}

/// Waits until the file is another one. Not every change is an event: the folder may have been
/// replaced, the link may lead elsewhere by now, and some file systems report nothing.
async fn differs(path: &Path, seen: Option<Stamp>) {
    while stamp_beside(path).await == seen {
        tokio::time::sleep(LOOK).await;
    }
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
