//! Faults that the crate had: each undoes one mend.

use super::{Fault, edit, reverted};

pub(super) const FAULTS: &[Fault] = &[
    reverted(
        "charge_that_connects_is_overtaken",
        "c998c62 redis: queue a charge that finds no connection ready",
        &[
            edit(
                "limiter/redis/send/batcher.rs",
                "            if let Some(connection) = self.config.pool.ready_connection(queued.hash_slot) {",
                "            let connection = self.config.pool.ready_connection(queued.hash_slot);
            {",
            ),
            edit(
                "limiter/redis/send/batcher.rs",
                "    connection: Arc<dyn SharedConnection>,
    permit: OwnedSemaphorePermit,
) {
    let (config, hash_slot) = (&batcher.config, queued.hash_slot);",
                "    connection: Option<Arc<dyn SharedConnection>>,
    permit: OwnedSemaphorePermit,
) {
    let (config, hash_slot) = (&batcher.config, queued.hash_slot);
    let connection = match connection {
        Some(connection) => connection,
        None => match config.pool.connection(hash_slot).await {
            Ok(connection) => connection,
            Err(error) => return queued.fail(error),
        },
    };",
            ),
        ],
    ),
    reverted(
        "units_asked_for_before_a_block_stay_taken",
        "00555bf lease: give back what was asked for before a block",
        &[edit(
            "limiter/lease/leased_keys.rs",
            "        if let Unspent::IsForgotten = unspent {",
            "        if let Unspent::IsForgotten | Unspent::IsReturned = unspent {",
        )],
    ),
    reverted(
        "held_units_of_a_late_leaver_expire",
        "3771c13 acquire: settle what a waiter holds that leaves late",
        &[edit(
            "limiter/acquire.rs",
            "            let is_of_use = |one: &Reservation| one.is_held() || Instant::now() < due;",
            "            let is_of_use = |_: &Reservation| Instant::now() < due;",
        )],
    ),
    reverted(
        "held_units_of_a_failed_reset_expire",
        "a9e332e layer: settle what a failed reset leaves held",
        &[edit(
            "future.rs",
            "                    if let (Err(_), Some(decision)) = (reset, this.decision) {
                        settle(this.shared, decision, (*answer).as_ref());
                    }",
            "                    drop(reset);",
        )],
    ),
    reverted(
        "slots_outlive_resets_and_blocks_of_others",
        "9754d3a line: void the slots of keys that others reset or block",
        &[
            edit(
                "limiter/line.rs",
                "        self.is_void || self.known.unnamed != known.unnamed",
                "        self.is_void && self.known.unnamed != known.unnamed + usize::MAX / 2",
            ),
            edit(
                "limiter/line.rs",
                "        self.is_void |= self.known != known;",
                "",
            ),
        ],
    ),
    reverted(
        "slots_of_waiters_outlive_a_reset",
        "bfe0e8b line: forget the slots of waiters too at a reset",
        &[edit(
            "limiter/line.rs",
            "                (slot.is_forgotten, slot.is_void) = (slot.is_forgotten || is_reset, true);",
            "                let _ = (slot, is_reset);",
        )],
    ),
    reverted(
        "kept_slot_lost_by_a_charge_that_gave_it_back",
        "1e14649 line: keep a slot again that a charge gave back",
        &[edit(
            "limiter/line.rs",
            "        let kept = self.slot().take_if(|slot| slot.is_kept && slot.due > now);",
            "        let kept = self.slot().take_if(|slot| slot.is_kept && slot.due < now && slot.due > now);",
        )],
    ),
    reverted(
        "place_in_line_kept_after_a_panic",
        "f3ef719 line: leave it when a panic cuts the beginning short",
        &[edit(
            "limiter/line.rs",
            "            self.change(|line| Some(line.waiters.remove(line.position(self)?)));",
            "            let _ = &self.key;",
        )],
    ),
    reverted(
        "refused_greeting_taken_for_a_silent_one",
        "d380ecf greeting: see that a HELLO was refused",
        &[edit(
            "limiter/redis/client/greeting.rs",
            "        match reply.and_then(Value::extract_error) {",
            "        match reply {",
        )],
    ),
    reverted(
        "wait_for_a_connection_judged_by_its_last_timer",
        "b2dc58e redis: judge a wait for a connection by all its timers",
        &[edit(
            "limiter/redis/client/pool.rs",
            "                if let Some(connected) = end.wait_for(&pool, connecting.as_mut()).await {",
            "                let in_time = tokio::time::timeout_at(end.at, connecting.as_mut()).await;
                if let Ok(connected) = in_time {",
        )],
    ),
    reverted(
        "slow_attempt_after_load_taken_for_a_hang",
        "63303cb cluster, sentinel: take no slow attempt after load for a hang",
        &[
            edit(
                "limiter/redis/client/backoff.rs",
                "    let stays = [ErrorKind::Infrastructure, ErrorKind::Saturation];",
                "    let stays = [ErrorKind::Infrastructure];",
            ),
            edit(
                "limiter/redis/client/sentinel/watch.rs",
                "            last_took = Some(took).filter(|_| error.kind() != ErrorKind::Saturation);",
                "            last_took = Some(took);",
            ),
        ],
    ),
    reverted(
        "hang_hides_that_the_server_was_away",
        "348fb04 redis: let load end a fault, and hide none",
        &[edit(
            "limiter/redis/client/backoff.rs",
            "    let stays = [ErrorKind::Infrastructure, ErrorKind::Saturation];",
            "    let stays = [ErrorKind::Saturation];",
        )],
    ),
    reverted(
        "fault_stays_while_load_ends_all_attempts",
        "348fb04 redis: let load end a fault, and hide none",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "                last_error.take_if(|error| error.kind() == ErrorKind::Infrastructure);
",
            "",
        )],
    ),
    reverted(
        "arrived_answers_lost_at_a_switch",
        "eb1faa6 redis: read what has arrived when a server is left",
        &[edit(
            "limiter/redis/client/health.rs",
            "            () = left => {}
            outcome",
            "            () = left => return None,
            outcome",
        )],
    ),
    reverted(
        "calls_to_a_server_that_was_left_go_on",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[
            edit(
                "limiter/redis/client/health.rs",
                "        self.left.notify_waiters();",
                "        let _ = &self.left;",
            ),
            edit(
                "limiter/redis/client/health.rs",
                "        if self.server.is_left.load(Relaxed) {
            return None;
        }",
                "",
            ),
        ],
    ),
    reverted(
        "end_within_a_reply_taken_for_an_odd_reply",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "limiter/redis/client/error.rs",
            "        redis::ErrorKind::Parse if ends_within_reply(&error) => {",
            "        redis::ErrorKind::Parse if ends_within_reply(&error) && error.is_timeout() => {",
        )],
    ),
    reverted(
        "ticks_of_timers_count_as_load",
        "07a63ab grace_period: count no tick of a timer as load",
        &[edit(
            "limiter/on_time.rs",
            "        self.late += self.next.elapsed().saturating_sub(2 * TICK);",
            "        self.late += self.next.elapsed();",
        )],
    ),
    reverted(
        "sentinel_that_refused_and_is_silent_since",
        "2708dde sentinel: see one that refused and is silent since",
        &[edit(
            "limiter/redis/client/sentinel/watch.rs",
            "                Some(took) => self.connect_or_report(end, took).await?,",
            "                Some(took) if Duration::is_zero(&took) => self.connect_or_report(end, took).await?,
                Some(_) => unless_busy(end, self.connect(end)).await,",
        )],
    ),
    reverted(
        "dead_sentinel_hides_load",
        "12360f3 sentinel: let load weigh more than a dead sentinel",
        &[edit(
            "limiter/redis/client/sentinel/reports.rs",
            "        match errors.max_by_key(|error| weight(error)) {",
            "        match { errors }.find(|error| weight(error) <= 2) {",
        )],
    ),
    reverted(
        "map_that_is_read_late_is_the_servers_fault",
        "29c2f61 redis: a slot map that is read late opens no gate",
        &[edit(
            "limiter/redis/client/cluster/refresh.rs",
            "        unless_busy(end, self.read_map(end)).await",
            "        match end.elapsed().is_zero() {
            true => self.read_map(end).await,
            false => unless_busy(end, self.read_map(end)).await,
        }",
        )],
    ),
    reverted(
        "sentinel_that_is_read_late_is_at_fault",
        "29c2f61 redis: a slot map that is read late opens no gate",
        &[edit(
            "limiter/redis/client/sentinel/watch.rs",
            "            match unless_busy(end, asking).await {",
            "            match asking.await {",
        )],
    ),
    reverted(
        "panic_while_the_map_is_read_is_the_servers_fault",
        "1141e6b redis: a panic before a cluster or sentinels opens no gate",
        &[edit(
            "limiter/redis/client/cluster/refresh.rs",
            "            Some(Err(ended)) if ended.is_panic() => {",
            "            Some(Err(ended)) if ended.is_cancelled() => {",
        )],
    ),
    reverted(
        "panic_before_sentinels_is_their_fault",
        "1141e6b redis: a panic before a cluster or sentinels opens no gate",
        &[edit(
            "limiter/redis/client/sentinel/watch.rs",
            "        if std::thread::panicking() {",
            "        if std::thread::panicking() && self.number == usize::MAX {",
        )],
    ),
    reverted(
        "late_calls_of_policies_in_turn_fail_open",
        "28771f5 policy: late calls in turn open no gate",
        &[edit(
            "limiter/combination/in_turn.rs",
            "        Err(error) if *answered => Err(after_other_calls(error, charge)),",
            "        Err(error) if *answered && charge.units() == u64::MAX => {
            Err(after_other_calls(error, charge))
        }",
        )],
    ),
    reverted(
        "late_calls_in_turn_fail_open",
        "7178843 within: share one deadline among sequential calls",
        &[edit(
            "limiter/combination/in_turn.rs",
            "        Err(error) if *answered => Err(after_other_calls(error, charge)),",
            "        Err(error) if *answered && charge.units() == u64::MAX => {
            Err(after_other_calls(error, charge))
        }",
        )],
    ),
    reverted(
        "each_call_in_turn_has_the_whole_time",
        "7178843 within: share one deadline among sequential calls",
        &[edit(
            "limiter/redis/all_at_once.rs",
            "        Err(charges.map(|one| one.map(|one| one.with_deadline(deadline))))",
            "        let _ = deadline;
        Err(charges)",
        )],
    ),
    reverted(
        "every_policy_settled_by_the_same_units",
        "252cbe6 policy: settle each policy by its own share",
        &[edit(
            "policy/policies.rs",
            "        Ok(held.settle(|_, own| in_proportion(own, cost, actual)).0)",
            "        let used = |own| if cost == u64::MAX { in_proportion(own, 1, 1) } else { actual };
        Ok(held.settle(|_, own| used(own)).0)",
        )],
    ),
    reverted(
        "burst_held_back_behind_a_dead_connection",
        "a8cafd0 worker: bound what waits for a connection",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        let end = first_sent + MAX_HOLD;",
            "        let end = first_sent + 20 * MAX_HOLD;",
        )],
    ),
    reverted(
        "slot_of_a_cluster_waits_for_a_silent_refund",
        "07f4155 cluster: give up a silent refund's slot early",
        &[edit(
            "limiter/redis/send/call.rs",
            "        if self.config.pool.is_routed() && !self.refund_slots.is_empty() {",
            "        if self.config.pool.is_routed() && self.refund_slots.len() > 20_000 {",
        )],
    ),
    reverted(
        "slot_that_nobody_serves_taken_for_load",
        "9acb4cd cluster: know a slot that nobody serves",
        &[
            edit(
                "limiter/redis/client/cluster/mod.rs",
                "            failure: self.refreshes.has_result().then(failed),",
                "            failure: Some(failed()).filter(|_| false),",
            ),
        ],
    ),
    reverted(
        "each_key_asked_for_where_one_has_moved",
        "63e7c20 cluster: ask the source about each key on Redis 6.2",
        &[edit(
            "limiter/redis/send/routed.rs",
            "                if let [Self { detour: Some(detour), .. }] = &mut batches[..] {
                    detour.asked = Some(host);
                }",
            "                let detours = batches.iter_mut().filter_map(|batch| batch.detour.as_mut());
                detours.for_each(|detour| detour.asked = Some(host.clone()));",
        )],
    ),
    reverted(
        "some_errors_fail_open_for_all",
        "40e65d0 breaker: errors open a gate only after silence",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            return Some(if is_silent { Trouble::Errors } else { Trouble::SomeErrors });",
            "            let _ = (is_silent, Trouble::SomeErrors);
            return Some(Trouble::Errors);",
        )],
    ),
    reverted(
        "saturated_probe_keeps_failing_open",
        "beb51be breaker: a saturated probe opens no gate",
        &[
            edit(
                "limiter/breaker/circuit.rs",
                "                    Outcome::Slow | Outcome::Saturated => {",
                "                    Outcome::Slow => {",
            ),
            edit(
                "limiter/breaker/circuit.rs",
                "                    Outcome::Answered | Outcome::Unknown => return None,",
                "                    Outcome::Answered | Outcome::Unknown | Outcome::Saturated => return None,",
            ),
        ],
    ),
    reverted(
        "breaker_opens_at_a_call_that_says_nothing",
        "5f84c87 breaker: open on failures only",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            Outcome::Saturated | Outcome::Unknown => return None,",
            "            Outcome::Saturated | Outcome::Unknown => {}",
        )],
    ),
    reverted(
        "shadow_counts_peeks",
        "4f12ecf shadow: count charges, not peeks",
        &[edit(
            "limiter/shadow.rs",
            "            0 => Handling::Admit,",
            "            u64::MAX => Handling::Admit,",
        )],
    ),
    reverted(
        "wrong_sentinel_believed_when_it_comes_back",
        "f9cf4d0 sentinel: no news when a wrong one comes back",
        &[edit(
            "limiter/redis/client/sentinel/reports.rs",
            "        self.all[sentinel] = report;",
            "        if let (Report::Unreachable(_), Some(known)) = (&report, &mut self.followed) {
            known.1 = 0;
        }
        self.all[sentinel] = report;",
        )],
    ),
    reverted(
        "map_not_read_when_a_server_cannot_serve",
        "d5a3da4 cluster: read the slot map when a server cannot serve",
        &[edit(
            "limiter/redis/send/routed.rs",
            "                    cluster.doubt(connection.address());",
            "                    let _ = cluster;",
        )],
    ),
    reverted(
        "slot_waits_for_a_refund_that_was_sent_again",
        "3af2307 cluster: open a slot after a refund that was sent again",
        &[edit(
            "limiter/redis/send/batch.rs",
            "        self.requests.iter().any(|queued| matches!(queued.request.op, Op::Refund { .. }))",
            "        let first = self.requests.first();
        first.is_some_and(|queued| matches!(queued.request.op, Op::Refund { .. }))",
        )],
    ),
    reverted(
        "retry_of_a_member_repeated",
        "3af2f8f deny_cache: do not repeat a retry of a member",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "        if decision.origin() == Origin::Cache || decision.was_retry() {",
            "        if decision.origin() == Origin::Cache {",
        )],
    ),
    reverted(
        "refusal_beside_a_refund_kept_for_long",
        "798dc78 deny_cache: keep a refusal beside a refund for 100 ms",
        &[
            edit(
                "limiter/deny_cache/refusal_shard.rs",
                "            refusal.end_soon();",
                "            let _ = &mut refusal;",
            ),
            edit(
                "limiter/deny_cache/refusal_shard.rs",
                "            self.refusals[*index].end_soon_if_kept_since(asked_at, now);",
                "            let _ = (&self.refusals[*index], asked_at);",
            ),
        ],
    ),
    reverted(
        "silence_begins_before_the_last_reply",
        "666abb7 redis: a silence begins after the last reply",
        &[
            edit(
                "limiter/redis/client/health.rs",
                "        let sent = sent.max(self.last_end.load(Relaxed));
",
                "",
            ),
            edit(
                "limiter/redis/client/health.rs",
                "        begun.max(self.last_end.load(Relaxed))",
                "        begun",
            ),
        ],
    ),
    reverted(
        "silence_during_late_timers_is_short",
        "1845070 redis: a client library's timeout in a busy process is load",
        &[edit(
            "limiter/redis/client/liveness.rs",
            "        let is_busy = self.last_late_timer.load(Relaxed) >= since;",
            "        let is_busy = self.last_late_timer.load(Relaxed) >= since && since > now;",
        )],
    ),
    reverted(
        "silence_of_a_busy_process_is_short",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/client/health.rs",
            "        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR } else { 1 };",
            "        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR / BUSY_FACTOR } else { 1 };",
        )],
    ),
    reverted(
        "slow_attempt_to_connect_is_the_servers_fault",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/client/facts.rs",
            "            let message = format!(\"the connection to {server} is not ready yet\");
            return Error::new(ErrorKind::Saturation, message);",
            "            let message = format!(\"the connection to {server} is not ready yet\");
            return Error::new(ErrorKind::Infrastructure, message);",
        )],
    ),
    reverted(
        "deadline_before_the_sending_is_the_servers_fault",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/send/pending.rs",
            "                        return Poll::Ready(Err(Error::new(ErrorKind::Saturation, message)));",
            "                        return Poll::Ready(Err(Error::new(ErrorKind::Infrastructure, message)));",
        )],
    ),
    reverted(
        "pauses_of_an_outage_go_on_after_it",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/client/backoff.rs",
            "        if !self.was_unusable {
            *self = Self::default();
        }",
            "",
        )],
    ),
    reverted(
        "refunds_of_a_late_call_lose_their_turn",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/send/call.rs",
            "        let late_reply = self.late_reply(sending, sent, connection);
        CallEnd { partition, late_reply: Some(Box::pin(late_reply)), ..CallEnd::default() }",
            "        let refunds_done = self.refund_slots.clone();
        let late_reply = self.late_reply(sending, sent, connection);
        CallEnd {
            partition,
            refunds_done,
            late_reply: Some(Box::pin(late_reply)),
            ..CallEnd::default()
        }",
        )],
    ),
    reverted(
        "request_that_never_reached_the_service_keeps_its_units",
        "706871a layer: refund a request that never reaches the inner service",
        &[
            edit(
                "future.rs",
                "                StateProj::Readying => refund(this.shared, this.decision),",
                "                StateProj::Readying => {}",
            ),
            edit(
                "future.rs",
                "                    if let Err(error) = ready!(this.inner.poll_ready(cx)) {
                        refund(this.shared, this.decision);",
                "                    if let Err(error) = ready!(this.inner.poll_ready(cx)) {",
            ),
        ],
    ),
    reverted(
        "first_missed_deadline_dated_by_the_start",
        "27c545d pool: date the first missed deadline of a slot by now",
        &[edit(
            "limiter/redis/client/liveness.rs",
            "            Ok(_) => now,",
            "            Ok(_) => 1,",
        )],
    ),
    reverted(
        "paused_process_gives_up_its_connection",
        "3bd3ff8 redis: a paused process waits on for its connection",
        &[edit(
            "limiter/redis/client/pool.rs",
            "                if error.kind() != ErrorKind::Saturation || !end.is_late() {",
            "                if error.kind() != ErrorKind::Saturation || !end.is_late() || hash_slot < u16::MAX {",
        )],
    ),
    reverted(
        "attempts_to_connect_outlive_the_pool",
        "1a9d162 redis: end attempts to connect with the pool",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "            _ = pool.changed() => {}
        }
    }
}

