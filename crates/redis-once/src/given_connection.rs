//! One connection that the application made.
//!
//! The pool only sends over it. The application must reconnect.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisResult};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::connection::{
    ConnectionFuture, Connections, RepliesFuture, ReplyFuture, SharedConnection,
};
use super::fault::Facts;
use super::pool::Pool;
use super::times::MAX_SILENCE;
use super::wire::Traffic;

impl Pool {
    /// Uses one connection of the application: any [`ConnectionLike`] whose clones share one
    /// connection. Examples are a `MultiplexedConnection` or a `ConnectionManager` of
    /// [`redis`](crate::redis), and mocks.
    ///
    /// Commands are sent once, with deadlines and kinds of errors as usual. But the pool only sends
    /// over the connection. It cannot do these things that a pool of [`connect`](Self::connect)
    /// does:
    ///
    /// - It does not replace a lost connection. With a `MultiplexedConnection`, every later command
    ///   is an error of kind infrastructure. A `ConnectionManager` reconnects by itself.
    /// - It keeps using a connection that is silent, or whose primary was demoted.
    /// - The connection belongs to the runtime that made it, and is lost when that ends.
    /// - The connection has its own response timeout, half a second by default. If that ends a
    ///   call, the error is of kind saturation, since that timer does not show the state of Redis.
    /// - The kind of the server is not checked. If several servers share the keys behind the
    ///   connection, as behind a proxy, set [`several_servers`](Self::several_servers).
    ///
    /// The connection must give each reply to its own call, even after earlier callers were
    /// dropped. It must not send a command again, and must use one server: a cluster needs a
    /// `redis-cluster://` address. A blocking command or a transaction over the same connection
    /// delays all others.
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Arc::new(GivenConnection { connection, traffic: Arc::default() }), None)
    }
}

/// The application's connection, whose clones share one connection to the server. It is always
/// alive: there is no other connection.
struct GivenConnection<C> {
    connection: C,
    traffic: Arc<Traffic>,
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connections for GivenConnection<C> {
    fn ready_connection(self: Arc<Self>, _hash_slot: u16) -> Option<Arc<dyn SharedConnection>> {
        Some(self)
    }

    fn connection(self: Arc<Self>, _hash_slot: u16) -> ConnectionFuture {
        Box::pin(async move { Ok(self as Arc<dyn SharedConnection>) })
    }

    fn facts(&self, _hash_slot: u16) -> Facts {
        Facts { failure: None, silent_for: self.traffic.silent_for() }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for GivenConnection<C> {
    fn send(&self, command: Cmd) -> ReplyFuture {
        let mut connection = self.connection.clone();
        observed(&self.traffic, async move { connection.req_packed_command(&command).await })
    }

    fn send_all(&self, commands: Pipeline) -> RepliesFuture {
        let mut connection = self.connection.clone();
        observed(&self.traffic, async move {
            connection.req_packed_commands(&commands, 0, commands.len()).await
        })
    }
}

/// A call in a box.
type BoxedCall<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

/// Returns a call over a connection whose bytes nobody sees: only replies show that the server
/// answers. So the reply is awaited even if the caller has left.
pub(super) fn observed<T: Send + 'static>(
    traffic: &Arc<Traffic>,
    call: impl Future<Output = RedisResult<T>> + Send + 'static,
) -> BoxedCall<T> {
    let traffic = Arc::clone(traffic);
    let call = async move {
        traffic.record_write();
        let outcome = call.await;
        traffic.record_reply(&outcome);
        outcome
    };
    Box::pin(Observed { call: Some(Box::pin(call)), is_sent: false })
}

struct Observed<T: Send + 'static> {
    /// `None` after the reply.
    call: Option<BoxedCall<T>>,
    is_sent: bool,
}

impl<T: Send + 'static> Future for Observed<T> {
    type Output = RedisResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_sent = true;
        let call = self.call.as_mut().expect("it is polled until it is ready");
        let outcome = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send + 'static> Drop for Observed<T> {
    fn drop(&mut self) {
        if let (Some(call), true, Ok(runtime)) =
            (self.call.take(), self.is_sent, Handle::try_current())
        {
            // Not without an end: the client may reconnect first, and then send many of them.
            runtime.spawn(timeout(MAX_SILENCE, call));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::{RedisFuture, Value, cmd};
    use tokio::time::{Instant, sleep};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// A connection to a server that takes its time.
    #[derive(Clone)]
    struct Slow;

    impl ConnectionLike for Slow {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(async {
                sleep(2 * SOON).await;
                Ok(Value::Okay)
            })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("one command is sent")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    /// Otherwise the next call that a busy process answers late would blame the server.
    #[tokio::test(start_paused = true)]
    async fn a_reply_shows_that_the_server_answers_even_if_its_caller_has_left() {
        let pool = Pool::from_connection(Slow);
        let sent = pool.send(cmd("GET"), "", Instant::now() + SOON).await;
        assert!(sent.is_err_and(|failure| failure.may_have_run()));
        sleep(2 * MAX_SILENCE).await;
        assert_eq!(pool.facts(0).silent_for, Duration::ZERO);
    }
}
