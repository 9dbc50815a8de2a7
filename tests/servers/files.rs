//! Files that a test writes, in a folder of its own.

use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::scratch;

/// Files of a test, removed when it ends.
#[derive(Debug)]
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Self {
        Self::under(&scratch())
    }

    /// Files in memory, where the system has such a folder: no disk makes who writes them wait.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory) } else { Self::new() }
    }

    fn under(parent: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(parent).expect("a folder");
        // A killed process with the same id may have left folders.
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("tower-sluice-{}-{number}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
            }
        }
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    }
}

impl Deref for Files {
    type Target = Path;

    /// Their folder.
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
