//! Faults that a world cannot hold, and the test of the crate that fails with each of them.

use super::LIB;

/// A fault, and a test that finds it.
pub(super) struct Elsewhere {
    pub fault: &'static str,
    /// The name of the test's file, or the unit tests.
    pub target: &'static str,
    pub test: &'static str,
}

const fn unit(fault: &'static str, test: &'static str) -> Elsewhere {
    Elsewhere { fault, target: LIB, test }
}

const fn by(fault: &'static str, target: &'static str, test: &'static str) -> Elsewhere {
    Elsewhere { fault, target, test }
}

pub(super) const ELSEWHERE: &[Elsewhere] = &[
    unit(
        "slots_outlive_resets_and_blocks_of_others",
        "limiter::line::tests::a_slot_of_several_keys_is_forgotten_with_each_of_them",
    ),
    unit(
        "slots_of_waiters_outlive_a_reset",
        "limiter::line::tests::who_waited_at_a_block_leaves_no_slot_at_hand",
    ),
    unit(
        "kept_slot_lost_by_a_charge_that_gave_it_back",
        "limiter::line::tests::a_kept_slot_that_is_given_back_is_kept_again",
    ),
    unit(
        "place_in_line_kept_after_a_panic",
        "limiter::line::tests::a_panic_of_the_store_leaves_nobody_in_line",
    ),
    unit(
        "refused_greeting_taken_for_a_silent_one",
        "limiter::redis::greeting::tests::a_refusal_that_may_pass_is_no_answer_without_a_role",
    ),
    unit(
        "wait_for_a_connection_judged_by_its_last_timer",
        "limiter::redis::deadline::tests::a_wait_for_a_connection_whose_timers_fire_late_is_load",
    ),
    unit(
        "slow_attempt_after_load_taken_for_a_hang",
        "limiter::redis::pool_state::tests::an_attempt_that_hangs_hides_neither_a_fault_of_the_server_nor_load",
    ),
    unit(
        "hang_hides_that_the_server_was_away",
        "limiter::redis::pool_state::tests::an_attempt_that_hangs_hides_neither_a_fault_of_the_server_nor_load",
    ),
    unit(
        "arrived_answers_lost_at_a_switch",
        "limiter::redis::health::tests::a_call_to_a_server_that_is_left_ends_with_what_has_arrived",
    ),
    unit(
        "calls_to_a_server_that_was_left_go_on",
        "limiter::redis::health::tests::a_call_to_a_server_that_is_left_ends_with_what_has_arrived",
    ),
    unit(
        "end_within_a_reply_taken_for_an_odd_reply",
        "limiter::redis::error::tests::only_the_end_of_a_connection_within_a_reply_is_infrastructure",
    ),
    unit(
        "ticks_of_timers_count_as_load",
        "limiter::grace_period::tests::a_short_time_to_connect_is_no_load",
    ),
    unit(
        "dead_sentinel_hides_load",
        "limiter::redis::sentinel::reports::tests::errors_say_what_is_wrong",
    ),
    unit(
        "slot_of_a_cluster_waits_for_a_silent_refund",
        "limiter::redis::call::tests::a_refund_without_an_answer_keeps_its_slot_for_a_short_time",
    ),
    unit(
        "slot_that_nobody_serves_taken_for_load",
        "limiter::redis::cluster::refresh::tests::a_slot_that_nobody_serves_is_known_once_the_map_is_read",
    ),
    unit(
        "some_errors_fail_open_for_all",
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    unit(
        "saturated_probe_leaves_the_gate_open",
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    unit(
        "breaker_opens_at_a_call_that_says_nothing",
        "limiter::breaker::circuit::tests::no_order_of_three_callers_grants_two_probes_or_blocks_the_circuit",
    ),
    unit(
        "wrong_sentinel_believed_when_it_comes_back",
        "limiter::redis::sentinel::reports::tests::at_the_start_most_votes_win",
    ),
    unit(
        "silence_begins_before_the_last_reply",
        "limiter::redis::health::tests::a_silence_begins_after_the_last_reply",
    ),
    unit(
        "silence_of_a_busy_process_is_short",
        "limiter::redis::health::tests::a_busy_process_waits_longer",
    ),
    unit(
        "first_missed_deadline_dated_by_the_start",
        "limiter::redis::deadline::tests::in_a_cluster_a_silent_server_shows_after_a_while",
    ),
    unit(
        "late_timer_counts_for_its_own_charge_alone",
        "limiter::redis::deadline::tests::a_late_timer_is_load_for_every_charge_of_the_moment",
    ),
    unit(
        "call_without_a_reply_keeps_its_place_in_flight",
        "limiter::redis::call::tests::a_refund_without_an_answer_keeps_its_slot_for_a_short_time",
    ),
    unit(
        "connection_left_at_its_first_missed_deadlines",
        "limiter::redis::health::tests::a_busy_process_waits_longer",
    ),
    unit(
        "oldest_refund_first",
        "limiter::redis::queue::tests::a_slot_keeps_its_order_until_all_its_refunds_are_done",
    ),
    unit(
        "refunds_wait_behind_charges",
        "limiter::redis::queue::tests::a_failure_reaches_all_that_wait",
    ),
    unit(
        "silence_counts_for_one_connection_alone",
        "limiter::redis::health::tests::a_useless_connection_says_since_when",
    ),
    unit(
        "turned_away_by_a_cluster_in_a_busy_process_fails_open",
        "limiter::redis::deadline::tests::a_cluster_that_turns_a_charge_away_for_most_of_its_time_is_at_fault",
    ),
];
