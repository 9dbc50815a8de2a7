//! Assembles a limiter's scripts from templates and from the sections of its algorithms' files.
//!
//! `scripts/README.md` explains the directives and placeholders.

use crate::algorithm::ScriptPart;

const HEAD: &str = include_str!("../../../scripts/head.lua");

/// The templates, by the names under which others include them.
const TEMPLATES: [(&str, &str); 12] = [
    ("contract", include_str!("../../../scripts/contract.lua")),
    ("call", include_str!("../../../scripts/call.lua")),
    ("single", include_str!("../../../scripts/single.lua")),
    ("single_check", include_str!("../../../scripts/single_check.lua")),
    ("single_operation", include_str!("../../../scripts/single_operation.lua")),
    ("several", include_str!("../../../scripts/several.lua")),
    ("several_check", include_str!("../../../scripts/several_check.lua")),
    ("several_operation", include_str!("../../../scripts/several_operation.lua")),
    ("segment", include_str!("../../../scripts/segment.lua")),
    ("read", include_str!("../../../scripts/read.lua")),
    ("unread", include_str!("../../../scripts/unread.lua")),
    ("write", include_str!("../../../scripts/write.lua")),
];

/// The names that a template gives to each quota, besides those that its algorithm declares.
const NAMES: [&str; 3] = ["instant", "clamped", "refunded"];

/// The operations that a script supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only checks. Almost all calls have only checks.
    Checks,
    /// Every operation.
    Complete,
}

/// A text during assembly.
struct Assembly<'a> {
    members: &'a [QuotaPart],
    kind: Kind,
    arguments: usize,
    elements: usize,
    text: String,
}

/// A section of an algorithm's file: the names that its heading lists, and its lines.
struct Section {
    name: &'static str,
    list: Vec<&'static str>,
    lines: Vec<&'static str>,
}

/// An algorithm of a script, and its place among the quotas.
struct QuotaPart {
    name: &'static str,
    sections: Vec<Section>,
    /// The end of its names, empty if there is only one quota.
    suffix: String,
    number: usize,
    /// The arguments of the quotas before it.
    first_argument: usize,
    /// The elements of the reply before those of its state.
    first_element: usize,
}

