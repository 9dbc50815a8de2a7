//! The table in force: the rules of all domains.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::rules::Domain;

#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    domains: HashMap<String, Domain>,
}

impl RuleTable {
    /// Reads files of one domain each.
    ///
    /// # Errors
    ///
    /// A text that names the file, and its line.
    pub(crate) fn read(files: &[(PathBuf, String)]) -> Result<Self, String> {
        let mut domains = HashMap::new();
        let mut places: HashMap<String, &Path> = HashMap::new();
        for (path, text) in files {
            let wrong = |why| format!("{}: {why}", path.display());
            let domain = Domain::read(text).map_err(wrong)?;
            let name = domain.name.to_string();
            if let Some(other) = places.insert(name.clone(), path) {
                let other = other.display();
                return Err(wrong(format!("line 1: the domain `{name}` stands in {other} too")));
            }
            domains.insert(name, domain);
        }
        Ok(Self { domains })
    }

    pub(crate) fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// The rules, one a line, sorted.
    pub(crate) fn dump(&self) -> String {
        let mut domains: Vec<_> = self.domains.values().collect();
        domains.sort_by_key(|domain| &domain.name);
        domains.into_iter().map(Domain::dump).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<RuleTable, String> {
        let file = |(name, text): &(&str, &str)| (PathBuf::from(name), (*text).to_owned());
        RuleTable::read(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn a_domain_stands_in_one_file_and_a_broken_file_refuses_all() {
        assert!(read(&[]).unwrap().domain("x").is_none());
        let both = read(&[("a.yaml", "domain: x"), ("b.yaml", "domain: y")]).unwrap();
        assert!(both.domain("x").is_some() && both.domain("y").is_some());
        let twice = read(&[("a.yaml", "domain: x"), ("b.yaml", "domain: x")]).unwrap_err();
        assert_eq!(twice, "b.yaml: line 1: the domain `x` stands in a.yaml too");
        let broken = read(&[("a.yaml", "domain: x"), ("b.yaml", "what: x")]).unwrap_err();
        assert_eq!(broken, "b.yaml: line 1: the key `what` is unknown");
    }
}
