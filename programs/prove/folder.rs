//! The folder of the traces, which no other user of the machine reads, or puts links into.

use std::fs::{self, DirBuilder};
use std::path::{Path, PathBuf};

/// A new folder among the temporary files, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, String> {
        let name = format!("sluice-prove-{:016x}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Fails if anything is there, a link too.
        let made = builder.create(&path);
        made.map_err(|error| format!("the folder {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_and_private_and_goes_away() {
        let [one, other] = [Folder::new().unwrap(), Folder::new().unwrap()];
        assert_ne!(one.path(), other.path());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(one.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        let path = one.path().to_owned();
        fs::write(path.join("trace"), "x").unwrap();
        drop(one);
        assert!(!path.exists());
    }
}
