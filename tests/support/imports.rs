//! The paths that a file of Rust names, read from its text: use trees of any shape, and paths in the code.
//!
//! Comments and literals name nothing. `self` and `super` are followed to where they lead, so that every
//! path comes out as `crate::room::...` or as a foreign crate's.

/// A path, and the line that it begins in.
pub(crate) type Named = (usize, String);

/// The paths that `text`, the file at `file` below `src`, names.
pub(crate) fn named(file: &str, text: &str) -> Vec<Named> {
    let code = blank(text);
    let mut reader = Reader { tokens: tokens(&code), at: 0, found: Vec::new() };
    let mut module = module_of(file);
    // For each open brace, whether it opened a module.
    let mut braces = Vec::new();
    while let Some((line, token)) = reader.next() {
        let known = reader.found.len();
        match token {
            "mod" if reader.peek(1) == Some("{") => {
                module.push(reader.next().expect("a name").1.to_owned());
                reader.at += 1;
                braces.push(true);
            }
            "{" => braces.push(false),
            "}" if braces.pop() == Some(true) => drop(module.pop()),
            // `use<..>` captures lifetimes.
            "use" if reader.peek(0) != Some("<") => reader.tree(line, &[]),
            "crate" if reader.before(2) == Some("extern") => reader.tree(line, &[]),
            _ if is_name(token) && reader.peek(0) == Some("::") => reader.path(line, token),
            _ => {}
        }
        for (_, path) in &mut reader.found[known..] {
            *path = absolute(path, &module);
        }
    }
    reader.found
}

struct Reader<'a> {
    tokens: Vec<(usize, &'a str)>,
    at: usize,
    found: Vec<Named>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.at += 1;
        self.tokens.get(self.at - 1).copied()
    }

    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|(_, token)| *token)
    }

    fn before(&self, back: usize) -> Option<&'a str> {
        self.tokens.get(self.at.checked_sub(back)?).map(|(_, token)| *token)
    }

    /// A path in the code, whose first name was read.
    fn path(&mut self, line: usize, first: &str) {
        let mut path = first.to_owned();
        while self.peek(0) == Some("::") && self.peek(1).is_some_and(is_name) {
            self.at += 1;
            path = format!("{path}::{}", self.next().expect("a name").1);
        }
        self.found.push((line, path));
    }

    /// A use tree below `prefix`, up to the `;`, `,` or `}` that ends it.
    fn tree(&mut self, mut line: usize, prefix: &[&'a str]) {
        let mut path = prefix.to_vec();
        while let Some(token) = self.peek(0) {
            match token {
                "{" => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|token| token != "}") {
                        let line = self.tokens[self.at].0;
                        self.tree(line, &path);
                        self.at += usize::from(self.peek(0) == Some(","));
                    }
                    self.at += 1;
                    return;
                }
                ";" | "," | "}" => break,
                "as" => self.at += 1,
                "::" => {}
                name => {
                    if path.len() == prefix.len() {
                        line = self.tokens[self.at].0;
                    }
                    path.push(name);
                }
            }
            self.at += 1;
        }
        if path.last() == Some(&"self") && path.len() > 1 {
            path.pop();
        }
        self.found.push((line, path.join("::")));
    }
}

/// The module that a file below `src` holds.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|name| *name != "lib").map(str::to_owned).collect()
}

/// `path` as seen from the root, if it begins with `self` or `super`.
fn absolute(path: &str, module: &[String]) -> String {
    let mut names: Vec<_> = path.split("::").collect();
    let mut depth = module.len();
    if !matches!(names[0], "self" | "super") {
        return path.to_owned();
    }
    while let Some(first @ ("self" | "super")) = names.first().copied() {
        depth = depth.saturating_sub(usize::from(first == "super"));
        names.remove(0);
    }
    let inside = module[..depth].iter().map(String::as_str);
    ["crate"].into_iter().chain(inside).chain(names).collect::<Vec<_>>().join("::")
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, and every other character for itself, each with its line.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let in_name = |character: char| character.is_alphanumeric() || character == '_';
        let length = match first {
            _ if in_name(first) => rest.find(|character| !in_name(character)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            found.push((line, &rest[..length]));
        }
        line += usize::from(first == '\n');
        rest = &rest[length..];
    }
    found
}

/// The text with blanks for comments and literals, line by line as before.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_name = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let length = literal(rest, in_name);
        let (skipped, kept) = rest.split_at(length.unwrap_or(first.len_utf8()));
        match length {
            Some(_) => {
                code.push(' ');
                code.extend(skipped.chars().filter(|character| *character == '\n'));
            }
            None => code.push(first),
        }
        rest = kept;
    }
    code
}

/// The length of the comment or literal that `rest` begins with.
fn literal(rest: &str, in_name: bool) -> Option<usize> {
    let to = |end: &str, from: usize| {
        rest[from..].find(end).map_or(rest.len(), |found| from + found + end.len())
    };
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(to("*/", 2));
    }
    let raw = rest.trim_start_matches('b');
    if !in_name && raw.starts_with('r') {
        let hashes = raw[1..].len() - raw[1..].trim_start_matches('#').len();
        if raw[1 + hashes..].starts_with('"') {
            let begin = rest.len() - raw.len() + hashes + 2;
            return Some(to(&format!("\"{}", "#".repeat(hashes)), begin));
        }
    }
    if rest.starts_with('"') {
        return Some(closed(rest, '"'));
    }
    // A lifetime has no second quote where a character has one.
    let mut after = rest.strip_prefix('\'')?.chars();
    let character = after.next()?;
    (character == '\\' || after.next() == Some('\'')).then(|| closed(rest, '\''))
}

/// The length of a literal up to its closing `quote`.
fn closed(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}
