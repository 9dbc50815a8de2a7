//! Mutants of the crate: one edit each, and the tests that must notice. Unit tests are the first choice, since they
//! compile fastest.

/// An edit of one file, and the tests that must notice: a test binary and a part of their names.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) tests: [&'static str; 2],
}

const fn mutant(
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    tests: [&'static str; 2],
) -> Mutant {
    Mutant { name, file, from, to, tests }
}

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        "clocks_of_clients",
        "src/limiter/redis/config.rs",
        "clock: None,",
        "clock: Some(std::sync::Arc::new(|| {
                let skew = std::time::Duration::from_millis(u64::from(std::process::id() % 2) * 200);
                std::time::UNIX_EPOCH.elapsed().unwrap_or_default() + skew
            })),",
        ["oracle", "nothing_goes_over"],
    ),
    // The layer, and waiting.
    mutant(
        "ready_before_it_is_admitted",
        "src/service.rs",
        "        Poll::Ready(Ok(()))\n",
        "        self.inner.poll_ready(_cx).map_err(Into::into)\n",
        ["layer", "readiness"],
    ),
    mutant(
        "a_cost_of_0_peeks_through_a_layer",
        "src/service.rs",
        "charge.pays_for_request();",
        "let _ = &mut charge;",
        ["layer", "a_request_whose_cost_is_0_pays_1"],
    ),
    mutant(
        "taken_from_what_cannot_take",
        "src/service.rs",
        "!shared.limiter.can_owe()",
        "false",
        ["layer", "what_cannot_be_taken"],
    ),
    mutant(
        "dropped_waiter_keeps_its_slot",
        "src/limiter/acquire.rs",
        "limiter.refund(reservation);",
        "drop(reservation);",
        ["layer", "refunded_once"],
    ),
    mutant(
        "second_wait_taken_for_a_grant",
        "src/limiter/acquire.rs",
        "                        outcome => {\n                            this.state.set(State::Done);",
        "                        outcome => {
                            let outcome = match outcome {
                                Outcome::Retry(_) if this.asked.as_ref().is_some_and(|a| a.again) => Outcome::Allow,
                                outcome => outcome,
                            };
                            this.state.set(State::Done);",
        ["redisson_waiting", "patience_ends"],
    ),
    // Limiters around limiters.
    mutant(
        "open_under_load",
        "src/limiter/or_else.rs",
        "        kind == ErrorKind::Infrastructure\n",
        "        matches!(kind, ErrorKind::Infrastructure | ErrorKind::Saturation)\n",
        ["limiters", "opens_the_gate"],
    ),
    mutant(
        "settled_with_the_inner_limiter",
        "src/limiter/or_else.rs",
        "return self.fallback.take(charge);",
        "return self.inner.owe(charge);",
        ["layer", "a_settlement_takes"],
    ),
    mutant(
        "penalized_at_the_inner_limiter",
        "src/limiter/or_else.rs",
        "if charge.settles_fallback(self.number) {\n            State::FallingBack",
        "if false {\n            State::FallingBack",
        ["limiters", "a_penalty_that_settles"],
    ),
    mutant(
        "backstop_is_infrastructure",
        "src/limiter/timeout.rs",
        "Error::new(ErrorKind::Saturation, \"the limiter",
        "Error::new(ErrorKind::Infrastructure, \"the limiter",
        ["limiters", "a_silent_limiter"],
    ),
    mutant(
        "the_whole_time_for_each_in_turn",
        "src/limiter/all_in_turn.rs",
        "match limiter.check(charge).await {",
        "let end = tokio::time::Instant::now().into_std() + Duration::from_millis(2_500);
    let again = Charge::new(charge.key().to_owned()).cost(charge.get_cost()).decided_by(end);
    match limiter.check(&again).await {",
        ["limiters", "limiters_in_turn_get_what_is_left_of_the_time"],
    ),
    mutant(
        "late_in_turn_is_infrastructure",
        "src/limiter/all_in_turn.rs",
        "Err(Error::new(ErrorKind::Saturation, late)",
        "Err(Error::new(ErrorKind::Infrastructure, late)",
        ["limiters", "limiters_in_turn_get_what_is_left_of_the_time"],
    ),
    // In memory.
    mutant(
        "live_keys_forgotten",
        "src/limiter/memory/shard.rs",
        ".filter(|expires_at| *expires_at > now)",
        ".filter(|expires_at| *expires_at > now + 1_000_000_000)",
        ["memory", "memory"],
    ),
    mutant(
        "decided_before_it_is_polled",
        "src/limiter/memory.rs",
        "    fn ask(&self, operation: Option<Operation>, charge: &Charge) -> MemoryFuture<A> {\n",
        "    fn ask(&self, operation: Option<Operation>, charge: &Charge) -> MemoryFuture<A> {
        let _ = self.store.decide(charge);
",
        ["memory", "what_is_dropped_before_it_is_polled_takes_nothing"],
    ),
    mutant(
        "long_keys_kept_whole",
        "src/limiter/memory/store.rs",
        "let name = digest::short(charge.key());
        let ((step, mark, now), key)",
        "let name = charge.key();
        let ((step, mark, now), key)",
        ["memory", "memory_is_bounded_in_bytes"],
    ),
    mutant(
        "refund_of_a_tuple_subtracts_only",
        "src/algorithm/several.rs",
        "$member::consume_with_others(",
        "$member::consume(",
        ["twins", "leave_no_trace"],
    ),
    // Keys and errors.
    mutant(
        "keys_as_they_come",
        "src/limiter/redis/key.rs",
        "text.bytes().all(harmless)",
        "text.bytes().all(|byte| harmless(byte) || byte == b'}')",
        ["lib", "limiter::redis::key"],
    ),
    mutant(
        "prefix_and_name_run_into_each_other",
        "src/limiter/redis/key.rs",
        "escaped(&safe, &[':'])",
        "safe",
        ["lib", "limiter::redis::key"],
    ),
    mutant(
        "braces_in_a_prefix",
        "src/limiter/redis/key.rs",
        "escaped(prefix, &['%', '{', '}'])",
        "escaped(prefix, &['%'])",
        ["lib", "limiter::redis::key"],
    ),
    mutant(
        "read_only_behind_a_place_is_state",
        "src/limiter/redis/error.rs",
        "Some(inner) = inside_script(rest)",
        "Some(inner) = inside_script(rest).filter(|_| false)",
        ["lib", "limiter::redis::error"],
    ),
    mutant(
        "key_in_the_text_of_an_error",
        "src/limiter/redis/error.rs",
        "(its text may repeat a key)\")",
        "{}\", reply.text)",
        ["lib", "limiter::redis::error"],
    ),
    mutant(
        "argument_in_the_text_of_an_error",
        "src/limiter/redis/error.rs",
        "\" access the '\"",
        "\" access to '\"",
        ["lib", "limiter::redis::error"],
    ),
    // Batches and refunds.
    mutant(
        "late_answer_kept",
        "src/limiter/redis/queue.rs",
        "Err(Ok(unheard)) => unheard.into_refund(),",
        "Err(Ok(unheard)) => unheard.into_refund().filter(|_| false),",
        ["fault_replies", "late_answer"],
    ),
    mutant(
        "call_dropped_with_its_caller",
        "src/limiter/redis/pending.rs",
        "runtime.spawn(inline);",
        "drop((runtime, inline));",
        ["batcher", "who_leaves_on_the_way"],
    ),
    mutant(
        "refunds_oldest_first",
        "src/limiter/redis/queue.rs",
        "self.refunds.pop_last()",
        "self.refunds.pop_first()",
        ["lib", "limiter::redis::queue"],
    ),
    mutant(
        "refunds_in_the_order_they_come",
        "src/limiter/redis/queue.rs",
        "insert((mark.clone(), self.arrivals), charge)",
        "insert((Left::default(), self.arrivals), charge)",
        ["lib", "limiter::redis::queue"],
    ),
    mutant(
        "refunds_in_two_calls_at_once",
        "src/limiter/redis/queue.rs",
        "if self.refunds_in_flight { None }",
        "if false { None }",
        ["lib", "limiter::redis::queue"],
    ),
    mutant(
        "a_slot_until_the_latest_deadline",
        "src/limiter/redis/call.rs",
        "SLOT_TIMEOUT: Duration = Duration::from_millis(100)",
        "SLOT_TIMEOUT: Duration = Duration::from_secs(10)",
        ["batcher", "a_long_deadline"],
    ),
    mutant(
        "more_keys_than_a_script_takes",
        "src/limiter/redis/config.rs",
        "LARGEST_BATCH.min(MAX_KEYS / self.key_prefixes.len())",
        "LARGEST_BATCH.max(MAX_KEYS / self.key_prefixes.len())",
        ["batcher", "the_largest_batch"],
    ),
    mutant(
        "sent_again_although_nobody_asks",
        "src/limiter/redis/eval.rs",
        "if !arguments(&mut by_text) {",
        "arguments(&mut by_text);\n    if false {",
        ["batcher", "is_not_sent_again"],
    ),
    mutant(
        "charged_twice_after_noscript",
        "src/limiter/redis/eval.rs",
        "Some(connection.send(by_text).await",
        "let _ = connection.send(by_text.clone()).await;\n    Some(connection.send(by_text).await",
        ["batcher", "a_broken_key"],
    ),
    mutant(
        "redisson_late_grant_kept",
        "src/redisson/call.rs",
        "if !self.is_needed {",
        "if true {",
        ["redisson_faults", "given_back"],
    ),
    // Load, and silence.
    mutant(
        "late_timer_is_no_load",
        "src/limiter/redis/deadline.rs",
        "pool.record_busy();",
        "",
        ["lib", "limiter::redis::deadline"],
    ),
    mutant(
        "late_timer_counts_for_itself_only",
        "src/limiter/redis/deadline.rs",
        "pool.was_busy_since(self.start)",
        "self.overtime.is_late()",
        ["lib", "limiter::redis::deadline"],
    ),
    mutant(
        "reply_meanwhile_is_no_load",
        "src/limiter/redis/deadline.rs",
        "if is_busy || slot_answers || is_load {",
        "if is_busy {",
        ["lib", "limiter::redis::deadline"],
    ),
    mutant(
        "silent_server_of_a_cluster_is_load",
        "src/limiter/redis/deadline.rs",
        "pool.is_silent(self.slot)",
        "false",
        ["lib", "limiter::redis::deadline"],
    ),
    mutant(
        "no_chance_to_catch_up",
        "src/limiter/overtime.rs",
        "        for round in 1..=ROUNDS {",
        "        return;\n        for round in 1..=ROUNDS {",
        ["busy_process", "when_the_timer_fires"],
    ),
    mutant(
        "one_silent_call_gives_up_a_connection",
        "src/limiter/redis/health.rs",
        "(2 * now.saturating_sub(sent))",
        "now.saturating_sub(sent)",
        ["lib", "limiter::redis::health"],
    ),
    mutant(
        "busy_process_gives_up_a_connection",
        "src/limiter/redis/health.rs",
        "if is_busy { BUSY } else { 1 }",
        "1",
        ["lib", "limiter::redis::health"],
    ),
    mutant(
        "timeouts_of_different_hours_are_one_silence",
        "src/limiter/redis/health.rs",
        "self.begun.store(sent, Relaxed);",
        "",
        ["lib", "limiter::redis::health"],
    ),
    mutant(
        "silent_connections_go_one_by_one",
        "src/limiter/redis/health.rs",
        "self.server.generation.store(next, Relaxed);",
        "let _ = next;",
        ["lib", "limiter::redis::health"],
    ),
    mutant(
        "no_pause_before_a_read_only_server",
        "src/limiter/redis/connections.rs",
        "self.backoff.fail_useless(now);",
        "",
        ["connections", "a_demoted_primary_is_reconnected_to_with_pauses"],
    ),
    mutant(
        "given_connections_replaced_without_pauses",
        "src/limiter/redis/bb8_pool.rs",
        "sleep_until(pause.unwrap_or_else(Instant::now)).await;",
        "let _ = (pause, sleep_until);",
        ["connections", "leaves_a_demoted_primary"],
    ),
];
