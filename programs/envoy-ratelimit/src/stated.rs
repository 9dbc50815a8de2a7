//! What a file states, field by field.
//!
//! A map that stands there twice, or that a merge key takes over, fills the same fields again. The
//! peer does the same.

use std::collections::HashMap;
use std::rc::Rc;

use crate::limit::{Counting, Limit, Unit};
use crate::yaml::{NodeKind, Scalar, YamlNode, at};

/// The keys that any map of a file may have, wherever it stands.
const KEYS: [&str; 16] = [
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// The keys of this program's own, which stand under `rate_limit` alone.
const OWN_KEYS: [&str; 2] = ["algorithm", "burst"];

/// Refuses keys that no map of such a file has, lists of anything but maps, and fractions.
fn check_keys(node: &YamlNode, within: &str) -> Result<(), String> {
    let mut last: HashMap<String, Rc<YamlNode>> = HashMap::new();
    node.entries(&mut |key, value| {
        let NodeKind::Scalar { text, value: Scalar::Text } = &key.kind else {
            return Err(at(key.line, format_args!("{} is not a key", key.noun())));
        };
        let is_own = within == "rate_limit" && OWN_KEYS.contains(&&**text);
        if !KEYS.contains(&&**text) && !is_own {
            return Err(at(key.line, format_args!("the key `{text}` is unknown")));
        }
        // Of a key that stands there twice, the last value counts.
        last.insert(text.clone(), Rc::clone(value));
        Ok(())
    })?;
    for (key, value) in last.iter().filter(|(key, _)| *key != "metadata") {
        match &value.kind {
            NodeKind::Map(_) => check_keys(value, key)?,
            NodeKind::List(list) => {
                for one in list {
                    if !matches!(one.kind, NodeKind::Map(_)) {
                        let why = format!("`{key}` has {}, where a map is needed", one.noun());
                        return Err(at(one.line, why));
                    }
                    check_keys(one, key)?;
                }
            }
            NodeKind::Scalar { text, value: Scalar::Float } => {
                return Err(at(value.line, format_args!("`{key}` is the fraction `{text}`")));
            }
            NodeKind::Scalar { .. } => {}
        }
    }
    Ok(())
}

#[derive(Default)]
pub(crate) struct File {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<Descriptor>,
}

#[derive(Default)]
pub(crate) struct Descriptor {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) rate_limit: Option<StatedLimit>,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    pub(crate) detailed_metric: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) share_threshold: bool,
}

#[derive(Default)]
pub(crate) struct StatedLimit {
    pub(crate) line: usize,
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: String,
    pub(crate) unlimited: bool,
    pub(crate) name: String,
    pub(crate) replaces: Vec<String>,
    pub(crate) algorithm: String,
    pub(crate) burst: Option<u32>,
}

impl File {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// A text that begins with the line.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let root = YamlNode::read(text)?;
        let mut file = Self::default();
        if !root.is_null() {
            check_keys(&root, "")?;
            file.fill(&root)?;
        }
        match file.domain.is_empty() {
            true => Err(at(root.line, "the file has no `domain`")),
            false => Ok(file),
        }
    }

    fn fill(&mut self, node: &YamlNode) -> Result<(), String> {
        fields(node, &mut |key, value| {
            match key {
                "domain" => self.domain = text(key, value)?,
                "descriptors" => self.descriptors = descriptors(key, value)?,
                _ => {}
            }
            Ok(())
        })
    }
}

impl Descriptor {
    fn fill(&mut self, node: &YamlNode) -> Result<(), String> {
        self.line = node.line;
        fields(node, &mut |key, value| {
            match key {
                "key" => self.key = text(key, value)?,
                "value" => self.value = text(key, value)?,
                "rate_limit" if value.is_null() => self.rate_limit = None,
                "rate_limit" => self.rate_limit.get_or_insert_default().fill(value)?,
                "descriptors" => self.descriptors = descriptors(key, value)?,
                "shadow_mode" => self.shadow_mode = boolean(key, value)?,
                "quota_mode" => self.quota_mode = boolean(key, value)?,
                "detailed_metric" => self.detailed_metric = boolean(key, value)?,
                "value_to_metric" => self.value_to_metric = boolean(key, value)?,
                "share_threshold" => self.share_threshold = boolean(key, value)?,
                "metadata" if value.is_null() => {}
                "metadata" => value.entries(&mut |_, _| Ok(()))?,
                _ => {}
            }
            Ok(())
        })
    }
}

