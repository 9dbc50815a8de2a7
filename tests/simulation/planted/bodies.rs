//! Many faults in one build: each body of a function that faults edit becomes a choice among the
//! body as it is, and as each of these faults leaves it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr as _;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use support::repository;

use super::{Edit, Fault, source};

/// The variable of the environment with the number of the chosen fault. 0: none.
pub(super) const CHOICE: &str = "PLANTED_FAULT";

/// Says whether a fault was chosen. It stands at the end of each `lib.rs`.
const CHOOSE: &str = "
pub(crate) fn is_planted(number: usize) -> bool {
    static CHOICE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let read = || std::env::var(\"PLANTED_FAULT\").map_or(0, |text| text.parse().unwrap_or(0));
    *CHOICE.get_or_init(read) == number
}
";

/// The edits of each body by the faults, by its file, begin and end.
type Changes = BTreeMap<(&'static str, usize, usize), Vec<(Range<usize>, &'static str)>>;

/// Faults that edit nothing but bodies, by their numbers, and the files that they edit.
#[derive(Default)]
pub(super) struct Bodies {
    names: Vec<&'static str>,
    files: BTreeMap<&'static str, File>,
}

/// A file, and the bodies of its functions.
struct File {
    text: String,
    /// All bodies, without their braces, the outer ones first.
    places: Vec<Range<usize>>,
    /// The texts of each body after the faults, by the body's begin and end.
    edited: BTreeMap<(usize, usize), BTreeMap<usize, String>>,
}

impl Bodies {
    pub(super) fn of(faults: impl Iterator<Item = &'static Fault>) -> Self {
        let mut bodies = Self::default();
        for fault in faults {
            let _ = bodies.plant(fault);
        }
        bodies
    }

    /// The number of a fault. 0: it edits more than bodies, and is not planted.
    pub(super) fn number_of(&self, fault: &Fault) -> usize {
        self.names.iter().position(|name| *name == fault.name).map_or(0, |place| place + 1)
    }

    /// The texts of the files with all faults.
    pub(super) fn texts(&self) -> BTreeMap<PathBuf, String> {
        let planted = self.files.iter().map(|(file, one)| (source(file), one.planted()));
        let mut texts: BTreeMap<_, _> = planted.collect();
        let named = self.names.iter().zip(1..);
        let names: String = named.map(|(name, number)| format!("// {number} {name}\n")).collect();
        for root in ["lib.rs", "redis-once/lib.rs"] {
            let text = texts.entry(source(root)).or_insert_with(|| File::read(root).text);
            text.extend([names.as_str(), CHOOSE]);
        }
        texts
    }

    /// Plants a fault. `None`: it edits more than bodies.
    fn plant(&mut self, fault: &'static Fault) -> Option<()> {
        let mut changes = Changes::new();
        for edit in fault.edits {
            let file = self.files.entry(edit.file).or_insert_with(|| File::read(edit.file));
            let change = file.change(edit)?;
            let body = file.body_around(&change.0)?;
            changes.entry((edit.file, body.start, body.end)).or_default().push(change);
        }
        self.names.push(fault.name);
        let number = self.names.len();
        for ((name, begin, end), mut changes) in changes {
            let file = self.files.get_mut(name)?;
            changes.sort_by_key(|(range, _)| Reverse(range.start));
            let mut body = file.text[begin..end].to_owned();
            for (range, to) in changes {
                body.replace_range(range.start - begin..range.end - begin, to);
            }
            file.edited.entry((begin, end)).or_default().insert(number, body);
        }
        Some(())
    }
}

impl File {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(repository().join(source(name))).unwrap_or_default();
        let mut places = Vec::new();
        find_bodies(TokenStream::from_str(&text).expect("Rust"), &mut places);
        Self { text, places, edited: BTreeMap::new() }
    }

    /// Returns the change that an edit makes: without what both texts begin and end with.
    fn change(&self, edit: &'static Edit) -> Option<(Range<usize>, &'static str)> {
        let Edit { from, to, .. } = edit;
        let begin = self.text.find(from)?;
        let is_alike = |(one, other): &(u8, u8)| one == other;
        let before = from.bytes().zip(to.bytes()).take_while(is_alike).count();
        let behind = from[before..].bytes().rev().zip(to[before..].bytes().rev());
        let behind = behind.take_while(is_alike).count();
        Some((begin + before..begin + from.len() - behind, &to[before..to.len() - behind]))
    }

    /// The innermost body around a place, which no other edited body lies in or around.
    fn body_around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let is_around = |body: &&Range<usize>| body.start <= range.start && range.end <= body.end;
        let body = self.places.iter().rev().find(is_around)?;
        let is_free = |(begin, end): &(usize, usize)| {
            (*begin, *end) == (body.start, body.end) || *end <= body.start || body.end <= *begin
        };
        self.edited.keys().all(is_free).then(|| body.clone())
    }

    /// The text with all edited bodies.
    fn planted(&self) -> String {
        let mut text = self.text.clone();
        for ((begin, end), bodies) in self.edited.iter().rev() {
            let chosen =
                |(number, body)| format!("if crate::is_planted({number}) {{ {body} }} else ");
            let choices: String = bodies.iter().map(chosen).collect();
            let own = &self.text[*begin..*end];
            text.replace_range(*begin..*end, &format!("{choices}{{ {own} }}"));
        }
        text
    }
}

/// Finds the bodies of functions. One that runs at compile time, or that returns a type without a
/// name, has no choice.
fn find_bodies(tokens: TokenStream, places: &mut Vec<Range<usize>>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let is_word = |at: usize, word: &str| matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if ident == word);
    let mut begun: Option<usize> = None;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(_) => {
                let is_named = matches!(tokens.get(at + 1), Some(TokenTree::Ident(_)));
                begun = Some(at).filter(|_| is_word(at, "fn") && is_named).or(begun);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => begun = None,
            TokenTree::Group(group) => {
                let is_braced = group.delimiter() == Delimiter::Brace;
                if let Some(from) = begun.filter(|_| is_braced) {
                    let is_const = from > 0 && is_word(from - 1, "const");
                    let is_nameless = (from..at).any(|at| is_word(at, "impl"));
                    if !is_const && !is_nameless {
                        let (open, close) = (group.span_open(), group.span_close());
                        places.push(open.byte_range().end..close.byte_range().start);
                    }
                    begun = None;
                }
                find_bodies(group.stream(), places);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
