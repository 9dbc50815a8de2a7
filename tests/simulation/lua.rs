//! The interpreter of Redis, Lua 5.1, with what Redis gives to scripts, and the script cache.
//!
//! `prelude.lua` is the half of it in Lua: the table `redis` and the sandbox. Here stand the
//! conversions between Lua and RESP, and how a failed script is reported.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value, Variadic};
use sha1_smol::Sha1;

use super::packing;
use super::resp::{Reply, Word, seventeen_digits};

/// The interpreter of a thread. Scripts keep nothing in it from one call to the next.
struct Shared {
    lua: Lua,
    /// The function that the prelude returns: it runs one script.
    run: Function,
    /// Whatever any server has loaded, compiled, by its digest.
    scripts: RefCell<HashMap<String, Function>>,
}

thread_local! {
    static SHARED: Rc<Shared> = Rc::new(Shared::with_prelude().expect("the prelude runs"));
}

/// The scripts that a server knows by their digests, and what runs them.
pub struct Interpreter {
    shared: Rc<Shared>,
    known: BTreeSet<String>,
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interpreter").field(&self.known).finish()
    }
}

/// The name of a script for EVALSHA.
pub fn digest(text: &[u8]) -> String {
    Sha1::from(text).digest().to_string()
}

impl Shared {
    fn with_prelude() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let raising = lua.create_function(raising)?;
        let located = lua.create_function(located)?;
        let format_error = lua.create_function(|_, text: mlua::LuaString| {
            Ok(format_error(&text.to_string_lossy()))
        })?;
        let sha1hex =
            lua.create_function(|_, text: mlua::LuaString| Ok(digest(&text.as_bytes())))?;
        let pack_message =
            lua.create_function(|lua, values| lua.create_string(packing::pack_message(&values)?))?;
        let pack_struct = lua.create_function(|lua, (layout, values): (_, Variadic<f64>)| {
            lua.create_string(packing::pack_struct(&layout, &values)?)
        })?;
        let unpack_struct = lua.create_function(packing::unpack_struct)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let run = prelude.call((
            raising,
            located,
            format_error,
            sha1hex,
            pack_message,
            pack_struct,
            unpack_struct,
        ))?;
        Ok(Self { lua, run, scripts: RefCell::default() })
    }
}

impl Interpreter {
    /// Knows no script yet.
    pub fn new() -> Self {
        Self { shared: SHARED.with(Rc::clone), known: BTreeSet::new() }
    }

    /// Takes a script into the cache. Returns its digest, or the error of one that is no Lua.
    pub fn load(&mut self, text: &[u8]) -> Result<String, Reply> {
        let digest = digest(text);
        let mut scripts = self.shared.scripts.borrow_mut();
        if !scripts.contains_key(&digest) {
            let chunk = self.shared.lua.load(text);
            let chunk = chunk.set_name("@user_script").set_mode(ChunkMode::Text);
            let function = chunk.into_function().map_err(|error| {
                let message = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                Reply::error(format!("ERR Error compiling script (new function): {message}"))
            })?;
            scripts.insert(digest.clone(), function);
        }
        self.known.insert(digest.clone());
        Ok(digest)
    }

    /// The script of a digest, in whatever case.
    pub fn script(&self, digest: &str) -> Option<Function> {
        let digest = digest.to_ascii_lowercase();
        self.known.get(&digest).map(|digest| self.shared.scripts.borrow()[digest].clone())
    }

    pub fn flush(&mut self) {
        self.known.clear();
    }

    /// A handle for a run, during which the server that owns the interpreter is in use.
    pub fn runner(&self) -> Runner {
        Runner(Rc::clone(&self.shared))
    }
}

/// Runs scripts.
pub struct Runner(Rc<Shared>);

impl Runner {
    /// Runs a script, whose commands `command` answers.
    pub fn run(
        &self,
        script: &Function,
        digest: &str,
        keys: &[Word],
        arguments: &[Word],
        mut command: impl FnMut(Vec<Word>) -> Reply,
    ) -> Reply {
        let Shared { lua, run, .. } = &*self.0;
        let list = |words: &[Word]| {
            let texts = words.iter().map(|word| lua.create_string(word));
            lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
        };
        let outcome = lua.scope(|scope| {
            let send = scope.create_function_mut(|lua, words: Vec<mlua::LuaString>| {
                let words = words.iter().map(|word| word.as_bytes().to_vec());
                to_lua(lua, &command(words.collect()))
            })?;
            let (is_done, value): (bool, Value) =
                run.call((script, list(keys)?, list(arguments)?, send))?;
            if is_done {
                return from_lua(&value);
            }
            let Value::Table(failure) = value else { return from_lua(&value) };
            let text: mlua::LuaString = failure.raw_get("err")?;
            let line: Option<usize> = failure.raw_get("line")?;
            let place = line.map(|line| format!(" script: {digest}, on @user_script:{line}."));
            Ok(Reply::Error(text.to_string_lossy() + place.as_deref().unwrap_or("")))
        });
        outcome.unwrap_or_else(|error| Reply::error(format!("ERR {error}")))
    }
}