/// Returns the text of a script for the algorithms of `parts`, one for each quota, as Redis gets
/// it: without comments and blank lines.
pub(super) fn assemble(parts: &[ScriptPart], kind: Kind) -> String {
    let text = commented(parts, kind);
    let is_code = |line: &&str| !line.is_empty() && !is_comment(line);
    text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

/// Returns the text of a script with the comments of its templates and sections.
pub(super) fn commented(parts: &[ScriptPart], kind: Kind) -> String {
    let mut members: Vec<_> = parts.iter().map(QuotaPart::new).collect();
    let (mut arguments, mut elements) = (0, 1);
    let is_single = members.len() == 1;
    for (place, member) in members.iter_mut().enumerate() {
        if !is_single {
            member.suffix = format!("_{}", place + 1);
        }
        member.number = place + 1;
        (member.first_argument, member.first_element) = (arguments, elements);
        arguments += member.list("arguments").len();
        elements += member.list("reply").len();
    }
    let mut assembly =
        Assembly { members: &members, kind, arguments, elements, text: String::new() };
    let only = is_single.then_some(&members[0]);
    assembly.push_once("about");
    assembly.include("contract", "", only);
    assembly.text.extend(["\n", HEAD, "\n"]);
    assembly.push_once("helpers");
    if is_single {
        assembly.include("call", "", only);
        assembly.text.push('\n');
        assembly.include("single", "", only);
    } else {
        assembly.text.push_str(
            "-- Lua has room for 200 local variables in a function, so the helpers above are outside \
             of it.\nlocal function decide()\n",
        );
        assembly.include("call", "", None);
        assembly.text.push('\n');
        assembly.include("several", "", None);
        assembly.text.push_str("end\nreturn decide()\n");
    }
    assembly.text
}

/// Counts the local variables that the algorithms of a script declare. A function of Lua may have
/// 200.
pub(crate) fn local_names(parts: &[ScriptPart]) -> usize {
    let lists = ["arguments", "rule", "cost", "state"];
    // Each has more than it lists: `slot`, `clamped`, `kept` and `instant`.
    let names =
        |member: QuotaPart| lists.map(|list| member.list(list).len()).iter().sum::<usize>() + 4;
    parts.iter().map(|part| names(QuotaPart::new(part))).sum()
}

/// Returns true for each algorithm whose keys have a text, and false for a sorted set.
pub(crate) fn keep_text(parts: &[ScriptPart]) -> Vec<bool> {
    parts.iter().map(|part| QuotaPart::new(part).section("read").is_some()).collect()
}

impl Assembly<'_> {
    /// Writes a section of each algorithm, once.
    fn push_once(&mut self, section: &str) {
        for (place, member) in self.members.iter().enumerate() {
            if self.members[..place].iter().all(|earlier| earlier.name != member.name)
                && let Some(section) = member.section(section)
            {
                section.lines.iter().for_each(|line| self.text.extend([*line, "\n"]));
                self.text.push('\n');
            }
        }
    }

    fn include(&mut self, name: &str, indent: &str, member: Option<&QuotaPart>) {
        let found = TEMPLATES.iter().find(|(template, _)| *template == name);
        let (_, template) = found.unwrap_or_else(|| panic!("no template is called {name}"));
        self.expand(&template.lines().collect::<Vec<_>>(), indent, member);
    }

    /// Expands the lines of a template, for one quota or outside of all quotas.
    fn expand(&mut self, lines: &[&str], indent: &str, member: Option<&QuotaPart>) {
        let mut rest = lines;
        while let Some((line, after)) = rest.split_first() {
            rest = after;
            let Some((space, directive)) = line.split_once("--@ ") else {
                self.push(&format!("{indent}{line}"), member);
                continue;
            };
            let deeper = format!("{indent}{space}");
            match directive.split_once(' ').unwrap_or((directive, "")) {
                ("each", _) => {
                    let (block, _, after) = split_block(rest);
                    rest = after;
                    let members = self.members;
                    members.iter().for_each(|one| self.expand(block, indent, Some(one)));
                }
                ("if", flag) => {
                    let (block, otherwise, after) = split_block(rest);
                    rest = after;
                    let taken = if self.holds(flag, member) { block } else { otherwise };
                    self.expand(taken, indent, member);
                }
                ("include", name) => self.include(name, &deeper, member),
                ("paste", name) => {
                    self.paste(name, &deeper, member.expect("a section is of one quota"));
                }
                (other, _) => panic!("no directive is called {other}"),
            }
        }
    }

    fn holds(&self, flag: &str, member: Option<&QuotaPart>) -> bool {
        let is_text = |member: &QuotaPart| member.section("read").is_some();
        match flag {
            "several" => self.members.len() > 1,
            "complete" => self.kind == Kind::Complete,
            "text" => member.is_some_and(is_text),
            "any_text" => self.members.iter().any(is_text),
            "stock" => member.is_some_and(|member| member.section("stock").is_some()),
            "holds" => member.is_some_and(QuotaPart::holds),
            "any_holds" => self.members.iter().any(QuotaPart::holds),
            "short_answers" => self.has_short_answers(),
            "short" => self.kind == Kind::Checks && self.has_short_answers(),
            "own_costs" => self.members.iter().all(|one| one.list("arguments").contains(&"cost")),
            list => member.is_some_and(|member| !member.list(list).is_empty()),
        }
    }

    /// Returns true if an answer may be a number in place of the usual elements.
    fn has_short_answers(&self) -> bool {
        matches!(self.members, [only] if only.section("short").is_some())
    }

    /// Writes a section under its name, with the variables of one quota.
    fn paste(&mut self, name: &str, indent: &str, member: &QuotaPart) {
        let Some(section) = member.section(name) else { return };
        self.text.extend([indent, "-- [", name, "]\n"]);
        for line in &section.lines {
            let line = if is_comment(line) { (*line).to_owned() } else { member.numbered(line) };
            self.text.extend([indent, &line, "\n"]);
        }
    }

    /// Writes a line of a template, and replaces its placeholders.
    fn push(&mut self, line: &str, member: Option<&QuotaPart>) {
        let replaced = each_word(line, |word, _| {
            Some(match word {
                "ARGUMENTS" => self.arguments.to_string(),
                "WIDTH" => self.elements.to_string(),
                // Where the wait of a charge stands, and that of the next one. Before it stands
                // `false` if an answer may also be a number.
                "FIRST" => (1 + usize::from(self.has_short_answers())).to_string(),
                "STRIDE" => (self.elements + usize::from(self.has_short_answers())).to_string(),
                "QUOTAS" => self.members.len().to_string(),
                "$horizons" => {
                    listed(self.members.iter().map(|one| format!("horizon{}", one.suffix)))
                }
                _ => return member.and_then(|member| placeholder(word, member)),
            })
        });
        self.text.extend([replaced.trim_end(), "\n"]);
    }
}

