//! The paths in a Rust file: those of its `use` items, and those in its code.
//!
//! The file is read as tokens, so paths in macros count, and comments and literals do not.
//! `self` and `super` are resolved: every path begins with `crate` or with a foreign crate.

use proc_macro2::{TokenStream, TokenTree};
use syn::UseTree;
use syn::parse::Parser;

/// A path, and the line that it begins in.
pub(crate) type PathAt = (usize, String);

/// The paths in `text`, which is the file at `file` below `src`.
pub(crate) fn paths(file: &str, text: &str) -> Vec<PathAt> {
    let tokens = text.parse().unwrap_or_else(|error| panic!("src/{file}: {error}"));
    let mut found = Vec::new();
    read(tokens, &module_of(file), &mut found);
    found
}

/// Adds the paths in `tokens`, which stand in `module`.
fn read(tokens: TokenStream, module: &[String], found: &mut Vec<PathAt>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let rest = &tokens[at..];
        match token {
            TokenTree::Group(group) => read(group.stream(), module, found),
            TokenTree::Ident(name) if name == "mod" => {
                if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = rest {
                    let inside = [module, &[name.to_string()]].concat();
                    read(body.stream(), &inside, found);
                    at += 2;
                }
            }
            // `use<..>` captures lifetimes.
            TokenTree::Ident(name) if name == "use" && !is_punct(rest.first(), '<') => {
                at += use_item(rest, module, found);
            }
            TokenTree::Ident(name) if name == "extern" && is_ident(rest.first(), "crate") => {
                at += 1 + use_item(&rest[1..], module, found);
            }
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                while let Some(TokenTree::Ident(name)) = after_colons(&tokens[at..]) {
                    path.push(name.to_string());
                    at += 3;
                }
                if path.len() > 1 || after_colons(&tokens[at..]).is_some() {
                    found.push((token.span().start().line, absolute(path, module)));
                }
            }
            _ => {}
        }
    }
}

/// Adds the paths of the `use` item whose tree `tokens` begin with. Returns how many tokens it has.
fn use_item(tokens: &[TokenTree], module: &[String], found: &mut Vec<PathAt>) -> usize {
    let length = tokens.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(tokens.len());
    let item: TokenStream = tokens[..length].iter().cloned().collect();
    // A path may begin with `::`, which says that a foreign crate follows.
    let tree = |input: syn::parse::ParseStream| {
        input.parse::<Option<syn::Token![::]>>()?;
        input.parse::<UseTree>()
    };
    let tree = tree.parse2(item).unwrap_or_else(|error| {
        panic!("line {}: no use item: {error}", error.span().start().line);
    });
    use_tree(&tree, &[], module, found);
    length
}

fn use_tree(tree: &UseTree, prefix: &[String], module: &[String], found: &mut Vec<PathAt>) {
    let (line, last) = match tree {
        UseTree::Path(path) => {
            let prefix = [prefix, &[path.ident.to_string()]].concat();
            return use_tree(&path.tree, &prefix, module, found);
        }
        UseTree::Group(group) => {
            return group.items.iter().for_each(|tree| use_tree(tree, prefix, module, found));
        }
        UseTree::Name(name) => (name.ident.span().start().line, name.ident.to_string()),
        UseTree::Rename(rename) => (rename.ident.span().start().line, rename.ident.to_string()),
        UseTree::Glob(glob) => (glob.star_token.spans[0].start().line, String::from("*")),
    };
    let mut path = prefix.to_vec();
    // `a::{self}` names `a`.
    if last != "self" || path.is_empty() {
        path.push(last);
    }
    found.push((line, absolute(path, module)));
}

/// The token after `::`.
fn after_colons(tokens: &[TokenTree]) -> Option<&TokenTree> {
    (is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')).then(|| tokens.get(2))?
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

/// The module of a file below `src`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|name| *name != "lib").map(str::to_owned).collect()
}

/// `path` as seen from the root of the crate, if it begins with `self` or `super`.
fn absolute(path: Vec<String>, module: &[String]) -> String {
    let is_relative = |name: &&String| matches!(name.as_str(), "self" | "super");
    let relative = path.iter().take_while(is_relative);
    let ups = relative.clone().filter(|name| *name == "super").count();
    let names = &path[relative.count()..];
    if names.len() == path.len() {
        return path.join("::");
    }
    let inside = &module[..module.len().saturating_sub(ups)];
    [&[String::from("crate")], inside, names].concat().join("::")
}
