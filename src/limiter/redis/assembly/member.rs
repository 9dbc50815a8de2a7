//! An algorithm as a part of a script: the sections of its file, and the names that they declare.

use std::fmt::Write as _;

use crate::algorithm::ScriptPart;

/// The names that a template gives to each quota, besides those that its algorithm declares.
const NAMES: [&str; 4] = ["instant", "unsettled", "clamped", "refunded"];

/// A section of an algorithm's file: what its heading lists, and its lines.
pub(super) struct Section {
    name: &'static str,
    list: Vec<&'static str>,
    pub(super) lines: Vec<&'static str>,
}

/// An algorithm of a script, and where it stands among the quotas.
pub(super) struct Member {
    pub(super) name: &'static str,
    sections: Vec<Section>,
    /// What its names end with: nothing if there is only one quota.
    pub(super) suffix: String,
    pub(super) number: usize,
    /// The arguments of the quotas before it.
    pub(super) first_argument: usize,
    /// The elements of the reply before those of its state.
    pub(super) first_element: usize,
}

impl Member {
    pub(super) fn new(part: &ScriptPart) -> Self {
        let mut sections = vec![Section { name: "about", list: Vec::new(), lines: Vec::new() }];
        // Comments right above a heading are of its section.
        let mut above = Vec::new();
        for line in part.script.lines() {
            let section = sections.last_mut().expect("a section");
            if let Some(heading) = line.strip_prefix("--@ ") {
                let (name, list) = heading.split_once(' ').unwrap_or((heading, ""));
                let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                let lines = std::mem::take(&mut above);
                while section.lines.last().is_some_and(|line| line.is_empty()) {
                    section.lines.pop();
                }
                sections.push(Section { name, list: list.collect(), lines });
            } else if line.starts_with("--") {
                above.push(line);
            } else {
                section.lines.append(&mut above);
                section.lines.push(line);
            }
        }
        if part.own_terms
            && let Some(arguments) = sections.iter_mut().find(|section| section.name == "arguments")
        {
            arguments.list.extend(["cost", "own_max_wait"]);
        }
        let (suffix, number) = (String::new(), 1);
        Self { name: part.name, sections, suffix, number, first_argument: 0, first_element: 1 }
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// True if it holds what a charge takes until that is settled.
    pub(super) fn holds(&self) -> bool {
        self.section("spend").is_some()
    }

    pub(super) fn list(&self, name: &str) -> &[&'static str] {
        self.section(name).map_or(&[], |section| &section.list)
    }

    /// The names that a heading lists, as `form` makes them of each.
    fn names(&self, list: &str, form: impl Fn(String) -> String) -> String {
        let name = |name: &&str| form(format!("{name}{}", self.suffix));
        self.list(list).iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Whether a name is this quota's own.
    fn owns(&self, name: &str) -> bool {
        let lists = ["arguments", "rule", "cost", "state"];
        NAMES.contains(&name) || lists.iter().any(|list| self.list(list).contains(&name))
    }

    /// A line of a section, whose names end with the number of this quota.
    pub(super) fn numbered(&self, line: &str) -> String {
        if self.suffix.is_empty() {
            return line.to_owned();
        }
        each_word(line, |word, before| match before != Some('.') && self.owns(word) {
            true => Some(format!("{word}{}", self.suffix)),
            false => None,
        })
    }

    /// What the reply says of its state: the first name one more than it is, so that 0 stands for
    /// no state.
    fn reply(&self) -> String {
        let value = |(place, name): (usize, &&str)| {
            let name = self.numbered(name);
            if place == 0 { format!("({name} or -1) + 1") } else { format!("{name} or 0") }
        };
        self.list("reply").iter().enumerate().map(value).collect::<Vec<_>>().join(", ")
    }
}

/// What a placeholder stands for, in the lines of one quota.
pub(super) fn placeholder(word: &str, member: &Member) -> Option<String> {
    let suffix = &member.suffix;
    let is = |name: String| name;
    Some(match word {
        "N" => member.number.to_string(),
        "$arguments" => member.names("arguments", is),
        "$rule" => member.names("rule", is),
        "$cost" => member.names("cost", is),
        "$state" => member.names("state", is),
        "$exists" => format!("{}{suffix}", member.list("state")[0]),
        "$before" => member.names("state", |name| name + "_before"),
        "$saved" => {
            // A key has room for so many parts of a state.
            let part = |place| format!("saved[8 * slot{suffix} + {place}]");
            (0..member.list("state").len()).map(part).collect::<Vec<_>>().join(", ")
        }
        "$reply" => {
            let element = |place| format!("reply[n + {}]", member.first_element + place);
            (1..=member.list("reply").len()).map(element).collect::<Vec<_>>().join(", ")
        }
        "$values" => member.reply(),
        "$zeros" => vec!["0"; member.list("reply").len()].join(", "),
        "$numbers" => {
            let mut numbers = String::new();
            for place in 0..member.list("arguments").len() {
                let separator = if place > 0 { ", " } else { "" };
                let place = member.first_argument + place;
                write!(numbers, "{separator}ARGV[from + {place}] + 0").expect("a string takes all");
            }
            numbers
        }
        _ => format!("{}{suffix}", word.strip_suffix("_N")?),
    })
}

/// The line with some of its words replaced; `replaced` also sees what stands before a word.
pub(super) fn each_word(
    line: &str,
    replaced: impl Fn(&str, Option<char>) -> Option<String>,
) -> String {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_$".contains(character);
    let (mut result, mut rest) = (String::new(), line);
    while !rest.is_empty() {
        let length = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        match replaced(word, result.chars().last()) {
            Some(replacement) if !word.is_empty() => result.push_str(&replacement),
            _ => result.push_str(word),
        }
        let next = after.chars().next().map_or(0, char::len_utf8);
        result.push_str(&after[..next]);
        rest = &after[next..];
    }
    result
}
