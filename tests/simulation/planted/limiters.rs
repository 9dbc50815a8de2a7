//! Faults of the limiters around a store, of waiting, of settlements and of policies.

use super::{Fault, edit, planted};

pub(super) const FAULTS: &[Fault] = &[
    planted(
        "a_reset_keeps_the_birth",
        &[edit(
            "limiter/memory/key_shard.rs",
            "        over.birth = now.max(over.birth + 1);",
            "        over.birth = now.min(0);",
        )],
    )
    .found_by("redis", "resets::a_settlement_of_before_a_reset_does_nothing"),
    planted(
        "a_settlement_is_of_any_birth",
        &[edit(
            "limiter/redis/script/mod.rs",
            "        Op::Refund { mark, .. } => mark.births(),",
            "        Op::Refund { mark, .. } if mark.birth(0) < 0 => mark.births(),",
        )],
    )
    .found_by("redis", "resets::a_settlement_of_before_a_reset_does_nothing"),
    planted(
        "a_leased_charge_of_before_a_reset_takes_more",
        &[edit(
            "limiter/lease/leased_keys.rs",
            "                let more = more.with_births(stock.births.clone());",
            "                let more = more.with_births(stock.births.clone().filter(|_| false));",
        )],
    )
    .found_by("limiters", "lease::ending::no_charge_of_before_a_reset_takes_more_after_it"),
    planted(
        "cells_compared_after_they_moved",
        &[edit(
            "algorithm/sliding_window.rs",
            "        let late = state.newest * state.width > now + rule.horizon;",
            "        let state = rule.rebase(Some(state), i64::MAX)?;
        let late = state.newest * rule.width > now + rule.horizon;",
        )],
    )
    .found_by("redis", "changed_quotas::a_shorter_period_clamps_no_good_state"),
    planted(
        "a_debt_is_cut_at_the_horizon",
        &[edit(
            "algorithm/token_bucket.rs",
            "        let latest = rule.latest(now, if state.owes { rule.max_debt } else { rule.horizon });",
            "        let latest = rule.latest(now, rule.horizon);",
        )],
    )
    .found_by("limiters", "debts::ten_an_hour_charged_one_and_settled_at_fifteen"),
    planted(
        "lease_returned_twice",
        &[edit(
            "limiter/lease/stock.rs",
            "            self.put_back(left);
            self.refund();",
            "            self.put_back(left);
            self.put_back(left);
            self.refund();",
        )],
    ),
    planted(
        "lease_never_returned",
        &[edit(
            "limiter/lease/stock.rs",
            "        if let Some(reservation) = reservation.filter(|one| unspent > 0 || one.is_held()) {",
            "        if let Some(reservation) = reservation.filter(|_| unspent > u64::MAX - 1) {",
        )],
    ),
    planted(
        "lease_spent_after_its_end",
        &[edit(
            "limiter/lease/stock.rs",
            "        while self.0.front().is_some_and(|one| one.stock.valid_until <= now)",
            "        while self.0.front().is_some_and(|one| one.stock.valid_until > now && false)",
        )],
    ),
    planted(
        "leased_units_not_counted",
        &[edit(
            "limiter/lease/stock.rs",
            "        one.left -= cost;",
            "        one.left -= cost / 2;",
        )],
    ),
    planted(
        "lease_outlives_a_reset",
        &[edit(
            "limiter/lease/lease_future.rs",
            "                            *reset = Some(Reset::begin(leases, charge, Unspent::IsForgotten));",
            "                            let _ = (charge, Unspent::IsForgotten);",
        )],
    )
    .found_by("limiters", "lease::ending::reset_forgets_leased_units"),
    planted(
        "lease_outlives_a_block",
        &[edit(
            "limiter/lease/lease_future.rs",
            "                            *reset = Some(Reset::begin(leases, charge, Unspent::IsReturned));",
            "                            let _ = (charge, Unspent::IsReturned);",
        )],
    )
    .found_by("limiters", "block::a_block_ends_the_lease_of_its_key"),
    planted(
        "waiter_for_a_refill_never_answered",
        &[edit(
            "limiter/lease/leased_key.rs",
            "    for waiter in waiters {",
            "    for waiter in waiters.into_iter().take(1) {",
        )],
    )
    .found_by(
        "limiters",
        "lease::waiting::an_error_goes_to_all_that_wait_and_valid_units_are_spent_on",
    ),
    planted(
        "refill_that_failed_is_still_awaited",
        &[edit(
            "limiter/lease/refill.rs",
            "            key.end_refill(order.units());
",
            "",
        )],
    ),
    planted(
        "grant_of_a_waiter_who_left_lost",
        &[
            edit(
                "limiter/lease/leased_keys.rs",
                "            self.put_back(&grant.stock, grant.cost);",
                "            drop(grant);",
            ),
            edit(
                "limiter/lease/refill.rs",
                "            leases.put_back(&grant.stock, grant.cost);",
                "            drop(grant);",
            ),
        ],
    )
    .found_by("limiters", "lease::waiting::who_leaves_takes_nothing_and_keeps_nobody_waiting"),
    planted(
        "lease_takes_more_for_nothing",
        &[edit(
            "limiter/lease/leased_keys.rs",
            "            Ordering::Greater if self.take_more(stock, actual - cost) => {}",
            "            Ordering::Greater if stock.units() > 0 || self.take_more(stock, actual - cost) => {}",
        )],
    )
    .found_by(
        "limiters",
        "lease::settling::more_is_taken_from_the_lease_and_else_of_the_inner_limiter",
    ),
    planted(
        "deny_cache_forgets_a_refund",
        &[edit(
            "limiter/deny_cache.rs",
            "            Charged::Key(key) => self.forget_settling(key),",
            "            Charged::Key(_) => {}",
        )],
    ),
    planted(
        "deny_cache_repeats_for_too_long",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "        let lasts = Some(retry_after.min(max_age)).filter(|lasts| !lasts.is_zero())?;",
            "        let lasts = Some(max_age.max(retry_after)).filter(|lasts| !lasts.is_zero())?;",
        )],
    )
    .found_by("limiters", "deny_cache::bounds::a_refusal_that_is_over_makes_room_before_others"),
    planted(
        "deny_cache_refuses_a_smaller_cost",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "        let is_refused = other.cost >= refused.cost",
            "        let is_refused = other.cost > 0",
        )],
    ),
    planted(
        "deny_cache_refuses_a_longer_wait",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "            && other.max_wait <= refused.max_wait
            && other.max_wait < retry_after.saturating_sub(age)",
            "            && retry_after >= age",
        )],
    ),
    planted(
        "deny_cache_counts_nothing_down",
        &[edit(
            "limiter/deny_cache/cached_refusal.rs",
            "        is_refused.then(|| self.decision.repeated(age))",
            "        is_refused.then(|| self.decision.repeated(Duration::ZERO))",
        )],
    ),
    planted(
        "deny_cache_keeps_the_refusal_of_a_reset_key",
        &[edit(
            "limiter/deny_cache/afterwards.rs",
            "            Self::Forget(key) => cache.forget(key),",
            "            Self::Forget(_) => {}",
        )],
    ),
    planted(
        "deny_cache_keeps_the_refusal_before_a_lost_answer",
        &[edit(
            "limiter/deny_cache/afterwards.rs",
            "            Self::Learn(miss) => cache.unanswered(&miss),",
            "            Self::Learn(_) => {}",
        )],
    ),
    planted(
        "breaker_never_probes",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            State::Open { next_probe, .. } if now < *next_probe => None,",
            "            State::Open { .. } if self.period > 1 => None,",
        )],
    ),
    planted(
        "breaker_open_after_a_good_probe",
        &[edit(
            "limiter/breaker/circuit.rs",
            "            (State::Open { .. }, Outcome::Answered) => {",
            "            (State::Open { .. }, Outcome::Answered) if settings.pause.is_zero() => {",
        )],
    ),
    planted(
        "probe_of_a_caller_who_left_never_ends",
        &[
            edit(
                "limiter/breaker/breaker_call.rs",
                "        self.report(if self.is_slow { Outcome::Slow } else { Outcome::Unknown }, None);",
                "        let _ = self.is_slow;",
            ),
            edit(
                "limiter/breaker/circuit.rs",
                "                *next_probe = now + settings.probe_lost_after();",
                "                *next_probe = now + 1_000 * settings.probe_lost_after();",
            ),
        ],
    )
    .found_by_unit(
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    planted(
        "breaker_fails_open_for_slowness",
        &[edit(
            "limiter/breaker/shared_circuit.rs",
            "        Trouble::Slowness => (ErrorKind::Saturation, SLOW, None),",
            "        Trouble::Slowness => (ErrorKind::Infrastructure, SLOW, None),",
        )],
    )
    .found_by("limiters", "breaker::failures::slow_calls_open_it_and_fail_open_does_not_admit"),
    planted(
        "breaker_counts_load_as_a_failure",
        &[edit(
            "limiter/breaker/breaker_call.rs",
            "            ErrorKind::Saturation => Outcome::Saturated,",
            "            ErrorKind::Saturation => Outcome::Failed,",
        )],
    ),
    planted(
        "every_error_fails_open",
        &[edit(
            "limiter/or_else.rs",
            "        error.kind().may_fail_open()",
            "        error.kind().may_fail_open() || !error.to_string().is_empty()",
        )],
    ),
    planted(
        "members_that_admitted_keep_their_units",
        &[edit(
            "limiter/combination/held_reservations.rs",
            "        let _ = mem::take(&mut self.0).settle(|_, _| 0);",
            "        let _ = mem::take(&mut self.0);",
        )],
    ),
    planted(
        "one_member_settled_for_all",
        &[edit(
            "limiter/combination/held_reservations.rs",
            "in self.0.into_iter().rev() {",
            "in self.0.into_iter().rev().take(1) {",
        )],
    ),
    planted(
        "shadow_refuses",
        &[edit(
            "limiter/switch.rs",
            "        Ok(Decision::in_shadow(answer))",
            "        Ok(match answer {
            Ok(decision) if !decision.is_admitted() => decision,
            answer => Decision::in_shadow(answer),
        })",
        )],
    ),
    planted(
        "switch_that_is_off_still_charges",
        &[edit(
            "limiter/switch.rs",
            "            SwitchMode::Shadow => Begin::Seen(Some(self.clone()).filter(|_| charge.units() > 0)),
            SwitchMode::Off => Begin::Answered(off()),",
            "            _ => Begin::Seen(Some(self.clone()).filter(|_| charge.units() > 0)),",
        )],
    ),
    planted(
        "switch_in_shadow_refuses",
        &[edit(
            "limiter/switch.rs",
            "            SwitchMode::Shadow => Begin::Seen(Some(self.clone()).filter(|_| charge.units() > 0)),",
            "            SwitchMode::Shadow => Begin::Unseen,",
        )],
    ),
    planted(
        "retry_after_too_early",
        &[edit(
            "limiter/configured.rs",
            "        Verdict::Deny(wait) => Outcome::Deny { retry_after: Some(duration(wait)) },",
            "        Verdict::Deny(wait) => Outcome::Deny { retry_after: Some(duration(wait - 1)) },",
        )],
    ),
    planted(
        "wait_too_short",
        &[edit(
            "limiter/configured.rs",
            "        Verdict::Wait(wait) => Outcome::Wait(duration(wait)),",
            "        Verdict::Wait(wait) => Outcome::Wait(duration(wait - wait / 2)),",
        )],
    ),
    planted(
        "backstop_fires_far_too_late",
        &[edit(
            "limiter/timeout.rs",
            "deadline + BACKSTOP)",
            "deadline + 400 * BACKSTOP)",
        )],
    )
    .found_by("limiters", "a_silent_limiter_fails_at_its_deadline"),
    planted(
        "deadline_of_the_charge_ignored",
        &[edit(
            "limiter/charge_numbers.rs",
            "    charge.deadline().map_or(own, |deadline| own.min(Instant::from_std(deadline)))",
            "    charge.deadline().map_or(own, |deadline| own.max(Instant::from_std(deadline)))",
        )],
    )
    .found_by("limiters", "the_earliest_deadline_travels_with_the_charge"),
    planted(
        "backstop_taken_for_a_fault_of_the_server",
        &[edit(
            "limiter/timeout.rs",
            "        Poll::Ready(Err(Error::new(ErrorKind::Saturation, \"the limiter did not decide in time\")))",
            "        Poll::Ready(Err(Error::new(
            ErrorKind::Infrastructure,
            \"the limiter did not decide in time\",
        )))",
        )],
    )
    .found_by("limiters", "a_silent_limiter_fails_at_its_deadline"),
    planted(
        "late_timer_not_seen",
        &[edit(
            "redis-once/on_time.rs",
            "        self.begin.elapsed() > SLACK",
            "        self.begin.elapsed() > 10_000 * SLACK",
        )],
    )
    .found_by_unit_of_client("fault::tests::a_late_timer_is_load_for_every_charge_of_the_moment"),
    planted(
        "arrived_answers_not_read_at_the_deadline",
        &[edit(
            "redis-once/on_time.rs",
            "        let before = WorkerThreads::now();
        for round",
            "        if self.is_late() {
            return;
        }
        let before = WorkerThreads::now();
        for round",
        )],
    )
    .found_by_unit_of_client("on_time::tests::a_busy_process_reads_what_has_arrived"),
    planted(
        "units_of_before_a_reset_go_into_the_new_lease",
        &[edit(
            "limiter/lease/leased_key.rs",
            "        if stock.order.generation != self.generation || stock.valid_until <= now {",
            "        if stock.valid_until <= now {",
        )],
    ),
    planted(
        "slot_of_a_waiter_who_left_lost",
        &[edit(
            "limiter/line.rs",
            "        let given_back = newest.and_then(|slot| self.give_back(slot));",
            "        let given_back: Option<Settlement> = None;
        drop(newest);",
        )],
    ),
    planted(
        "slot_that_the_store_could_not_take_lost",
        &[edit(
            "limiter/line.rs",
            "                Ok(Settled { given_back: 0, .. }) if slot.due > Instant::now() => {",
            "                Ok(Settled { given_back: 0, .. }) if slot.due > Instant::now() && place.id.cost == 0 => {",
        )],
    )
    .found_by_unit("limiter::line::tests::a_kept_slot_that_is_given_back_is_kept_again"),
    planted(
        "waiter_goes_at_the_slot_before_its_own",
        &[edit(
            "limiter/line.rs",
            "        let first = self.slots.first_key_value().filter(|_| before == 0);",
            "        let first = self.slots.first_key_value().filter(|_| before < usize::MAX);",
        )],
    ),
    planted(
        "newest_waiter_goes_first",
        &[edit(
            "limiter/line.rs",
            "        let behind = (0..later).fold(0, |index, _| self.waiters[index].before);",
            "        let behind = self.waiters[later * 0].behind;",
        )],
    ),
    planted(
        "newcomer_takes_the_slot_of_a_waiter",
        &[edit(
            "limiter/line.rs",
            "            let spare = line.spares.first_entry()?;",
            "            let spare = line.slots.last_entry().or(line.spares.first_entry())?;",
        )],
    ),
    planted(
        "waiter_who_moves_up_not_woken",
        &[edit(
            "limiter/line.rs",
            "        waiter.waker.take_if(|_| due < before)",
            "        waiter.waker.take_if(|_| due < before && due > waiter.armed)",
        )],
    ),
    planted(
        "slot_of_before_a_move_settled",
        &[edit(
            "reservation.rs",
            "                Ok(ReservedUnits { mark: turn.mark().unwrap_or(reserved.mark), ..reserved })",
            "                let _ = turn.mark();
                Ok(reserved)",
        )],
    ),
    planted(
        "waiter_who_left_stays_in_line",
        &[
            edit(
                "waiters.rs",
                "        self.0.take().and_then(|waiters| waiters.remove());",
                "        drop(self.0.take());",
            ),
            edit(
                "limiter/line.rs",
                "            self.change(|line| self.remove_from(line));",
                "            let _ = &self.id;",
            ),
        ],
    )
    .found_by_unit("limiter::line::tests::a_panic_of_the_store_leaves_nobody_in_line"),
    planted(
        "settlement_never_ends",
        &[edit(
            "settlement.rs",
            "        if !has_ended {",
            "        if !has_ended && Arc::strong_count(&self.0) == 0 {",
        )],
    ),
    planted(
        "settlement_wakes_nobody",
        &[edit(
            "settlement.rs",
            "        waker.into_iter().for_each(Waker::wake);",
            "        drop(waker);",
        )],
    )
    .found_by_unit("settlement::tests::it_ends_when_its_sender_says_so_or_is_dropped"),
    planted(
        "place_of_a_waiting_request_not_returned",
        &[edit(
            "limiter/acquire.rs",
            "            _waiter_permit: waiter_permit,",
            "            _waiter_permit: {
                std::mem::forget(waiter_permit);
                None
            },",
        )],
    )
    .found_by("layer", "waiting::beyond_max_waiters_nobody_waits"),
    planted(
        "refund_of_the_layer_lost",
        &[edit(
            "future.rs",
            "        let _ = shared.limiter.settle(reservation, actual.min(most));",
            "        drop((reservation, actual.min(most)));",
        )],
    ),
    planted(
        "exchange_of_the_table_loses_what_was_taken",
        &[edit(
            "policy/limited_policy.rs",
            "            (Choice::Any(algorithm), Place::Memory) => {
                let kept = match before {
                    Some(Kind::Memory(memory)) => memory.with_algorithm(algorithm).ok(),",
            "            (Choice::Any(algorithm), Place::Memory) => {
                let kept = match before {
                    Some(Kind::Memory(_)) => None,",
        )],
    )
    .found_by("policies", "reload::a_changed_limit_keeps_what_was_taken"),
    planted(
        "exchange_of_the_table_forgets_the_switches",
        &[edit(
            "policy/policies.rs",
            "            let switch = switches.entry(policy.name().to_owned()).or_default().clone();",
            "            let switch = switches.entry(policy.name().to_owned()).or_default();
            *switch = Switch::new();
            let switch = switch.clone();",
        )],
    )
    .found_by_unit("policy::policies::tests::only_a_switch_that_somebody_uses_outlives_its_row"),
    planted(
        "policies_that_admitted_keep_their_units",
        &[edit(
            "limiter/combination/held_reservations.rs",
            "        let _ = mem::take(&mut self.0).settle(|_, _| 0);",
            "        drop(mem::take(&mut self.0));",
        )],
    )
    .found_by("policies", "several::javas_limiter_is_asked_on_its_own_and_gives_back"),
    planted(
        "one_policy_settled_for_all",
        &[edit(
            "limiter/combination/held_reservations.rs",
            "in self.0.into_iter().rev() {",
            "in self.0.into_iter().rev().take(1) {",
        )],
    )
    .found_by("policies", "settling::javas_limiter_gives_back_and_takes_no_more_than_was_charged"),
    planted(
        "permits_of_redisson_not_returned_for_a_caller_who_left",
        &[edit(
            "redisson/take_permits.rs",
            "        if !self.is_needed {",
            "        if !self.is_needed || self.permits > 0 {",
        )],
    )
    .found_by("redis", "redisson::faults::a_grant_whose_caller_has_left_is_refunded"),
    planted(
        "waiter_for_permits_of_redisson_not_woken",
        &[edit(
            "redisson/queues.rs",
            "            queue.requested_permits = queue.requested_permits.saturating_sub(self.permits.into());
        }
        self.queues.wake(&self.name);",
            "            queue.requested_permits = queue.requested_permits.saturating_sub(self.permits.into());
        }",
        )],
    )
    .found_by_unit("redisson::queues::tests::a_wakeup_of_a_dropped_waiter_wakes_the_next"),
    planted(
        "permits_of_redisson_counted_as_asked_for_ever",
        &[edit(
            "redisson/queues.rs",
            "            queue.requested_permits = queue.requested_permits.saturating_sub(self.permits.into());",
            "            let _ = (queue, self.permits);",
        )],
    )
    .found_by_unit("redisson::queues::tests::one_asks_and_the_others_learn_the_result"),
    planted(
        "wait_for_permits_of_redisson_counted_anew",
        &[edit(
            "limiter/acquire.rs",
            "        self.charge.longest_wait().unwrap_or_default().saturating_sub(self.since.elapsed())",
            "        self.charge.longest_wait().unwrap_or_default().saturating_sub(self.last_check.elapsed())",
        )],
    )
    .found_by("redis", "redisson::waiting::callers_without_a_permit_give_up_after_max_wait"),
];
