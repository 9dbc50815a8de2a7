//! Files that a program reads at the start, when they change, and at SIGHUP.
//!
//! They are read, and taken over, beside the tasks of the runtime: a file system that hangs, or a
//! large file, delays neither requests nor the end of the process.

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

/// The time that a file must be left alone before it is read, so that it is read whole.
const QUIET: Duration = Duration::from_millis(50);
/// The longest time that a file is left alone which is written again and again.
const LONGEST_QUIET: Duration = Duration::from_millis(200);
/// The pause between two looks at the files without an event.
const LOOK: Duration = Duration::from_millis(400);
/// The time that a file of no bytes is left alone: most editors empty a file before they write it.
const EMPTY: Duration = Duration::from_millis(150);
/// The time that loading may take before that is reported.
const SLOW: Duration = Duration::from_secs(5);
/// The most bytes of a file.
const MOST: u64 = 16 << 20;

/// The path of a file, and what it holds.
pub type Text = (PathBuf, String);

/// Takes over what files hold, or says why not, with the name of the file.
pub type Load = dyn Fn(&[Text]) -> Result<(), String> + Send + Sync;

/// A file, or all files of a folder that end alike, which are loaded again when they change. Clones
/// share what was wrong with the last ones.
#[derive(Clone)]
pub struct Reload {
    program: &'static str,
    endings: &'static [&'static str],
    load: Arc<Load>,
    wrong: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload").field("wrong", &self.wrong()).finish_non_exhaustive()
    }
}

impl Reload {
    /// Hands files to `load`. Lines on stderr begin with the name of the program. Of a folder,
    /// those files count that end with one of `endings` and do not begin with a point.
    pub fn new(
        program: &'static str,
        endings: &'static [&'static str],
        load: impl Fn(&[Text]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { program, endings, load: Arc::new(load), wrong: Arc::default() }
    }

    /// Loads what is at `path` and goes on watching it. From here on SIGHUP ends no process.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded.
    pub async fn open(&self, path: PathBuf) -> Result<(), String> {
        let hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
        let loading = self.clone();
        let loaded = beside(move || {
            // Watched before it is read, so that no change falls between.
            let changes = FileChanges::watch(&path, loading.endings)?;
            let files = loading.read(&path)?;
            (loading.load)(&files)?;
            Ok::<_, String>((path, files, changes))
        });
        let (path, files, changes) = loaded.await.map_err(|error| error.to_string())??;
        tokio::spawn(self.clone().follow(path, files.into(), changes, hangup));
        Ok(())
    }

    /// Keeps SIGHUP from ending the process, where no file is there to be read again.
    ///
    /// # Errors
    ///
    /// If the system has no signals to hand out.
    pub fn ignore_hangups() -> Result<(), String> {
        signal(SignalKind::hangup()).map(drop).map_err(|error| error.to_string())
    }

    /// Returns what is wrong with the files, while older ones are in force.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn follow(
        self,
        path: PathBuf,
        mut last: Arc<[Text]>,
        mut changes: FileChanges,
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
                Ok(Some(files)) => {
                    last = files.into();
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

    /// Reads the files, and puts them into force. `None` if they are the ones in force.
    fn load_again(
        &self,
        path: &Path,
        last: &[Text],
        is_asked: bool,
    ) -> Result<Option<Vec<Text>>, String> {
        let mut files = self.read(path);
        let is_empty = |files: &Vec<Text>| files.iter().any(|(_, text)| text.is_empty());
        if files.as_ref().is_ok_and(is_empty) {
            std::thread::sleep(EMPTY);
            files = self.read(path);
        }
        let files = files?;
        // An event may concern another file of the folder.
        if !is_asked && self.wrong().is_none() && files == last {
            return Ok(None);
        }
        (self.load)(&files)?;
        Ok(Some(files))
    }

    /// Says each error once, and once that it is repaired.
    fn report(&self, path: &Path, error: Option<String>) {
        let program = self.program;
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match &error {
            Some(error) if wrong.as_ref() != Some(error) => {
                eprintln!("{program}: {error}; the table from before stays in force");
            }
            Some(_) => {}
            None => eprintln!("{program}: {} is in force", path.display()),
        }
        *wrong = error;
    }

    fn read(&self, path: &Path) -> Result<Vec<Text>, String> {
        let read = |path: PathBuf| {
            let text = read(&path)?;
            Ok((path, text))
        };
        match path.is_dir() {
            true => files_of(path, self.endings)?.into_iter().map(read).collect(),
            false => Ok(vec![read(path.to_owned())?]),
        }
    }
}

/// The files of a folder that end so, sorted; no folders, and none that begins with a point.
/// Without any, a table would be empty, and limit nothing.
fn files_of(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, String> {
    let wrong = |error| format!("{} cannot be read: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if endings.iter().any(|ending| name.ends_with(ending))
            && !name.starts_with('.')
            && !path.is_dir()
        {
            files.push(path);
        }
    }
    if files.is_empty() {
        let endings = endings.join(" or ");
        return Err(format!("{} has no file that ends in {endings}", folder.display()));
    }
    files.sort();
    Ok(files)
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

/// Says when a file, or something in its folder, has changed.
struct FileChanges {
    path: PathBuf,
    endings: &'static [&'static str],
    /// The files as they were when they were last read.
    seen: Vec<Stamp>,
    events: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

/// The marks of a version of a file: its name, its place, its length and the time of its change.
type Stamp = (PathBuf, Option<(u64, u64, u64, i64, i64)>);

fn stamps(path: &Path, endings: &[&str]) -> Vec<Stamp> {
    let files = match path.is_dir() {
        true => files_of(path, endings).unwrap_or_default(),
        false => vec![path.to_owned()],
    };
    let stamp = |path: PathBuf| {
        let file = fs::metadata(&path).ok();
        let marks = |file: fs::Metadata| {
            (file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec())
        };
        (path, file.map(marks))
    };
    files.into_iter().map(stamp).collect()
}

async fn stamps_beside(path: &Path, endings: &'static [&'static str]) -> Vec<Stamp> {
    let path = path.to_owned();
    beside(move || stamps(&path, endings)).await.unwrap_or_default()
}

impl FileChanges {
    /// Watches folders, since a file that is renamed over another is another file. A link is
    /// watched in its own folder and in that of its target.
    fn watch(path: &Path, endings: &'static [&'static str]) -> Result<Self, String> {
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
        // A file that is mounted alone changes without its folder. A folder has files of its own.
        let _ = watcher.watch(path, RecursiveMode::NonRecursive);
        let seen = stamps(path, endings);
        Ok(Self { path: path.to_owned(), endings, seen, events, _watcher: watcher })
    }

    /// Waits for a change, and then until nothing changes any more.
    async fn next(&mut self) -> bool {
        tokio::select! {
            event = self.events.recv() => if event.is_none() {
                return false;
            },
            () = differs(&self.path, self.endings, &self.seen) => {}
        }
        let quiet = async { while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {} };
        let _ = timeout(LONGEST_QUIET, quiet).await;
        self.seen = stamps_beside(&self.path, self.endings).await;
        true
    }
}

/// Waits until a file is another one. Not every change is an event: the folder may have been
/// replaced, the link may lead elsewhere by now, and some file systems report nothing.
async fn differs(path: &Path, endings: &'static [&'static str], seen: &[Stamp]) {
    while stamps_beside(path, endings).await == seen {
        tokio::time::sleep(LOOK).await;
    }
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