/// Splits the lines after `--@ each` or `--@ if` into the block, its `--@ else`, and what follows
/// its `--@ end`.
fn split_block<'a, 'b>(lines: &'a [&'b str]) -> (&'a [&'b str], &'a [&'b str], &'a [&'b str]) {
    let (mut depth, mut otherwise) = (1, None);
    for (place, line) in lines.iter().enumerate() {
        match line.trim_start().strip_prefix("--@ ").and_then(|text| text.split(' ').next()) {
            Some("each" | "if") => depth += 1,
            Some("else") if depth == 1 => otherwise = Some(place),
            Some("end") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let middle = otherwise.unwrap_or(place);
            let other = lines.get(middle + 1..place).unwrap_or_default();
            return (&lines[..middle], other, &lines[place + 1..]);
        }
    }
    panic!("a block has no end");
}

impl QuotaPart {
    fn new(part: &ScriptPart) -> Self {
        let mut sections = vec![Section { name: "about", list: Vec::new(), lines: Vec::new() }];
        // Comments right above a heading belong to its section.
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
        if part.own_costs
            && let Some(arguments) = sections.iter_mut().find(|section| section.name == "arguments")
        {
            arguments.list.extend(["cost", "own_max_wait"]);
        }
        let (suffix, number) = (String::new(), 1);
        Self { name: part.name, sections, suffix, number, first_argument: 0, first_element: 1 }
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Returns true if it holds the units of a charge until the charge is settled.
    fn holds(&self) -> bool {
        self.section("spend").is_some()
    }

    fn list(&self, name: &str) -> &[&'static str] {
        self.section(name).map_or(&[], |section| &section.list)
    }

    /// Joins the names that a heading lists. `form` changes each.
    fn names(&self, list: &str, form: impl Fn(String) -> String) -> String {
        listed(self.list(list).iter().map(|name| form(format!("{name}{}", self.suffix))))
    }

    /// Returns true if a name belongs to this quota.
    fn owns(&self, name: &str) -> bool {
        let lists = ["arguments", "rule", "cost", "state"];
        NAMES.contains(&name) || lists.iter().any(|list| self.list(list).contains(&name))
    }

    /// Returns a line of a section, with this quota's number at the end of the quota's own names.
    fn numbered(&self, line: &str) -> String {
        if self.suffix.is_empty() {
            return line.to_owned();
        }
        each_word(line, |word, before| match before != Some('.') && self.owns(word) {
            true => Some(format!("{word}{}", self.suffix)),
            false => None,
        })
    }

    /// Returns the values of its state in the reply. The first is increased by 1, so that 0 means
    /// no state.
    fn reply(&self) -> String {
        listed(self.list("reply").iter().enumerate().map(|(place, name)| {
            let name = self.numbered(name);
            if place == 0 { format!("({name} or -1) + 1") } else { format!("{name} or 0") }
        }))
    }
}

/// Returns the text that replaces a placeholder in the lines of one quota.
fn placeholder(word: &str, member: &QuotaPart) -> Option<String> {
    let suffix = &member.suffix;
    Some(match word {
        "N" => member.number.to_string(),
        "$arguments" | "$rule" | "$cost" | "$short_cost" | "$state" => {
            member.names(&word[1..], |name| name)
        }
        "$exists" => format!("{}{suffix}", member.list("state")[0]),
        "$before" => member.names("state", |name| name + "_before"),
        "$saved" => {
            // The state of each key has 8 places.
            let part = |place| format!("saved[8 * slot{suffix} + {place}]");
            listed((0..member.list("state").len()).map(part))
        }
        "$reply" => {
            let element = |place| format!("reply[n + {}]", member.first_element + place);
            listed((1..=member.list("reply").len()).map(element))
        }
        "$values" => member.reply(),
        "$zeros" => vec!["0"; member.list("reply").len()].join(", "),
        "$numbers" => {
            let number = |place| format!("ARGV[from + {}] + 0", member.first_argument + place);
            listed((0..member.list("arguments").len()).map(number))
        }
        _ => format!("{}{suffix}", word.strip_suffix("_N")?),
    })
}

/// Joins the names or values of a list.
fn listed(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Returns the line with some of its words replaced. `replaced` gets a word, and the character
/// before it.
fn each_word(line: &str, replaced: impl Fn(&str, Option<char>) -> Option<String>) -> String {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_$".contains(character);
    let mut result = String::new();
    for piece in line.split_inclusive(|character| !is_part(character)) {
        let word = piece.trim_end_matches(|character| !is_part(character));
        let replacement = replaced(word, result.chars().last()).filter(|_| !word.is_empty());
        result.extend([replacement.as_deref().unwrap_or(word), &piece[word.len()..]]);
    }
    result
}
