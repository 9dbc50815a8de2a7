//! Faults that the crate had: each undoes one mend.

use super::{Fault, edit, reverted};

pub(super) const FAULTS: &[Fault] = &[
    reverted(
        "charge_that_connects_is_overtaken",
        "c998c62 redis: queue a charge that finds no connection ready",
        &[
            edit(
                "limiter/redis/send/batcher.rs",
                "            if let Some(connection) = self.config.pool.client.ready_connection(queued.hash_slot) {",
                "            let connection = self.config.pool.client.ready_connection(queued.hash_slot);
            {",
            ),
            edit(
                "limiter/redis/send/batcher.rs",
                "    connection: Arc<dyn SharedConnection>,
    permit: OwnedSemaphorePermit,
) -> Pin",
                "    connection: Option<Arc<dyn SharedConnection>>,
    permit: OwnedSemaphorePermit,
) -> Pin",
            ),
            edit(
                "limiter/redis/send/batcher.rs",
                "        let mut ended = send_call(config, connection, call).await;",
                "        let connection = match connection {
            Some(connection) => connection,
            None => match config.pool.client.connection(hash_slot).await {
                Ok(connection) => connection,
                Err(error) => {
                    let error = crate::Error::from(error);
                    return call.batches.into_iter().for_each(|one| one.fail(&error));
                }
            },
        };
        let mut ended = send_call(config, connection, call).await;",
            ),
        ],
    )
    .found_by(
        "simulation",
        "strikes::charges_that_wait_for_a_connection_are_decided_in_the_order_of_their_callers",
    ),
    reverted(
        "units_asked_for_before_a_block_stay_taken",
        "00555bf lease: give back what was asked for before a block",
        &[edit(
            "limiter/lease/leased_keys.rs",
            "        if let Unspent::IsForgotten = unspent {",
            "        if let Unspent::IsForgotten | Unspent::IsReturned = unspent {",
        )],
    )
    .found_by("limiters", "block::a_block_gives_back_what_a_lease_asked_for"),
    reverted(
        "held_units_of_a_late_leaver_expire",
        "3771c13 acquire: settle what a waiter holds that leaves late",
        &[edit(
            "limiter/acquire.rs",
            "            let is_of_use = |one: &Reservation| one.is_held() || Instant::now() < due;",
            "            let is_of_use = |_: &Reservation| Instant::now() < due;",
        )],
    )
    .found_by("limiters", "budget::layer::a_waiter_that_leaves_late_settles_nothing"),
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
    )
    .found_by("limiters", "budget::layer::what_a_failed_reset_leaves_is_settled"),
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
    )
    .found_by_unit("limiter::line::tests::a_slot_of_several_keys_is_forgotten_with_each_of_them"),
    reverted(
        "slots_of_waiters_outlive_a_reset",
        "bfe0e8b line: forget the slots of waiters too at a reset",
        &[edit(
            "limiter/line.rs",
            "                (slot.is_forgotten, slot.is_void) = (slot.is_forgotten || is_reset, true);",
            "                let _ = (slot, is_reset);",
        )],
    )
    .found_by_unit("limiter::line::tests::who_waited_at_a_block_leaves_no_slot_at_hand"),
    reverted(
        "kept_slot_lost_by_a_charge_that_gave_it_back",
        "1e14649 line: keep a slot again that a charge gave back",
        &[edit(
            "limiter/line.rs",
            "        let kept = lock(&self.slot).take_if(|slot| slot.is_kept && slot.due > now);",
            "        let kept = lock(&self.slot).take_if(|slot| slot.is_kept && slot.due < now && slot.due > now);",
        )],
    )
    .found_by_unit("limiter::line::tests::a_kept_slot_that_is_given_back_is_kept_again"),
    reverted(
        "place_in_line_kept_after_a_panic",
        "f3ef719 line: leave it when a panic cuts the beginning short",
        &[edit(
            "limiter/line.rs",
            "            self.change(|line| self.remove_from(line));",
            "            let _ = &self.id;",
        )],
    )
    .found_by_unit("limiter::line::tests::a_panic_of_the_store_leaves_nobody_in_line"),
    reverted(
        "refused_greeting_taken_for_a_silent_one",
        "d380ecf greeting: see that a HELLO was refused",
        &[edit(
            "redis-once/greeting.rs",
            "        match reply.and_then(Value::extract_error) {",
            "        match reply {",
        )],
    )
    .found_by_unit_of_client("greeting::tests::a_refusal_that_may_pass_is_no_answer_without_a_role"),
    reverted(
        "wait_for_a_connection_judged_by_its_last_timer",
        "b2dc58e redis: judge a wait for a connection by all its timers",
        &[edit(
            "redis-once/pool.rs",
            "                if let Some(connected) = end.wait_for(&pool.signs, connecting.as_mut()).await {",
            "                let in_time = tokio::time::timeout_at(end.at, connecting.as_mut()).await;
                if let Ok(connected) = in_time {",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::a_wait_for_a_connection_whose_timers_fire_late_is_load"),
    reverted(
        "slow_attempt_after_load_taken_for_a_hang",
        "63303cb cluster, sentinel: take no slow attempt after load for a hang",
        &[
            edit(
                "redis-once/backoff.rs",
                "    let stays = [ErrorKind::Infrastructure, ErrorKind::Saturation];",
                "    let stays = [ErrorKind::Infrastructure];",
            ),
            edit(
                "redis-once/sentinel/watch.rs",
                "            last_took = Some(took).filter(|_| error.kind() != ErrorKind::Saturation);",
                "            last_took = Some(took);",
            ),
        ],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_that_hangs_hides_neither_a_fault_of_the_server_nor_load"),
    reverted(
        "hang_hides_that_the_server_was_away",
        "348fb04 redis: let load end a fault, and hide none",
        &[edit(
            "redis-once/backoff.rs",
            "    let stays = [ErrorKind::Infrastructure, ErrorKind::Saturation];",
            "    let stays = [ErrorKind::Saturation];",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_that_hangs_hides_neither_a_fault_of_the_server_nor_load"),
    reverted(
        "fault_stays_while_load_ends_all_attempts",
        "348fb04 redis: let load end a fault, and hide none",
        &[edit(
            "redis-once/own_pool.rs",
            "                last_error.take_if(|error| error.kind() == ErrorKind::Infrastructure);
",
            "",
        )],
    )
    .found_by("busy_process", "a_fault_of_the_server_that_is_over_admits_nobody_under_load"),
    reverted(
        "arrived_answers_lost_at_a_switch",
        "eb1faa6 redis: read what has arrived when a server is left",
        &[edit(
            "redis-once/connection.rs",
            "            () = left => {}
            outcome",
            "            () = left => return None,
            outcome",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_call_to_a_server_that_is_left_ends_with_what_has_arrived"),
    reverted(
        "calls_to_a_server_that_was_left_go_on",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[
            edit(
                "redis-once/connection.rs",
                "        self.left.notify_waiters();",
                "        let _ = &self.left;",
            ),
            edit(
                "redis-once/connection.rs",
                "        if self.server.is_left.load(Relaxed) {
            return None;
        }",
                "",
            ),
        ],
    )
    .found_by_unit_of_client("connection::tests::a_call_to_a_server_that_is_left_ends_with_what_has_arrived"),
    reverted(
        "end_within_a_reply_taken_for_an_odd_reply",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "redis-once/error_reply.rs",
            "        redis::ErrorKind::Parse if ends_within_reply(&error) => {",
            "        redis::ErrorKind::Parse if ends_within_reply(&error) && error.is_timeout() => {",
        )],
    ),
    reverted(
        "ticks_of_timers_count_as_load",
        "07a63ab grace_period: count no tick of a timer as load",
        &[edit(
            "redis-once/on_time.rs",
            "        self.late += self.next.elapsed().saturating_sub(2 * TICK);",
            "        self.late += self.next.elapsed();",
        )],
    )
    .found_by_unit_of_client("on_time::tests::a_short_time_to_connect_is_no_load"),
    reverted(
        "sentinel_that_refused_and_is_silent_since",
        "2708dde sentinel: see one that refused and is silent since",
        &[edit(
            "redis-once/sentinel/watch.rs",
            "                Some(took) => self.connect_or_report(end, took).await?,",
            "                Some(took) if Duration::is_zero(&took) => self.connect_or_report(end, took).await?,
                Some(_) => unless_busy(end, self.connect(end)).await,",
        )],
    )
    .found_by(
        "faults",
        "sentinel::watching::a_sentinel_that_refused_to_answer_and_is_silent_since_is_away",
    ),
    reverted(
        "dead_sentinel_hides_load",
        "12360f3 sentinel: let load weigh more than a dead sentinel",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "        match errors.max_by_key(|error| weight(error)) {",
            "        match { errors }.find(|error| weight(error) <= 2) {",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::errors_say_what_is_wrong"),
    reverted(
        "map_that_is_read_late_is_the_servers_fault",
        "29c2f61 redis: a slot map that is read late opens no gate",
        &[edit(
            "redis-once/cluster/refresh.rs",
            "        unless_busy(end, self.read_map(end)).await",
            "        match end.elapsed().is_zero() {
            true => self.read_map(end).await,
            false => unless_busy(end, self.read_map(end)).await,
        }",
        )],
    )
    .found_by("busy_process", "a_busy_process_that_connects_admits_nobody"),
    reverted(
        "sentinel_that_is_read_late_is_at_fault",
        "29c2f61 redis: a slot map that is read late opens no gate",
        &[edit(
            "redis-once/sentinel/watch.rs",
            "            match unless_busy(end, asking).await {",
            "            match asking.await {",
        )],
    )
    .found_by_unit_of_client("sentinel::watch::tests::a_sentinel_that_a_busy_process_reads_late_is_not_at_fault"),
    reverted(
        "panic_while_the_map_is_read_is_the_servers_fault",
        "1141e6b redis: a panic before a cluster or sentinels opens no gate",
        &[edit(
            "redis-once/cluster/refresh.rs",
            "            Some(Err(ended)) if ended.is_panic() => {",
            "            Some(Err(ended)) if ended.is_cancelled() => {",
        )],
    )
    .found_by(
        "faults",
        "connections::a_resolver_that_panics_opens_no_gate_before_a_cluster_or_sentinels",
    ),
    reverted(
        "panic_before_sentinels_is_their_fault",
        "1141e6b redis: a panic before a cluster or sentinels opens no gate",
        &[edit(
            "redis-once/sentinel/watch.rs",
            "        if std::thread::panicking() {",
            "        if std::thread::panicking() && self.number == usize::MAX {",
        )],
    )
    .found_by(
        "faults",
        "connections::a_resolver_that_panics_opens_no_gate_before_a_cluster_or_sentinels",
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
    )
    .found_by("limiters", "limiters_in_turn_get_what_is_left_of_the_time"),
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
    )
    .found_by("limiters", "limiters_in_turn_get_what_is_left_of_the_time"),
    reverted(
        "each_call_in_turn_has_the_whole_time",
        "7178843 within: share one deadline among sequential calls",
        &[edit(
            "limiter/redis/all_at_once.rs",
            "        charges.map(|one| one.map(|one| one.with_deadline(deadline)))",
            "        let _ = deadline;
        charges",
        )],
    )
    .found_by("redis", "all_at_once::members_in_several_slots_share_one_deadline"),
    reverted(
        "every_policy_settled_by_the_same_units",
        "252cbe6 policy: settle each policy by its own share",
        &[edit(
            "policy/policies.rs",
            "        Ok(held.settle(|_, own| in_proportion(own, cost, actual)).0)",
            "        let used = |own| if cost == u64::MAX { in_proportion(own, 1, 1) } else { actual };
        Ok(held.settle(|_, own| used(own)).0)",
        )],
    )
    .found_by("policies", "settling::a_part_of_a_large_cost_is_given_back_under_every_policy"),
    reverted(
        "burst_held_back_behind_a_dead_connection",
        "a8cafd0 worker: bound what waits for a connection",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        self.first_sent.unwrap_or_else(Instant::now) + MAX_HOLD",
            "        self.first_sent.unwrap_or_else(Instant::now) + 20 * MAX_HOLD",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::worker::tests::charges_are_not_held_back_behind_a_dead_connection",
    ),
    reverted(
        "slot_of_a_cluster_waits_for_a_silent_refund",
        "07f4155 cluster: give up a silent refund's slot early",
        &[edit(
            "limiter/redis/send/call.rs",
            "        if self.config.pool.client.is_routed() && !self.refund_slots.is_empty() {",
            "        if self.config.pool.client.is_routed() && self.refund_slots.len() > 20_000 {",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::call::tests::a_refund_without_an_answer_keeps_its_slot_for_a_short_time",
    ),
    reverted(
        "slot_that_nobody_serves_taken_for_load",
        "9acb4cd cluster: know a slot that nobody serves",
        &[
            edit(
                "redis-once/cluster/mod.rs",
                "            None => refreshes.was_read.then(|| failed(None, None)),",
                "            None => None,",
            ),
        ],
    )
    .found_by_unit_of_client("cluster::refresh::tests::a_slot_that_nobody_serves_is_known_once_the_map_is_read"),
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
    )
    .found_by_unit(
        "limiter::redis::send::routed::tests::only_a_key_on_its_own_is_asked_for_where_it_moves",
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
    )
    .found_by_unit(
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
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
    )
    .found_by_unit(
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    reverted(
        "breaker_opens_at_a_call_that_says_nothing",
        "5f84c87 breaker: open on failures only",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            Outcome::Saturated | Outcome::Unknown => return None,",
            "            Outcome::Saturated | Outcome::Unknown => {}",
        )],
    )
    .found_by_unit(
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    reverted(
        "shadow_counts_peeks",
        "4f12ecf shadow: count charges, not peeks",
        &[edit(
            "limiter/switch.rs",
            "            SwitchMode::Shadow => Begin::Seen(Some(self.clone()).filter(|_| charge.units() > 0)),",
            "            SwitchMode::Shadow => Begin::Seen(Some(self.clone())),",
        )],
    ),
    reverted(
        "wrong_sentinel_believed_when_it_comes_back",
        "f9cf4d0 sentinel: no news when a wrong one comes back",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "        self.all[sentinel] = report;",
            "        if let (Report::Unreachable(_), Some(known)) = (&report, &mut self.followed) {
            known.1 = 0;
        }
        self.all[sentinel] = report;",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::at_the_start_most_votes_win"),
    reverted(
        "map_not_read_when_a_server_cannot_serve",
        "d5a3da4 cluster: read the slot map when a server cannot serve",
        &[edit(
            "limiter/redis/send/routed.rs",
            "                    cluster.doubt(connection.address());",
            "                    let _ = cluster;",
        )],
    )
    .found_by(
        "faults",
        "cluster::map::a_master_that_cannot_serve_its_slots_is_left_for_the_one_that_does",
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
    )
    .found_by("faults", "cluster::moving::a_refund_that_is_sent_again_leaves_its_slot_open"),
    reverted(
        "retry_of_a_member_repeated",
        "3af2f8f deny_cache: do not repeat a retry of a member",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "        if decision.origin() == Origin::Cache || decision.was_retry() {",
            "        if decision.origin() == Origin::Cache {",
        )],
    )
    .found_by("limiters", "deny_cache::repeats::a_retry_of_a_member_is_not_repeated"),
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
                "            self.refusals[index].end_soon_if_kept_since(asked_at, now);",
                "            let _ = (&self.refusals[index], asked_at);",
            ),
        ],
    ),
    reverted(
        "silence_begins_before_the_last_reply",
        "666abb7 redis: a silence begins after the last reply",
        &[
            edit(
                "redis-once/connection.rs",
                "        let sent = sent.max(self.last_end.load(Relaxed));
",
                "",
            ),
            edit(
                "redis-once/connection.rs",
                "        begun.max(self.last_end.load(Relaxed))",
                "        begun",
            ),
        ],
    )
    .found_by_unit_of_client("connection::tests::a_silence_begins_after_the_last_reply"),
    reverted(
        "silence_during_late_timers_is_short",
        "1845070 redis: a client library's timeout in a busy process is load",
        &[edit(
            "redis-once/pool.rs",
            "                connection.record_timeout(sent, deadline.is_busy(&self.signs));",
            "                connection.record_timeout(sent, false);",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::call::tests::a_call_without_an_answer_in_a_busy_process_says_so",
    ),
    reverted(
        "silence_of_a_busy_process_is_short",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "redis-once/connection.rs",
            "        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR } else { 1 };",
            "        let max_silence = MAX_SILENCE * if is_busy { BUSY_FACTOR / BUSY_FACTOR } else { 1 };",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_busy_process_waits_longer"),
    reverted(
        "slow_attempt_to_connect_is_the_servers_fault",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "redis-once/fault.rs",
            "        let message = format!(\"the connection to {server} is not ready yet\");
        return Error::new(ErrorKind::Saturation, message);",
            "        let message = format!(\"the connection to {server} is not ready yet\");
        return Error::new(ErrorKind::Infrastructure, message);",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_that_has_just_begun_is_no_fault_of_the_server"),
    reverted(
        "deadline_before_the_sending_is_the_servers_fault",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/send/pending.rs",
            "            return Err(Error::new(ErrorKind::Saturation, message));",
            "            return Err(Error::new(ErrorKind::Infrastructure, message));",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::pending::tests::a_charge_whose_time_ends_before_it_is_sent_blames_no_server",
    ),
    reverted(
        "pauses_of_an_outage_go_on_after_it",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "redis-once/backoff.rs",
            "        if !self.was_unusable {
            *self = Self::default();
        }",
            "",
        )],
    )
    .found_by_unit_of_client("backoff::tests::a_success_ends_the_pauses_unless_connections_are_unusable"),
    reverted(
        "refunds_of_a_late_call_lose_their_turn",
        "0568e51 redis: judge silence by evidence that load cannot make",
        &[edit(
            "limiter/redis/send/call.rs",
            "            let late_reply = self.late_reply(sending, sent, connection);
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
    )
    .found_by_unit(
        "limiter::redis::send::call::tests::a_refund_without_an_answer_keeps_its_slot_for_a_short_time",
    ),
    reverted(
        "request_that_never_reached_the_service_keeps_its_units",
        "706871a layer: refund a request that never reaches the inner service",
        &[
            edit(
                "future.rs",
                "                StateProj::Readying if this.request.is_some() => {
                    refund(this.shared, this.decision);
                }",
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
            "redis-once/fault.rs",
            "                && !(*stage != Stage::Queued && facts.is_silent),",
            "                && *stage == Stage::Queued,",
        )],
    )
    .found_by_unit_of_client("fault::tests::a_reply_meanwhile_is_load"),
    reverted(
        "paused_process_gives_up_its_connection",
        "3bd3ff8 redis: a paused process waits on for its connection",
        &[edit(
            "redis-once/pool.rs",
            "                if error.kind() != ErrorKind::Saturation || !end.is_late() {",
            "                if error.kind() != ErrorKind::Saturation || !end.is_late() || hash_slot < u16::MAX {",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::a_process_that_was_paused_waits_on_for_its_connection"),
    reverted(
        "attempts_to_connect_outlive_the_pool",
        "1a9d162 redis: end attempts to connect with the pool",
        &[edit(
            "redis-once/own_pool.rs",
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
    )
    .found_by_unit_of_client("own_pool::tests::attempts_end_with_the_pool"),
    reverted(
        "late_timer_counts_for_its_own_charge_alone",
        "bfa293f redis: count a late timer of any charge as load",
        &[edit(
            "redis-once/fault.rs",
            "            signs.late.record();
        }
        signs.late_until() >= Some(self.start)",
            "            return true;
        }
        signs.late_until() >= Some(self.start)",
        )],
    )
    .found_by_unit_of_client("fault::tests::a_late_timer_is_load_for_every_charge_of_the_moment"),
    reverted(
        "attempt_that_panicked_keeps_its_place",
        "741f6b3 redis: keep connections in a pool of the crate's own",
        &[edit(
            "redis-once/own_pool.rs",
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
            "redis-once/own_pool.rs",
            "            self.backoff.record_unusable(*since);",
            "            let _ = since;",
        )],
    )
    .found_by(
        "faults",
        "connections::a_demoted_primary_is_infrastructure_and_reconnected_to_with_pauses",
    ),
    reverted(
        "limiter_settles_what_its_fallback_decided",
        "3acd29d or_else: settle with the limiter that decided",
        &[edit(
            "limiter/or_else.rs",
            "        settled.or_else(|reservation| self.standby.fallback.limiter().settle(reservation, actual))",
            "        settled",
        )],
    )
    .found_by("limiters", "a_reservation_is_settled_by_the_limiter_that_made_it"),
    reverted(
        "call_without_a_reply_keeps_its_place_in_flight",
        "b5383b3 redis: free the place of a call that gets no reply",
        &[edit(
            "limiter/redis/send/call.rs",
            "        let earliest = deadlines().min().unwrap_or(sent).min(sent + PATIENCE);",
            "        let earliest = deadlines().max().unwrap_or(sent).min(sent + 1_000 * PATIENCE);",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::call::tests::a_refund_without_an_answer_keeps_its_slot_for_a_short_time",
    ),
    reverted(
        "connection_left_at_its_first_missed_deadlines",
        "c930ae4 redis: give up a connection after a silence, not three calls",
        &[edit(
            "redis-once/connection.rs",
            "        if self.silence.begin_or_continue(sent) + limit <= now {",
            "        if self.silence.begin_or_continue(sent) <= now {",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_busy_process_waits_longer"),
    reverted(
        "oldest_refund_first",
        "c4b52fa redis: unwind bookings last first, whatever their number",
        &[edit(
            "limiter/redis/send/queue.rs",
            "        let refund = self.refunds.pop_last().map(|(_, queued)| queued);",
            "        let refund = self.refunds.pop_first().map(|(_, queued)| queued);",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::queue::tests::a_slot_keeps_its_order_until_all_its_refunds_are_done",
    ),
    reverted(
        "next_request_passes_a_refund",
        "5d4f553 redis: a refund comes before its caller's next request",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        if call.has_refunds() && !self.config.pool.client.is_routed() {",
            "        if call.has_refunds() && call.requests == usize::MAX {",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::worker::tests::a_call_goes_over_the_connection_of_the_refunds_before_it",
    ),
    reverted(
        "call_with_refunds_overtakes_others",
        "9795b90 redis: let calls leave in the order in which they were put together",
        &[edit(
            "limiter/redis/send/worker.rs",
            "        let mut call = send_call(Arc::clone(&self.config), connection, call).boxed();
        self.calls.push(match (&mut call).now_or_never() {",
            "        let keeps_order = call.has_refunds();
        let mut call = send_call(Arc::clone(&self.config), connection, call).boxed();
        self.calls.push(match keeps_order.then(|| (&mut call).now_or_never()).flatten() {",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::worker::tests::calls_are_written_in_the_order_in_which_they_are_put_together",
    ),
    reverted(
        "two_servers_that_are_no_primary_asked_without_a_pause",
        "5e555b0 sentinel: pause between servers that both are no primary",
        &[edit(
            "redis-once/sentinel/mod.rs",
            "        Some((address, current.is_some()))",
            "        self.switches.fetch_add(1, Relaxed);
        Some((address, current.is_some()))",
        )],
    )
    .found_by(
        "simulation",
        "strikes::two_servers_of_which_none_is_the_primary_are_asked_with_pauses",
    ),
    reverted(
        "sentinels_not_watched_after_a_panic",
        "2c57efa sentinel: watch on soon after a panic",
        &[edit(
            "redis-once/sentinel/mod.rs",
            "                _ = tasks.join_next() => has_panicked = true,",
            "                _ = tasks.join_next() => return None,",
        )],
    ),
    reverted(
        "charge_sent_after_its_time",
        "5363a83 redis: send no charge whose time is over",
        &[edit(
            "limiter/redis/send/batch.rs",
            "!caller.is_closed() && now < self.deadline,",
            "!caller.is_closed(),",
        )],
    )
    .found_by_unit("limiter::redis::send::queue::tests::a_charge_whose_time_is_over_never_leaves"),
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
    )
    .found_by_unit("limiter::redis::send::queue::tests::a_failure_reaches_all_that_wait"),
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
    )
    .found_by("limiters", "settlements::a_full_queue_loses_no_settlement"),
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
            "redis-once/connection.rs",
            "        if self.generation == self.server.generation.load(Relaxed)
            && self",
            "        if self.generation == self.server.generation.load(Relaxed).wrapping_add(1)
            && self",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_useless_connection_says_since_when"),
    reverted(
        "login_that_changed_waits_for_the_pause",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "redis-once/own_pool.rs",
            "            if *switches != now_switches {",
            "            if *switches != now_switches && *switches > now_switches {",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::a_login_that_changed_is_tried_without_a_pause"),
    reverted(
        "short_caller_of_a_lease_waits_for_a_long_refill",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "limiter/lease/leased_key.rs",
            "        other.is_none_or(|other| other == runtime && !end.map_or(deadline.is_some(), is_before))",
            "        let _ = (is_before, end);
        other.is_none_or(|other| other == runtime)",
        )],
    )
    .found_by("limiters", "lease::waiting::who_has_less_time_than_a_refill_asks_alone"),
    reverted(
        "turned_away_by_a_cluster_in_a_busy_process_fails_open",
        "aa136d3 Mend what users, operators and attackers met in the crate",
        &[edit(
            "redis-once/fault.rs",
            "    if !was_late && seen.was_turned_away {",
            "    if seen.was_turned_away {",
        )],
    )
    .found_by_unit_of_client("fault::tests::a_cluster_that_turns_a_charge_away_for_most_of_its_time_is_at_fault"),
    reverted(
        "word_to_a_waiter_of_redisson_who_is_gone_lost",
        "66fa24d redisson: what two reviews found",
        &[edit(
            "redisson/queues.rs",
            "        if !self.was_received {",
            "        if !self.was_received && self.name.is_empty() {",
        )],
    )
    .found_by_unit("redisson::queues::tests::a_wakeup_of_a_dropped_waiter_wakes_the_next"),
    reverted(
        "refund_of_redisson_over_another_connection",
        "af17ced redisson: undo over the connection that was used",
        &[edit(
            "redisson/take_permits.rs",
            "            if let Some(connection) = connection {",
            "            if let Some(connection) = connection.filter(|_| refund.keys.name().is_empty()) {",
        )],
    )
    .found_by_unit("redisson::take_permits::tests::a_late_grant_is_refunded_over_its_own_connection"),
    reverted(
        "late_grant_of_redisson_undone_before_it_is_heard",
        "66fa24d redisson: what two reviews found",
        &[edit(
            "redisson/take_permits.rs",
            "                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT, reply).await",
            "                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT / 1_000_000, reply).await",
        )],
    )
    .found_by_unit("redisson::take_permits::tests::a_late_refusal_is_heard_and_nothing_is_refunded"),
    reverted(
        "deny_cache_outlives_the_table",
        "87635c1 policy: let no deny cache outlive a table",
        &[edit(
            "policy/table.rs",
            "let (digest, length) = (limited.digest, key.len());",
            "let (digest, length) = (0, key.len());",
        )],
    )
    .found_by("policies", "wrapped::a_deny_cache_repeats_no_refusal_of_another_table_or_switch"),
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
    )
    .found_by(
        "policies",
        "over_redis::a_shadow_takes_nothing_of_requests_that_another_policy_refuses",
    ),
    reverted(
        "lease_around_policies_takes_several_units",
        "127b1e9 policy: refuse charges whose cost somebody changed",
        &[edit(
            "policy/policies.rs",
            "            Some(selection) if ![0, selection.cost()].contains(&charge.units()) => {",
            "            Some(selection) if ![0, selection.cost(), charge.units()].contains(&charge.units()) => {",
        )],
    )
    .found_by("policies", "several::a_charge_of_another_limiter_is_an_error"),
    reverted(
        "reservation_of_a_check_stands_in_line",
        "f3a632d line: only those who have begun to wait stand in line",
        &[edit(
            "limiter/configured.rs",
            "        let slot = Slot::new(decision, wait, mark, known);
        decision.set_turn(Place::new(&self.lines, id, slot, store()));",
            "        let slot = Slot::new(decision, wait, mark, known);
        let place = Place::new(&self.lines, id, slot, store());
        crate::waiters::Waiters::add(&*place);
        decision.set_turn(place);",
        )],
    ),
    reverted(
        "refund_waits_for_the_text_of_its_script",
        "5d4f553 redis: a refund comes before its caller's next request",
        &[edit(
            "redis-once/script.rs",
            "        Self { source: Arc::clone(&self.source), is_known: Arc::default() }",
            "        Self { source: Arc::clone(&self.source), is_known: Arc::new(AtomicBool::new(true)) }",
        )],
    )
    .found_by("faults", "least_rights::without_the_right_to_load_scripts_they_are_sent_once"),
    reverted(
        "an_attempt_that_hangs_keeps_others_waiting",
        "redis: connect again beside an attempt that hangs",
        &[edit(
            "redis-once/own_pool.rs",
            "        self.attempts.last().map(|begun| *begun + MAX_SILENCE).filter(|next| *next > now)",
            "        self.attempts.last().map(|begun| *begun + 5 * MAX_SILENCE).filter(|next| *next > now)",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_that_hangs_gets_another_beside_it"),
    reverted(
        "time_of_a_process_that_stood_still_is_silence",
        "redis: count no time in which the process stood still",
        &[edit(
            "redis-once/connection.rs",
            "        let sent = if is_busy { now } else { self.server.clock(sent) };",
            "        let sent = if is_busy && now == 0 { now } else { self.server.clock(sent) };",
        )],
    )
    .found_by_unit_of_client("connection::tests::a_process_that_stood_still_gives_up_no_connection"),
    reverted(
        "slot_of_before_a_reset_looks_like_one_of_after_it",
        "6179490 line: leave no slot of before a reset",
        &[edit(
            "limiter/configured.rs",
            "        let slot = Slot::new(decision, wait, mark, known);",
            "        let _ = known;
        let slot = Slot::new(decision, wait, mark, self.lines.known());",
        )],
    )
    .found_by_unit(
        "limiter::configured::tests::no_charge_finds_a_slot_that_was_given_before_a_reset",
    ),
    reverted(
        "pause_since_a_connection_was_looked_at",
        "c56b30d redis: pause since a connection became useless",
        &[edit(
            "redis-once/own_pool.rs",
            "            let since = connection.health.useless_since().min(now);",
            "            let since = connection.health.useless_since().max(now);",
        )],
    )
    .found_by("simulation", "strikes::an_idle_process_is_decided_at_once_when_the_server_is_well"),
    reverted(
        "pause_since_the_end_of_a_slow_attempt",
        "redis: pause since an attempt began, not since it failed",
        &[edit(
            "redis-once/own_pool.rs",
            "            Some(Err(failure)) => {
                backoff.record_failure(self.begun);",
            "            Some(Err(failure)) => {
                backoff.record_failure(now);",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_without_an_answer_ends_in_time_and_no_pause_follows"),
    reverted(
        "process_that_stands_still_until_the_deadline_blames_the_server",
        "redis: see a process that stands still until a deadline",
        &[edit(
            "redis-once/fault.rs",
            "        if timers.show_load() {
            signs.late",
            "        if was_last && self.grace_period.is_late() {
            signs.late",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::pending::tests::a_process_that_stands_still_until_the_deadline_is_busy",
    ),
    reverted(
        "one_timer_alone_shows_load",
        "redis: judge this process by ten timers of a decision's time",
        &[
            edit(
                "redis-once/on_time.rs",
                "(end.saturating_duration_since(begun) / WATCHED_TIMERS).max(TICK)",
                "end.saturating_duration_since(begun).max(TICK)",
            ),
            edit(
                "redis-once/on_time.rs",
                "4 * self.late > self.interval * WATCHED_TIMERS",
                "4 * self.late > self.interval",
            ),
        ],
    )
    .found_by_unit_of_client("on_time::tests::a_process_that_runs_now_and_then_is_too_busy"),
    reverted(
        "server_refuted_late_is_left_out_after_a_switch",
        "sentinel: follow a switch back to a server that was refuted late",
        &[edit(
            "redis-once/sentinel/reports.rs",
            ".unwrap_or_else(|| self.newest_epoch());
        self.refuted",
            ".unwrap_or(u64::MAX);
        self.refuted",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::a_server_that_was_left_out_late_becomes_the_primary_again"),
    reverted(
        "server_that_was_read_only_is_left_out_though_no_other_is_named",
        "sentinel: ask a server again that was no primary if no other is named",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "                candidates.iter().filter(may_follow).max_by_key(|one| {",
            "                candidates.iter().filter(|one| !is_refuted(one)).max_by_key(|one| {",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::a_server_that_is_no_primary_is_asked_again_if_no_other_is_named"),
    reverted(
        "old_failure_to_connect_blames_the_server",
        "redis: an old failure to connect says nothing of a busy process's attempt",
        &[edit(
            "redis-once/fault.rs",
            "        let failure = self.failure.as_ref().filter(|failure| failure.at >= since);",
            "        let failure = self.failure.as_ref().filter(|failure| failure.at >= since.and(None));",
        )],
    )
    .found_by_unit_of_client("own_pool::tests::an_attempt_without_an_answer_ends_in_time_and_no_pause_follows"),
    reverted(
        "last_operation_in_turn_blames_the_server",
        "all_in_turn: take no lack of time for a fault of the store",
        &[edit(
            "limiter/combination/in_turn.rs",
            "            let decision = after_others(answer.await, &part.charge, &mut answered)?;",
            "            answered |= part.charge.units() > 0;
            let decision = answer.await?;",
        )],
    )
    .found_by("limiters", "operations_in_turn_blame_no_store_for_the_time_of_the_others"),
    reverted(
        "first_answer_after_a_fault_opens_a_breaker",
        "breaker: open with a failure, and never with an answer",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            return trouble.filter(|_| is_long && outcome != Outcome::Answered);",
            "            return trouble.filter(|_| is_long);",
        )],
    )
    .found_by_unit(
        "limiter::breaker::circuit::tests::some_failures_open_with_a_failure_and_never_with_an_answer",
    ),
    reverted(
        "time_of_a_decision_begins_before_it_is_asked",
        "redis: let the time of a decision begin with its first poll",
        &[edit(
            "limiter/redis/limiter.rs",
            "        let deadline = charge_numbers::deadline(charge, MAX_TIMEOUT);",
            "        let own = inner.decision_timeout.min(MAX_TIMEOUT);
        let deadline = charge_numbers::deadline(charge, own);",
        )],
    )
    .found_by_unit(
        "limiter::redis::send::pending::tests::the_time_of_a_decision_begins_with_its_first_poll",
    ),
    reverted(
        "server_that_was_no_primary_is_left_out_after_a_switch",
        "sentinel: follow a later switch to a server that was no primary",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "self.epoch_of(host).is_none_or(|now| now <= *epoch)",
            "self.epoch_of(host).is_none_or(|_| *epoch > 0)",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::a_server_that_is_no_primary_is_left_out"),
    reverted(
        "rare_calls_keep_a_dead_connection",
        "a02b7a1 health: rare callers leave a dead connection",
        &[edit(
            "redis-once/connection.rs",
            "            Err(begun) => begun,",
            "            Err(begun) if begun + 2_000_000 < sent => {
                self.begun.store(sent, Relaxed);
                sent
            }
            Err(begun) => begun,",
        )],
    )
    .found_by("simulation", "strikes::rare_callers_leave_a_dead_connection"),
    reverted(
        "waiters_of_one_instant_in_the_order_of_their_marks",
        "23c0670 line: of one instant, the first that came moves up first",
        &[edit(
            "limiter/line.rs",
            "take_while(|slot| slot.0 > at)",
            "take_while(|slot| slot.0 >= at)",
        )],
    )
    .found_by_unit("limiter::line::tests::of_one_instant_the_first_that_came_moves_up_first"),
];
