//! Faults of the client of one server: connections, the queue, calls and deadlines.

use super::{Fault, edit, planted};

pub(super) const FAULTS: &[Fault] = &[
    planted(
        "charge_sent_again_after_a_cut",
        &[edit(
            "limiter/redis/send/call.rs",
            "    let Some(reply) = eval(Arc::clone(&connection), script, arguments).await else {
        return CallEnd::default();
    };
",
            "    let Some(mut reply) = eval(Arc::clone(&connection), script, arguments).await else {
        return CallEnd::default();
    };
    if !is_reply(&reply)
        && let Ok(other) = config.pool.client.connection(0).await
        && let Some(again) = eval(other, script, arguments).await
    {
        reply = again;
    }
",
        )],
    ),
    planted(
        "refund_dropped_without_a_connection",
        &[edit(
            "limiter/redis/send/batcher.rs",
            "        match self.worker()?.push(queued) {",
            "        if self.config.pool.client.ready_connection(queued.hash_slot).is_none() {
            return Ok(());
        }
        match self.worker()?.push(queued) {",
        )],
    )
    .found_by("simulation", "strikes::units_come_back_also_where_no_connection_is_left"),
    planted(
        "refund_of_a_caller_who_left_dropped_by_the_worker",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        for request in ended.refunds {",
            "        for request in ended.refunds.into_iter().take(0) {",
        )],
    ),
    planted(
        "refund_of_a_caller_who_left_never_asked_for",
        &[edit(
            "limiter/redis/send/batch.rs",
            "            Err(Ok(completed)) => completed.into_refund(),",
            "            Err(Ok(_)) => None,",
        )],
    ),
    planted(
        "charge_dropped_on_its_way_with_its_caller",
        &[edit(
            "limiter/redis/send/pending.rs",
            "            runtime.spawn(inline.future);",
            "            drop((runtime, inline.future));",
        )],
    ),
    planted(
        "late_answer_not_awaited",
        &[edit(
            "limiter/redis/send/call.rs",
            "        let until = self.latest + LATE_REPLY_TIMEOUT;",
            "        let until = Instant::now();",
        )],
    ),
    planted(
        "place_in_the_queue_not_returned",
        &[edit(
            "limiter/redis/send/queue.rs",
            "            queued.queue_permit = None;",
            "            std::mem::forget(queued.queue_permit.take());",
        )],
    ),
    planted(
        "place_in_flight_not_returned",
        &[edit(
            "limiter/redis/send/partitions.rs",
            "            state.calls_in_flight -= 1;
            state.requests_in_flight -= requests;",
            "            state.requests_in_flight -= requests;
            if state.requests_in_flight > 0 {
                state.calls_in_flight -= 1;
            }",
        )],
    ),
    planted(
        "queue_entry_never_answered",
        &[edit(
            "limiter/redis/send/queue.rs",
            "                waiting.into_iter().for_each(|queued| queued.fail(error.clone()));",
            "                std::mem::forget(waiting);",
        )],
    ),
    planted(
        "queue_fails_where_it_should_wait_for_a_connection",
        &[edit(
            "limiter/redis/send/worker.rs",
            "                self.queue.set_connecting(partition, true);",
            "                self.queue.set_connecting(partition, true);
                let none = crate::Error::new(crate::ErrorKind::Infrastructure, \"none\");
                self.queue.regroup(partition, Some(&none));",
        )],
    ),
    planted(
        "worker_waits_for_ever_for_a_connection",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        self.queue.set_connecting(partition, false);
        self.queue.regroup(",
            "        if outcome.is_ok() {
            self.queue.set_connecting(partition, false);
        }
        self.queue.regroup(",
        )],
    ),
    planted(
        "reply_to_another_caller_of_the_batch",
        &[edit(
            "limiter/redis/send/batch.rs",
            "    requests.into_iter().enumerate().filter_map(complete).collect()",
            "    requests.into_iter().rev().enumerate().filter_map(complete).collect()",
        )],
    ),
    planted(
        "batch_of_a_key_out_of_order",
        &[edit(
            "limiter/redis/send/batch.rs",
            "        requests.sort_by(|one, other| one.request.key.cmp(&other.request.key));",
            "        requests.reverse();
        requests.sort_by(|one, other| one.request.key.cmp(&other.request.key));",
        )],
    ),
    planted(
        "newest_charge_sent_first",
        &[edit(
            "limiter/redis/send/queue.rs",
            "        refund.or_else(|| self.requests.pop_front())",
            "        refund.or_else(|| self.requests.pop_back())",
        )],
    ),
    planted(
        "unknown_script_is_an_error",
        &[edit(
            "redis-once/script.rs",
            "        if !matches!(&reply, Err(error) if error.kind() == no_script) {",
            "        let is_reply = super::error_reply::is_reply(&reply);
        if is_reply || !matches!(&reply, Err(error) if error.kind() == no_script) {",
        )],
    ),
    planted(
        "script_forgotten_for_good_once_it_was_known",
        &[edit(
            "redis-once/script.rs",
            "    if reply.is_ok() {
        script.record_run();
    }",
            "    if reply.is_ok() && script.is_known() {
        return None;
    }",
        )],
    )
    .found_by("redis", "batcher::one_alone_is_one_call_and_a_batch_of_one_is_a_setting"),
    planted(
        "load_fails_open",
        &[edit(
            "error.rs",
            "        self == Self::Infrastructure",
            "        matches!(self, Self::Infrastructure | Self::Saturation)",
        )],
    ),
    planted(
        "missing_answer_is_always_the_servers",
        &[edit(
            "redis-once/fault.rs",
            "    if was_late || seen.others_answer {",
            "    if (was_late || seen.others_answer) && false {",
        )],
    ),
    planted(
        "missing_answer_is_always_load",
        &[edit(
            "redis-once/fault.rs",
            "    if was_late || seen.others_answer {",
            "    if was_late || seen.others_answer || true {",
        )],
    ),
    planted(
        "deadline_counted_twice",
        &[edit(
            "redis-once/fault.rs",
            "        Timers::until(self.grace_period.begin())",
            "        Timers::until(self.at + self.at.saturating_duration_since(self.start))",
        )],
    ),
    planted(
        "deadline_counted_from_the_sending",
        &[edit(
            "limiter/redis/send/pending.rs",
            "        let Submitted { receiver, inline, progress } = batcher.submit(queued)?;",
            "        let Submitted { receiver, inline, progress } = batcher.submit(queued)?;
        let at = Instant::now() + super::super::DEFAULT_DECISION_TIMEOUT;
        let deadline = Deadline::new(at, deadline.hash_slot);",
        )],
    ),
    planted(
        "timer_of_a_caller_not_polled",
        &[edit(
            "limiter/redis/send/pending.rs",
            "            ready!(timer.as_mut().poll(cx));",
            "            if this.receiver.is_some() {
                return Poll::Pending;
            }
            ready!(timer.as_mut().poll(cx));",
        )],
    ),
    planted(
        "closed_connection_kept",
        &[
            edit(
                "redis-once/connection.rs",
                "            Err(error) if error.is_unrecoverable_error() => self.retire(ConnectionState::Closed),",
                "            Err(error) if error.is_unrecoverable_error() => {}",
            ),
            edit(
                "redis-once/server.rs",
                "        self.0.retire(ConnectionState::Closed);
    }",
                "        let _ = &self.0;
    }",
            ),
        ],
    ),
    planted(
        "silent_connection_kept",
        &[edit(
            "redis-once/connection.rs",
            "        let limit = (2 * now.saturating_sub(sent)).max(max_silence.as_micros() as u64);",
            "        let limit = u64::MAX / 4 + max_silence.as_micros() as u64;",
        )],
    ),
    planted(
        "silent_server_taken_for_a_silent_connection",
        &[edit(
            "redis-once/connection.rs",
            "            self.server.generation.store(next, Release);",
            "            let _ = next;",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_useless_connection_says_since_when"),
    planted(
        "read_only_connection_kept",
        &[
            edit(
                "limiter/redis/send/batch.rs",
                "        if reply.as_ref().is_err_and(met_read_only) {",
                "        if false {",
            ),
            edit(
                "limiter/redis/send/batch.rs",
                "    if reply.texts().any(|text| is_read_only(&text)) {",
                "    if false {",
            ),
        ],
    )
    .found_by("faults", "error_texts::a_connection_to_a_server_that_takes_no_writes_is_replaced"),
    planted(
        "connection_leaked",
        &[edit(
            "redis-once/own_pool.rs",
            "                entry.connection = Some(Arc::new(connection));",
            "                let connection = Arc::new(connection);
                std::mem::forget(Arc::clone(&connection));
                entry.connection = Some(connection);",
        )],
    ),
    planted(
        "attempt_to_connect_without_an_end",
        &[edit(
            "redis-once/server.rs",
            "        let in_time = timeout_at(deadline, opened).await;",
            "        let in_time = timeout_at(deadline + 100 * self.connect_timeout, opened).await;",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_without_an_answer_ends_in_time_and_no_pause_follows"),
    planted(
        "closed_connection_used_after_a_rest",
        &[edit(
            "redis-once/own_pool.rs",
            "            } else if connection.socket.is_closed() {",
            "            } else if connection.socket.is_closed() && is_long {",
        )],
    )
    .found_by(
        "faults",
        "rest::a_connection_that_is_killed_while_its_thread_stands_still_is_replaced_before_it_is_used",
    ),
    planted(
        "replies_without_a_bound",
        &[edit(
            "redis-once/wire.rs",
            "        if self.unanswered.fetch_add(count, Relaxed) + count > MAX_REPLY {",
            "        if self.unanswered.fetch_add(count, Relaxed) > MAX_REPLY << 6 {",
        )],
    )
    .found_by("faults", "replies::a_reply_without_an_end_is_cut_off"),
    planted(
        "replica_used_although_a_primary_has_its_name",
        &[edit(
            "redis-once/server.rs",
            "                    Some(peer) if seeks_primary && greeting.is_replica() => {",
            "                    Some(peer) if !seeks_primary && greeting.is_replica() => {",
        )],
    )
    .found_by("faults", "addresses::a_name_of_a_replica_and_its_primary_leads_to_the_primary"),
    planted(
        "connection_kept_through_a_suspend",
        &[edit(
            "redis-once/own_pool.rs",
            "        of_world.saturating_sub(now.0.saturating_duration_since(before))",
            "        of_world.min(now.0.saturating_duration_since(before))",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::after_a_suspend_a_new_connection_comes_first"),
    planted(
        "attempt_that_failed_keeps_its_place",
        &[edit(
            "redis-once/own_pool.rs",
            "                ended = Some(Err(failure));",
            "                entry.attempts.push(Instant::now());
                ended = Some(Err(failure));",
        )],
    )
    .found_by(
        "faults",
        "connections::a_resolver_that_panics_opens_no_gate_before_a_cluster_or_sentinels",
    ),
    planted(
        "pause_between_attempts_never_ends",
        &[edit(
            "redis-once/backoff.rs",
            "        self.next = self.next.max(Some(begun + self.pause()));",
            "        self.next = self.next.max(Some(begun + 100 * self.pause()));",
        )],
    ),
    planted(
        "old_fault_remembered_after_a_success",
        &[edit(
            "redis-once/own_pool.rs",
            "                backoff.record_success();
                *last_error = None;",
            "                backoff.record_success();",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::a_failure_before_the_last_connection_counts_no_more"),
    planted(
        "waiter_for_a_connection_not_woken",
        &[edit(
            "redis-once/own_pool.rs",
            "        pool.changed.notify_waiters();",
            "        let _ = &pool.changed;",
        )],
    ),
    planted(
        "settlement_sent_twice",
        &[edit(
            "limiter/redis/send/batcher.rs",
            "        let mut queued = QueuedRequest::without_receiver(&self.config.pool, request, deadline);
        queued.reply_to = ReplyTo::Settlement(sender);",
            "        let pool = &self.config.pool;
        self.push(QueuedRequest::without_receiver(pool, request.clone(), deadline))?;
        let mut queued = QueuedRequest::without_receiver(&self.config.pool, request, deadline);
        queued.reply_to = ReplyTo::Settlement(sender);",
        )],
    ),
    planted(
        "settlement_says_nothing_was_given_back",
        &[edit(
            "limiter/redis/send/batch.rs",
            "                sender.end(Ok(Settled::of(entry.settled())));",
            "                sender.end(Ok(Settled::of(0)));",
        )],
    ),
    planted(
        "settlement_that_takes_more_is_lost",
        &[edit(
            "limiter/redis/limiter.rs",
            "            Ordering::Greater if !A::holds(&rule) => {",
            "            Ordering::Greater if !A::holds(&rule) && cost > units(u64::MAX) => {",
        )],
    ),
    planted(
        "hold_of_a_budget_never_settled",
        &[edit(
            "limiter/redis/limiter.rs",
            "            Ordering::Equal if !A::holds(&rule) => return Ok(Settlement::gave_back(0)),",
            "            Ordering::Equal => return Ok(Settlement::gave_back(0)),",
        )],
    ),
    planted(
        "penalty_lost",
        &[edit(
            "limiter/redis/limiter.rs",
            "            Some(Operation::Penalize) => Self::Penalize { cost, births },",
            "            Some(Operation::Penalize) => Self::Penalize { cost: cost.min(0), births },",
        )],
    ),
    planted(
        "reset_that_resets_nothing",
        &[edit(
            "limiter/redis/limiter.rs",
            "            Some(Operation::Reset) => Self::Reset,",
            "            Some(Operation::Reset) => Self::Unblock,",
        )],
    ),
    planted(
        "refund_of_all_where_a_part_was_used",
        &[edit(
            "limiter/redis/limiter.rs",
            "            _ => Op::Refund { units: cost - actual, cost, mark: mark.clone() },",
            "            _ => Op::Refund { units: cost, cost, mark: mark.clone() },",
        )],
    ),
    planted(
        "refund_under_another_quota",
        &[edit(
            "limiter/redis/limiter.rs",
            "        let quota = rule.as_ref().map(|_| quota.clone());
        let request = Request { key: key.as_str().to_owned(), quota, rule, op };",
            "        let quota = rule.as_ref().map(|_| quota.clone());
        let request = Request { key: key.as_str().to_owned(), quota, rule: None, op };",
        )],
    ),
    planted(
        "wait_reserved_and_not_waited_for",
        &[edit(
            "limiter/acquire.rs",
            "                        ready!(sleep.as_mut().poll(cx));
                    }
                    let went_at",
            "                        let _ = sleep.as_mut().poll(cx);
                    }
                    let went_at",
        )],
    ),
    planted(
        "waiter_who_leaves_keeps_its_units",
        &[edit(
            "limiter/acquire.rs",
            "            if let Some(reservation) = reservation.filter(is_of_use) {",
            "            if let Some(reservation) = reservation.filter(is_of_use).filter(|_| false) {",
        )],
    ),
    planted(
        "queue_full_after_a_few_charges",
        &[edit(
            "limiter/redis/limiter.rs",
            "Semaphore::new(charges.clamp(1, Semaphore::MAX_PERMITS))",
            "Semaphore::new(charges.clamp(1, 4))",
        )],
    ),
    planted(
        "both_keys_of_a_batch_charged_as_one",
        &[edit(
            "limiter/redis/script/mod.rs",
            "            let mut suffixes = key_suffixes(&group[0].key, self.key_prefixes.len());",
            "            let mut suffixes = key_suffixes(&groups[0][0].key, self.key_prefixes.len());",
        )],
    ),
    planted(
        "refusal_taken_for_foreign_data",
        &[edit(
            "redis-once/error_reply.rs",
            "        row.map_or(ErrorKind::Configuration, |(kind, _)| *kind)",
            "        row.map_or(ErrorKind::State, |(kind, _)| *kind)",
        )],
    )
    .found_by_unit_of_client("error_reply::tests::every_known_reply_lands_in_its_kind"),
    planted(
        "key_in_the_words_of_a_server",
        &[edit(
            "redis-once/error_reply.rs",
            "                shown.push_str(if is_secret(bare, secrets) { \"…\" } else { bare });",
            "                shown.push_str(bare);",
        )],
    )
    .found_by_unit_of_client("error_reply::tests::no_argument_of_a_call_is_printed"),
    planted(
        "one_master_is_asked_if_it_can_decide",
        &[edit(
            "limiter/redis/ready.rs",
            "        for tag in tags {",
            "        for tag in tags.into_iter().take(1) {",
        )],
    )
    .found_by("faults", "ready::each_master_of_a_cluster_is_asked_at_the_start"),
];
