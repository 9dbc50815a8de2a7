//! Faults of the client of a cluster, and of the one of sentinels.

use super::{Fault, edit, planted};

pub(super) const FAULTS: &[Fault] = &[
    planted(
        "redirect_loses_its_refund",
        &[edit(
            "limiter/redis/send/routed.rs",
            "            let is_late = queued.is_settlement() && begun + PATIENCE < now;",
            "            let is_late = queued.is_settlement() && begun <= now;",
        )],
    ),
    planted(
        "refunds_of_a_redirected_call_lost",
        &[edit(
            "limiter/redis/send/routed.rs",
            "                end.refunds.extend(batch.complete(config, connection, reply));",
            "                let _ = batch.complete(config, connection, reply);",
        )],
    ),
    planted(
        "replaced_master_that_a_redirect_named_is_kept",
        &[edit(
            "redis-once/cluster/nodes.rs",
            "            let is_away = away.iter().any(|node| Arc::ptr_eq(node, &one.node));",
            "            let is_away = one.redirected_to.is_none()
                && away.iter().any(|node| Arc::ptr_eq(node, &one.node));",
        )],
    )
    .found_by_unit_of_client("cluster::nodes::tests::a_replaced_master_is_left_even_if_a_redirect_named_it"),
    planted(
        "moved_slot_not_remembered",
        &[edit(
            "redis-once/cluster/mod.rs",
            "                self.nodes.assign(hash_slot, number);",
            "                let _ = number;",
        )],
    ),
    planted(
        "moved_without_a_look_at_the_map",
        &[edit(
            "redis-once/cluster/mod.rs",
            "        // Other slots have probably moved too.
        self.refresh();",
            "",
        )],
    )
    .found_by("faults", "cluster::map::one_slot_that_has_moved_shows_where_the_others_are"),
    planted(
        "first_charges_wait_for_a_dead_master",
        &[edit(
            "redis-once/pool.rs",
            "            () = cluster.left(partition, hash_slot) => Ok(()),",
            "            () = std::future::pending() => Ok(()),",
        )],
    )
    .found_by("simulation", "first_charges::the_first_charges_do_not_wait_for_a_master_that_is_away"),
    planted(
        "silent_reading_of_the_map_is_forgotten",
        &[edit(
            "redis-once/cluster/refresh.rs",
            "                connection.record_timeout(sent, error.kind() == ErrorKind::Saturation);",
            "                let _ = error;",
        )],
    )
    .found_by_unit_of_client("cluster::refresh::tests::a_reading_without_a_reply_is_recorded"),
    planted(
        "sentinel_gets_one_attempt_at_a_time",
        &[edit(
            "redis-once/sentinel/watch.rs",
            "            () = sleep(MAX_SILENCE) => {}
        }",
            "            () = sleep(100 * MAX_SILENCE) => {}
        }",
        )],
    )
    .found_by("simulation", "seeds_that_broke_a_promise_keep_it"),
    planted(
        "asked_without_asking",
        &[
            edit(
                "limiter/redis/send/routed.rs",
                "            commands.add_command(cmd(\"ASKING\"));",
                "            let _ = cmd(\"ASKING\");",
            ),
            edit(
                "limiter/redis/send/routed.rs",
                "            Some(_) => reply_after_asking(&mut replies),",
                "            Some(_) if false => reply_after_asking(&mut replies),
            Some(_) => next_reply(&mut replies),",
            ),
        ],
    ),
    planted(
        "asked_slot_taken_for_moved",
        &[edit(
            "redis-once/cluster/redirect.rs",
            "                redirect().map(|host| host.map_or(Self::Again, Self::Ask))",
            "                redirect().map(Self::Moved)",
        )],
    ),
    planted(
        "try_again_is_an_error",
        &[edit(
            "redis-once/cluster/redirect.rs",
            "            redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Again),",
            "            redis::ErrorKind::Server(ServerErrorKind::TryAgain) => None,",
        )],
    )
    .found_by(
        "faults",
        "cluster::moving::a_tuple_whose_keys_are_split_waits_for_those_that_still_move",
    ),
    planted(
        "sent_again_after_an_answer_was_lost",
        &[edit(
            "limiter/redis/send/routed.rs",
            "            for (batch, _) in sent {
                batch.complete(config, connection, Err(error.clone()));
            }
            return Vec::new();",
            "            let _ = error;
            let again = |(batch, with_text): (Batch, bool)| batch.redirected(Next::Again, with_text);
            return sent.into_iter().map(again).collect();",
        )],
    ),
    planted(
        "cluster_leaves_the_server_that_lives",
        &[edit(
            "redis-once/cluster/nodes.rs",
            "            if is_away {
                one.node.server.leave();",
            "            if !is_away {
                one.node.server.leave();",
        )],
    )
    .found_by("faults", "cluster::lost::what_a_replaced_master_still_admits_reaches_nobody"),
    planted(
        "map_read_once_and_never_again",
        &[edit(
            "redis-once/cluster/refresh.rs",
            "                state.backoff.hold_until(now + pause);",
            "                state.backoff.hold_until(now + 10_000 * pause);",
        )],
    )
    .found_by(
        "faults",
        "cluster::lost::a_master_that_dies_harms_its_own_slots_until_its_replica_is_promoted",
    ),
    planted(
        "attempt_to_read_the_map_never_over",
        &[edit(
            "redis-once/cluster/refresh.rs",
            "        state.running.retain(|(running, _)| *running != runtime);
        match result {",
            "        if matches!(result, Some(Ok(()))) {
            state.running.retain(|(running, _)| *running != runtime);
        }
        match result {",
        )],
    )
    .found_by_unit_of_client("cluster::refresh::tests::the_next_attempt_may_begin_whatever_ended_the_last_one"),
    planted(
        "slot_waits_for_ever_for_its_refunds",
        &[edit(
            "limiter/redis/send/queue.rs",
            "            slot_queue.refund_calls -= 1;",
            "            slot_queue.refund_calls -= usize::from(!self.pool.is_routed());",
        )],
    ),
    planted(
        "sentinels_switch_ignored",
        &[edit(
            "redis-once/sentinel/mod.rs",
            "        let host = reports.choose()?;",
            "        let host = reports.choose()?;
        if self.primary.borrow().is_some() {
            return None;
        }",
        )],
    ),
    planted(
        "old_primary_not_left",
        &[edit(
            "redis-once/sentinel/mod.rs",
            "            old.server.leave();",
            "            let _ = &old.server;",
        )],
    )
    .found_by("faults", "sentinel::left::what_a_replaced_primary_still_admits_reaches_nobody"),
    planted(
        "demoted_primary_taken_again",
        &[
            edit(
                "redis-once/sentinel/mod.rs",
                "                Ok(connection) if connection.is_primary => {",
                "                Ok(connection) => {",
            ),
            edit(
                "redis-once/sentinel/mod.rs",
                "                Ok(_) => {
                    let mut reports = lock(&self.reports);
                    reports.refute(&primary.host);
                    let next = self.choose(&reports);
                    drop(reports);
                    self.show(next);
                    let message = \"the server that the sentinels name is not a primary\";
                    Error::new(ErrorKind::Infrastructure, message)
                }
",
                "",
            ),
        ],
    )
    .found_by("faults", "sentinel::the_primary_is_found_whichever_sentinels_are_dead_or_wrong"),
    planted(
        "sentinel_asked_once_and_never_again",
        &[
            edit(
                "redis-once/sentinel/watch.rs",
                "                () = sleep(ASK_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}",
                "                () = sleep(ASK_EVERY.mul_f64(1e6)) => {}",
            ),
            edit(
                "redis-once/sentinel/watch.rs",
                "            if concerns(&push, &service_name) {",
                "            if concerns(&push, &service_name) && false {",
            ),
        ],
    ),
    planted(
        "sentinel_that_was_away_not_asked_again",
        &[edit(
            "redis-once/sentinel/watch.rs",
            "            backoff.record_failure(failed);
            self.report(Report::Unreachable(error))?;",
            "            backoff.record_failure(failed);
            self.report(Report::Unreachable(error))?;
            sleep(ASK_EVERY.mul_f64(1e6)).await;",
        )],
    ),
    planted(
        "oldest_epoch_followed",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "                    one.epoch > *epoch && !is_refuted(one) && has_support(one)",
            "                    one.epoch < *epoch && !is_refuted(one) && has_support(one)",
        )],
    )
    .found_by_unit_of_client("sentinel::reports::tests::a_switch_is_followed_once_two_report_it_and_never_back"),
    planted(
        "one_sentinel_moves_the_pool",
        &[edit(
            "redis-once/sentinel/reports.rs",
            "one.votes > 1 || is_alone(one);",
            "one.votes > 0 || is_alone(one);",
        )],
    )
    .found_by("faults", "sentinel::watching::one_wrong_sentinel_of_three_moves_no_pool"),
    planted(
        "server_without_a_name_taken_for_the_asked_one",
        &[edit(
            "redis-once/cluster/slot_map.rs",
            "        Some(unknown) if unknown == UNKNOWN => more.get(1).and_then(ip),",
            "        Some(unknown) if unknown == UNKNOWN => Some(asked.name.clone()),",
        )],
    )
    .found_by("faults", "cluster::hosts::servers_without_a_name_are_found_by_their_address"),
];