impl StatedLimit {
    fn fill(&mut self, node: &YamlNode) -> Result<(), String> {
        self.line = node.line;
        fields(node, &mut |key, value| {
            match key {
                "requests_per_unit" => self.requests_per_unit = number(key, value)?,
                "unit" => self.unit = text(key, value)?,
                "unlimited" => self.unlimited = boolean(key, value)?,
                "name" => self.name = text(key, value)?,
                "algorithm" => self.algorithm = text(key, value)?,
                "burst" => self.burst = Some(number(key, value)?),
                "replaces" => {
                    self.replaces = items(key, value, |one| {
                        let mut name = String::new();
                        fields(one, &mut |key, value| {
                            if key == "name" {
                                name = text(key, value)?;
                            }
                            Ok(())
                        })?;
                        Ok(name)
                    })?;
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// The limit, if it is none that contradicts itself. `None` if it is unlimited.
    pub(crate) fn checked(&self) -> Result<Option<Limit>, String> {
        let wrong = |why: String| Err(at(self.line, why));
        if self.replaces.iter().any(String::is_empty) {
            return wrong("`replaces` has an entry without a `name`".to_owned());
        }
        if self.replaces.contains(&self.name) {
            return wrong(format!("`{}` replaces itself", self.name));
        }
        let counting = match (&*self.algorithm, self.burst) {
            ("" | "fixed_window", None) => Counting::FixedWindow,
            ("token_bucket", Some(0)) => return wrong("a `burst` of 0 admits nothing".to_owned()),
            ("token_bucket", burst) => {
                Counting::TokenBucket { burst: burst.unwrap_or(self.requests_per_unit).max(1) }
            }
            ("" | "fixed_window", Some(_)) => {
                return wrong("a `burst` needs `algorithm: token_bucket`".to_owned());
            }
            (other, _) => {
                let known = "`fixed_window` or `token_bucket`";
                return wrong(format!("`algorithm` is `{other}`, and must be {known}"));
            }
        };
        match (self.unlimited, Unit::of_word(&self.unit)) {
            (true, Some(_)) => wrong("an unlimited rule has no `unit`".to_owned()),
            (true, None) => Ok(None),
            (false, None) => wrong(format!("the unit `{}` is unknown", self.unit)),
            (false, Some(unit)) => {
                let (requests, name) = (self.requests_per_unit, self.name.clone());
                let limit = Limit { requests, unit, counting, name };
                if counting != Counting::FixedWindow && requests > 0 && limit.bucket().is_none() {
                    let why = "such a burst takes more than 35 years to come";
                    return wrong(why.to_owned());
                }
                Ok(Some(limit))
            }
        }
    }
}

/// Calls `field` with each key and value of a map.
fn fields(
    node: &YamlNode,
    field: &mut impl FnMut(&str, &Rc<YamlNode>) -> Result<(), String>,
) -> Result<(), String> {
    node.entries(&mut |key, value| match &key.kind {
        NodeKind::Scalar { text, .. } => field(text, value),
        _ => Ok(()),
    })
}

fn descriptors(key: &str, node: &YamlNode) -> Result<Vec<Descriptor>, String> {
    items(key, node, |one| {
        let mut descriptor = Descriptor::default();
        descriptor.fill(one)?;
        Ok(descriptor)
    })
}

fn items<T>(
    key: &str,
    node: &YamlNode,
    item: impl Fn(&YamlNode) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match &node.kind {
        NodeKind::List(list) => list.iter().map(|one| item(one)).collect(),
        _ if node.is_null() => Ok(Vec::new()),
        _ => Err(at(node.line, format_args!("`{key}` needs a list, not {}", node.noun()))),
    }
}

fn text(key: &str, node: &YamlNode) -> Result<String, String> {
    match &node.kind {
        NodeKind::Scalar { value: Scalar::Null, .. } => Ok(String::new()),
        NodeKind::Scalar { text, .. } => Ok(text.clone()),
        _ => Err(at(node.line, format_args!("`{key}` needs a text, not {}", node.noun()))),
    }
}

fn boolean(key: &str, node: &YamlNode) -> Result<bool, String> {
    match node.kind {
        NodeKind::Scalar { value: Scalar::Null, .. } => Ok(false),
        NodeKind::Scalar { value: Scalar::Bool(value), .. } => Ok(value),
        _ => Err(at(node.line, format_args!("`{key}` needs true or false, not {}", node.noun()))),
    }
}

fn number(key: &str, node: &YamlNode) -> Result<u32, String> {
    let whole = match node.kind {
        NodeKind::Scalar { value: Scalar::Null, .. } => Some(0),
        NodeKind::Scalar { value: Scalar::Int(number), .. } => u32::try_from(number).ok(),
        _ => None,
    };
    let known = "a whole number from 0 to 4294967295";
    whole.ok_or_else(|| at(node.line, format_args!("`{key}` needs {known}, not {}", node.noun())))
}