impl Drop",
            "            () = async {
                let _ = pool.changed().await;
                std::future::pending::<()>().await;
            } => {}
        }
    }
}

impl Drop",
        )],
    ),
    reverted(
        "late_timer_counts_for_its_own_charge_alone",
        "bfa293f redis: count a late timer of any charge as load",
        &[edit(
            "limiter/redis/client/fault.rs",
            "            pool.liveness().record_busy();
        }
        pool.liveness().was_busy_since(self.start)",
            "            return true;
        }
        pool.liveness().was_busy_since(self.start)",
        )],
    ),
    reverted(
        "attempt_that_panicked_keeps_its_place",
        "741f6b3 redis: keep connections in a pool of the crate's own",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "        let Some(pool) = self.pool.upgrade() else { return };
        let (mut state, now)",
            "        let Some(pool) = self.pool.upgrade().filter(|_| self.result.is_some()) else { return };
        let (mut state, now)",
        )],
    ),
    reverted(
        "demoted_server_connected_to_without_pauses",
        "741f6b3 redis: keep connections in a pool of the crate's own",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "            self.backoff.record_unusable(*since);",
            "            let _ = since;",
        )],
    ),
    reverted(
        "limiter_settles_what_its_fallback_decided",
        "3acd29d or_else: settle with the limiter that decided",
        &[edit(
            "limiter/or_else.rs",
            "        settled.or_else(|reservation| self.standby.fallback.settle_own(reservation, actual))",
            "        settled",
        )],
    ),
    reverted(
        "call_without_a_reply_keeps_its_place_in_flight",
        "b5383b3 redis: free the place of a call that gets no reply",
        &[edit(
            "limiter/redis/send/call.rs",
            "        let earliest = deadlines().min().unwrap_or(sent).min(sent + PATIENCE);",
            "        let earliest = deadlines().max().unwrap_or(sent).min(sent + 1_000 * PATIENCE);",
        )],
    ),
    reverted(
        "connection_left_at_its_first_missed_deadlines",
        "c930ae4 redis: give up a connection after a silence, not three calls",
        &[edit(
            "limiter/redis/client/health.rs",
            "        if self.silence.begin_or_continue(sent) + limit <= now {",
            "        if self.silence.begin_or_continue(sent) <= now {",
        )],
    ),
    reverted(
        "oldest_refund_first",
        "c4b52fa redis: unwind bookings last first, whatever their number",
        &[edit(
            "limiter/redis/send/queue.rs",
            "        let refund = self.refunds.pop_last().map(|(_, queued)| queued);",
            "        let refund = self.refunds.pop_first().map(|(_, queued)| queued);",
        )],
    ),
    reverted(
        "next_request_passes_a_refund",
        "5d4f553 redis: a refund comes before its caller's next request",
        &[
            edit(
                "limiter/redis/send/worker.rs",
                "        if call.has_refunds() && !self.config.pool.is_routed() {",
                "        if call.has_refunds() && hash_slot == u16::MAX {",
            ),
            edit(
                "limiter/redis/send/worker.rs",
                "        self.calls.spawn(sent_now(call).await);",
                "        self.calls.spawn(call);",
            ),
        ],
    ),
    reverted(
        "call_with_refunds_overtakes_others",
        "9795b90 redis: let calls leave in the order in which they were put together",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        let call = send_call(Arc::clone(&self.config), connection, call);
        self.calls.spawn(sent_now(call).await);",
            "        let keeps_order = call.has_refunds();
        let call = send_call(Arc::clone(&self.config), connection, call);
        if keeps_order {
            self.calls.spawn(sent_now(call).await);
        } else {
            self.calls.spawn(call);
        }",
        )],
    ),
    reverted(
        "two_servers_that_are_no_primary_asked_without_a_pause",
        "5e555b0 sentinel: pause between servers that both are no primary",
        &[edit(
            "limiter/redis/client/sentinel/mod.rs",
            "            primary_changed(&self.service_name, &address);
        }
        true",
            "            primary_changed(&self.service_name, &address);
        }
        self.switches.fetch_add(1, Relaxed);
        true",
        )],
    ),
    reverted(
        "sentinels_not_watched_after_a_panic",
        "2c57efa sentinel: watch on soon after a panic",
        &[edit(
            "limiter/redis/client/sentinel/mod.rs",
            "                _ = tasks.join_next() => has_panicked = true,",
            "                _ = tasks.join_next() => return None,",
        )],
    ),
    reverted(
        "charge_sent_after_its_time",
        "5363a83 redis: send no charge whose time is over",
        &[edit(
            "limiter/redis/send/queued.rs",
            "!caller.is_closed() && now < self.deadline,",
            "!caller.is_closed(),",
        )],
    ),
    reverted(
        "refunds_wait_behind_charges",
        "5d4f553 redis: a refund comes before its caller's next request",
        &[edit(
            "limiter/redis/send/queue.rs",
            "        let refund = self.refunds.pop_last().map(|(_, queued)| queued);
        refund.or_else(|| self.requests.pop_front())",
            "        let request = self.requests.pop_front();
        request.or_else(|| self.refunds.pop_last().map(|(_, queued)| queued))",
        )],
    ),
    reverted(
        "settlement_refused_by_a_full_queue",
        "af96eac redis: settlements pass a full queue",
        &[edit(
            "limiter/redis/send/batcher.rs",
            "        queued.reply_to = ReplyTo::Settlement(sender);
        self.push(queued)",
            "        queued.reply_to = ReplyTo::Settlement(sender);
        let worker = self.worker()?;
        self.enqueue(&worker, queued)",
        )],
    ),
    reverted(
        "late_answers_dropped",
        "8919b71 pool: a builder, and answers that come too late are undone",
        &[edit(
            "limiter/redis/send/call.rs",
            "        let late_reply = self.late_reply(sending, sent, connection);
",
            "        drop(sending);
        let late_reply = self.late_reply(Box::pin(std::future::pending()), sent, connection);
",
        )],
    ),
    reverted(
        "silence_counts_for_one_connection_alone",
        "8919b71 pool: a builder, and answers that come too late are undone",
        &[edit(
            "limiter/redis/client/health.rs",
            "        if self.generation == self.server.generation.load(Relaxed)
            && self",
            "        if self.generation == self.server.generation.load(Relaxed).wrapping_add(1)
            && self",
        )],
    ),
    reverted(
        "login_that_changed_waits_for_the_pause",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "        if state.switches != switches {",
            "        if state.switches != switches && state.switches > switches {",
        )],
    ),
    reverted(
        "short_caller_of_a_lease_waits_for_a_long_refill",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "limiter/lease/leased_key.rs",
            "        other.is_none_or(|other| other == runtime && !end.map_or(deadline.is_some(), is_before))",
            "        let _ = (is_before, end);
        other.is_none_or(|other| other == runtime)",
        )],
    ),
    reverted(
        "turned_away_by_a_cluster_in_a_busy_process_fails_open",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "limiter/redis/client/fault.rs",
            "    if !seen.was_late && seen.was_turned_away {",
            "    if seen.was_turned_away {",
        )],
    ),
    reverted(
        "word_to_a_waiter_of_redisson_who_is_gone_lost",
        "66fa24d redisson: what two reviews found",
        &[edit(
            "redisson/queues.rs",
            "        if self.was_received {
            return;
        }",
            "        if self.was_received || !self.name.is_empty() {
            return;
        }",
        )],
    ),
    reverted(
        "refund_of_redisson_over_another_connection",
        "af17ced redisson: undo over the connection that was used",
        &[edit(
            "redisson/take_permits.rs",
            "            if let Some(connection) = connection {",
            "            if let Some(connection) = connection.filter(|_| refund.keys.name().is_empty()) {",
        )],
    ),
    reverted(
        "late_grant_of_redisson_undone_before_it_is_heard",
        "66fa24d redisson: what two reviews found",
        &[edit(
            "redisson/take_permits.rs",
            "                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT, reply).await",
            "                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT / 1_000_000, reply).await",
        )],
    ),
    reverted(
        "deny_cache_outlives_the_table",
        "87635c1 policy: let no deny cache outlive a table",
        &[edit(
            "policy/table.rs",
            "        let mut text = self.table.number.to_string();",
            "        let mut text = String::new();",
        )],
    ),
    reverted(
        "policies_in_a_shadow_charged_for_refused_requests",
        "9fe9b94 policy: ask those in a shadow after the others",
        &[edit(
            "policy/decide_policies.rs",
            "        Some(Ok((decision, _))) if decision.is_admitted() => check_in_shadow(&in_shadow).await,",
            "        Some(Ok((decision, _))) if decision.waited() >= std::time::Duration::ZERO => {
            check_in_shadow(&in_shadow).await
        }",
        )],
    ),
    reverted(
        "lease_around_policies_takes_several_units",
        "127b1e9 policy: refuse charges whose cost somebody changed",
        &[edit(
            "policy/policies.rs",
            "        if ![0, selection.cost()].contains(&charge.units()) {",
            "        if ![0, selection.cost(), charge.units()].contains(&charge.units()) {",
        )],
    ),
    reverted(
        "reservation_of_a_check_stands_in_line",
        "f3a632d line: only those who have begun to wait stand in line",
        &[edit(
            "limiter/configured.rs",
            "        let slot = Slot::new(&decision, wait, mark, known);
        decision.set_turn(Place::new(&self.lines, line, slot, store()));",
            "        let slot = Slot::new(&decision, wait, mark, known);
        let place = Place::new(&self.lines, line, slot, store());
        crate::waiters::Waiters::add(&*place);
        decision.set_turn(place);",
        )],
    ),
    reverted(
        "refund_waits_for_the_text_of_its_script",
        "5d4f553 redis: a refund comes before its caller's next request",
        &[edit(
            "limiter/redis/script/mod.rs",
            "        Self { source, is_known: Arc::default() }",
            "        Self { source, is_known: Arc::new(AtomicBool::new(true)) }",
        )],
    ),
    reverted(
        "an_attempt_that_hangs_keeps_others_waiting",
        "redis: connect again beside an attempt that hangs",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "        self.newest.map(|begun| begun + MAX_SILENCE).filter(|next| *next > now)",
            "        self.newest.map(|begun| begun + 5 * MAX_SILENCE).filter(|next| *next > now)",
        )],
    ),
    reverted(
        "time_of_a_process_that_stood_still_is_silence",
        "redis: count no time in which the process stood still",
        &[edit(
            "limiter/redis/client/health.rs",
            "        let sent = if is_busy { now } else { self.server.clock(sent) };",
            "        let sent = if is_busy && now == 0 { now } else { self.server.clock(sent) };",
        )],
    ),
    reverted(
        "slot_of_before_a_reset_looks_like_one_of_after_it",
        "6179490 line: leave no slot of before a reset",
        &[edit(
            "limiter/configured.rs",
            "        let slot = Slot::new(&decision, wait, mark, known);",
            "        let _ = known;
        let slot = Slot::new(&decision, wait, mark, self.lines.known());",
        )],
    ),
    reverted(
        "pause_since_a_connection_was_looked_at",
        "c56b30d redis: pause since a connection became useless",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "            let since = connection.useless_since().min(now);",
            "            let since = connection.useless_since().max(now);",
        )],
    ),
    reverted(
        "pause_since_the_end_of_a_slow_attempt",
        "redis: pause since an attempt began, not since it failed",
        &[edit(
            "limiter/redis/client/own_pool.rs",
            "            Some(Err(failure)) => {
                backoff.record_failure(self.begun);",
            "            Some(Err(failure)) => {
                backoff.record_failure(now);",
        )],
    ),
    reverted(
        "process_that_stands_still_until_the_deadline_blames_the_server",
        "redis: see a process that stands still until a deadline",
        &[edit(
            "limiter/redis/client/fault.rs",
            "        if timers.show_load() {
            pool.liveness()",
            "        if was_last && self.grace_period.is_late() {
            pool.liveness()",
        )],
    ),
    reverted(
        "one_timer_alone_shows_load",
        "redis: judge this process by ten timers of a decision's time",
        &[
            edit(
                "limiter/on_time.rs",
                "(end.saturating_duration_since(begun) / WATCHED_TIMERS).max(TICK)",
                "end.saturating_duration_since(begun).max(TICK)",
            ),
            edit(
                "limiter/on_time.rs",
                "4 * self.late > self.interval * WATCHED_TIMERS",
                "4 * self.late > self.interval",
            ),
        ],
    ),
    reverted(
        "server_refuted_late_is_left_out_after_a_switch",
        "sentinel: follow a switch back to a server that was refuted late",
        &[edit(
            "limiter/redis/client/sentinel/reports.rs",
            ".unwrap_or_else(|| self.newest_epoch());
        self.refuted",
            ".unwrap_or(u64::MAX);
        self.refuted",
        )],
    ),
    reverted(
        "server_that_was_read_only_is_left_out_though_no_other_is_named",
        "sentinel: ask a server again that was no primary if no other is named",
        &[edit(
            "limiter/redis/client/sentinel/reports.rs",
            "                candidates.iter().filter(may_follow).max_by_key(|one| {",
            "                candidates.iter().filter(|one| !is_refuted(one)).max_by_key(|one| {",
        )],
    ),
    reverted(
        "old_failure_to_connect_blames_the_server",
        "redis: an old failure to connect says nothing of a busy process's attempt",
        &[edit(
            "limiter/redis/client/facts.rs",
            "        let failure = self.failure.as_ref().filter(|failure| failure.at >= since);",
            "        let failure = self.failure.as_ref().filter(|failure| failure.at >= since.and(None));",
        )],
    ),
    reverted(
        "last_operation_in_turn_blames_the_server",
        "all_in_turn: take no lack of time for a fault of the store",
        &[edit(
            "limiter/combination/in_turn.rs",
            "            let decision = after_others(answer.await, &part.charge, &mut answered)?;",
            "            answered |= part.charge.units() > 0;
            let decision = answer.await?;",
        )],
    ),
    reverted(
        "first_answer_after_a_fault_opens_a_breaker",
        "breaker: open with a failure, and never with an answer",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            return trouble.filter(|_| is_long && outcome != Outcome::Answered);",
            "            return trouble.filter(|_| is_long);",
        )],
    ),
    reverted(
        "time_of_a_decision_begins_before_it_is_asked",
        "redis: let the time of a decision begin with its first poll",
        &[edit(
            "limiter/redis/redis_future.rs",
            "                let deadline = timeout::deadline(charge, MAX_TIMEOUT);",
            "                let own = inner.reply_timeout().min(MAX_TIMEOUT);
                let deadline = timeout::deadline(charge, own);",
        )],
    ),
    reverted(
        "server_that_was_no_primary_is_left_out_after_a_switch",
        "sentinel: follow a later switch to a server that was no primary",
        &[edit(
            "limiter/redis/client/sentinel/reports.rs",
            "self.epoch_of(host).is_none_or(|now| now <= *epoch)",
            "self.epoch_of(host).is_none_or(|_| *epoch > 0)",
        )],
    ),
    reverted(
        "rare_calls_keep_a_dead_connection",
        "a02b7a1 health: rare callers leave a dead connection",
        &[edit(
            "limiter/redis/client/health.rs",
            "            Err(begun) => begun,",
            "            Err(begun) if begun + 2_000_000 < sent => {
                self.begun.store(sent, Relaxed);
                sent
            }
            Err(begun) => begun,",
        )],
    ),
    reverted(
        "waiters_of_one_instant_in_the_order_of_their_marks",
        "23c0670 line: of one instant, the first that came moves up first",
        &[edit(
            "limiter/line.rs",
            "partition_point(|other| other.at <= slot.at);",
            "partition_point(|other| other.is_before(&slot));",
        )],
    ),
];
