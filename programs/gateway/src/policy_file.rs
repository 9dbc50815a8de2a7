//! The policy file, which the gate loads: at the start, when it changes, and at SIGHUP.

use std::path::PathBuf;

use serving::reload::Reload;

use crate::gate::Gate;

/// The table in force where `POLICIES` is absent.
pub(crate) const DEFAULT: &str = include_str!("../policies.toml");

/// Hands tables from a file to the gate. Clones share what was wrong with the last one.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFile(Reload);

impl PolicyFile {
    /// Reads the file and goes on watching it.
    ///
    /// # Errors
    ///
    /// If the table cannot be in force.
    pub(crate) async fn open(path: Option<PathBuf>, gate: Gate) -> Result<Self, String> {
        let loads = gate.clone();
        let this = Self(Reload::new("gateway", &[".toml"], move |files| {
            let load = |(path, text): &(PathBuf, String)| {
                loads.load(text).map_err(|error| format!("{}: {error}", path.display()))
            };
            files.iter().try_for_each(load)
        }));
        match path {
            Some(path) if path.is_dir() => {
                return Err(format!("{} cannot be read: it is no regular file", path.display()));
            }
            Some(path) => this.0.open(path).await?,
            None => {
                Reload::ignore_hangups()?;
                gate.load(DEFAULT).map_err(|error| format!("the default policies: {error}"))?;
            }
        }
        Ok(this)
    }

    /// Returns what is wrong with the file, while an older table is in force.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.0.wrong()
    }
}