/// The error reply of a command that `redis.call` raises.
#[derive(Debug)]
struct Raised {
    error: String,
    line: Option<usize>,
}

impl std::error::Error for Raised {}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

/// A function that raises the error which `send` returns. It is the host's, because a tail call of
/// a function in Lua would lose the line of the script.
fn raising(lua: &Lua, send: Function) -> mlua::Result<Function> {
    lua.create_function(move |lua, words: MultiValue| {
        let reply: Value = send.call(words)?;
        let error = match &reply {
            Value::Table(table) => table.raw_get::<Option<String>>("err")?,
            _ => None,
        };
        match error {
            Some(error) => Err(mlua::Error::external(Raised { error, line: line_of_script(lua) })),
            None => Ok(reply),
        }
    })
}

/// Returns what was raised, as a table of the error and its line.
fn located(lua: &Lua, raised: Value) -> mlua::Result<Table> {
    let failure = lua.create_table()?;
    let mut line = line_of_script(lua);
    match raised {
        Value::Table(table) => failure.raw_set("err", table.raw_get::<Value>("err")?)?,
        Value::Error(error) => match error.downcast_ref::<Raised>() {
            Some(raised) => {
                line = raised.line;
                failure.raw_set("err", raised.error.as_str())?;
            }
            None => failure.raw_set("err", format!("ERR {error}"))?,
        },
        other => failure.raw_set("err", format!("ERR {}", other.to_string()?))?,
    }
    failure.raw_set("line", line)?;
    Ok(failure)
}

/// The line at which the innermost function of a script stands.
fn line_of_script(lua: &Lua) -> Option<usize> {
    let frame = |level| {
        lua.inspect_stack(level, |frame| {
            let is_script = frame.source().source.is_some_and(|source| source == "@user_script");
            frame.current_line().filter(|_| is_script)
        })
    };
    (0..).map_while(frame).flatten().next()
}

/// The error of `redis.error_reply`: one word alone is a text without a code.
fn format_error(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text);
    if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") }
}

/// A reply as a script gets it.
fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let text = |text: &[u8]| Ok(Value::String(lua.create_string(text)?));
    let field = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(status) => field("ok", status),
        Reply::Error(error) => field("err", error),
        Reply::Integer(number) => Ok(Value::Number(*number as f64)),
        Reply::Double(number) => text(seventeen_digits(*number).as_bytes()),
        Reply::Text(bytes) => text(bytes),
        Reply::Nil | Reply::NilList => Ok(Value::Boolean(false)),
        Reply::List(items) | Reply::Push(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            let items = items.collect::<mlua::Result<Vec<_>>>()?;
            Ok(Value::Table(lua.create_sequence_from(items)?))
        }
        Reply::Scored(members) => {
            let table = lua.create_table()?;
            for (score, member) in members {
                table.raw_push(lua.create_string(member)?)?;
                table.raw_push(seventeen_digits(*score))?;
            }
            Ok(Value::Table(table))
        }
        Reply::Map(fields) => {
            let table = lua.create_table()?;
            for (name, value) in fields {
                table.raw_push(*name)?;
                table.raw_push(to_lua(lua, value)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

/// Converts what a script returns to a reply.
fn from_lua(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Boolean(true) => Reply::Integer(1),
        Value::Integer(number) => Reply::Integer(*number),
        // Cut, not rounded.
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::String(text) => Reply::text(text.as_bytes()),
        Value::Table(table) => from_table(table)?,
        _ => Reply::Nil,
    })
}

fn from_table(table: &Table) -> mlua::Result<Reply> {
    let text = |name: &str| -> mlua::Result<Option<String>> {
        match table.raw_get(name)? {
            Value::String(text) => Ok(Some(text.to_string_lossy())),
            _ => Ok(None),
        }
    };
    if let Some(error) = text("err")? {
        return Ok(Reply::Error(error));
    }
    if let Some(status) = text("ok")? {
        return Ok(Reply::Status(status.replace(['\r', '\n'], " ")));
    }
    let mut items = Vec::new();
    loop {
        match table.raw_get(items.len() + 1)? {
            Value::Nil => return Ok(Reply::List(items)),
            value => items.push(from_lua(&value)?),
        }
    }
}
