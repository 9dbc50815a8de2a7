//! Refunds a grant whose caller has left before the reply came.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::grant::GrantId;
use super::keys::Keys;
use super::reply::{DONE, ScriptReply};
use super::request::Request;
use super::sender::{PendingReply, Sender};
use crate::limiter::redis::sending::{LATE_REPLY_TIMEOUT, SharedConnection, malformed_reply};

/// Refunds a grant when it is dropped, if that is needed.
pub(super) struct RefundOnDrop<'a> {
    pub(super) sender: &'a Sender,
    pub(super) keys: &'a Keys,
    pub(super) permits: u32,
    pub(super) grant: GrantId,
    /// Counts the request as in flight.
    pub(super) in_flight: Option<OwnedSemaphorePermit>,
    /// The connection that the request was last sent over, and the reply to come.
    pub(super) connection: Option<Arc<dyn SharedConnection>>,
    pub(super) reply: Option<PendingReply>,
    pub(super) is_needed: bool,
}

impl Drop for RefundOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_needed {
            return;
        }
        // Best effort: permits that are not refunded expire. Too few are then
        // granted, never too many.
        let Ok(runtime) = Handle::try_current() else { return };
        let refund = Request::refund(self.keys, self.permits, &self.grant, self.permits);
        let sender = self.sender.clone();
        let in_flight = self.in_flight.take();
        let (connection, reply) = (self.connection.take(), self.reply.take());
        runtime.spawn(async move {
            let _in_flight = in_flight;
            if let Some(reply) = reply
                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT, reply).await
                && let Ok(reply) =
                    reply.extract_error().map_or_else(|_| Err(malformed_reply()), ScriptReply::read)
                && reply.outcome != DONE
            {
                return;
            }
            // Over the same connection the refund arrives after the grant, even on a connection
            // that seemed silent.
            if let Some(connection) = connection {
                let deadline = sender.deadline(&refund.keys, Instant::now() + LATE_REPLY_TIMEOUT);
                if let Ok(Ok(_)) = sender.send(&connection, &refund, &mut None, deadline).await {
                    return;
                }
            }
            let _ = sender.exchange(&refund, Instant::now() + LATE_REPLY_TIMEOUT).await;
        });
    }
}
