//! One script call: EVAL until a server has run the script, then EVALSHA. If the server does not
//! know the script, EVAL follows.
//!
//! A call that the server may have run is never sent again: only NOSCRIPT proves that it did
//! not run.

use std::sync::Arc;

use super::super::client::SharedConnection;
use super::super::script::Script;
use redis::{Cmd, RedisResult, ServerErrorKind, Value};

/// Sends a call. `arguments` appends keys and arguments to each of the two commands. If it returns
/// `false`, the answer is no longer wanted: nothing is sent, and the result is `None`.
pub(crate) async fn eval(
    connection: Arc<dyn SharedConnection>,
    script: &Script,
    mut arguments: impl FnMut(&mut Cmd) -> bool,
) -> Option<RedisResult<Value>> {
    if script.is_known() {
        let mut by_digest = script.evalsha();
        if !arguments(&mut by_digest) {
            return None;
        }
        let reply = connection.send(by_digest).await.and_then(Value::extract_error);
        let no_script = redis::ErrorKind::Server(ServerErrorKind::NoScript);
        if !matches!(&reply, Err(error) if error.kind() == no_script) {
            return Some(reply);
        }
    }
    let mut by_text = script.eval();
    if !arguments(&mut by_text) {
        return None;
    }
    let reply = connection.send(by_text).await.and_then(Value::extract_error);
    if reply.is_ok() {
        script.record_run();
    }
    Some(reply)
}
