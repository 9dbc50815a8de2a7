//! Decisions over real sockets, each in this process and over Redis.

mod common;

use common::Service;
use common::ask::{about, ask, client, hits, short, x};
use support::Server;
use tonic::Code;

/// Runs a test in both stores, with these rules and variables.
macro_rules! in_both {
    ($name:ident, $rules:expr, $variables:expr, $service:ident, $client:ident => $test:block) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let redis = Server::start();
            let url = redis.url();
            for store in [None, Some(("REDIS_URL", &*url))] {
                // No decision depends on the speed of the machine.
                let more = store.into_iter().chain([("REDIS_TIMEOUT", "30")]);
                let variables: Vec<(&str, &str)> = $variables.into_iter().chain(more).collect();
                let $service = Service::start($rules, &variables);
                let $client = client($service.grpc);
                $test
            }
        }
    };
}

const RULES: &str = "
domain: x
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: b
    rate_limit: {unit: year, requests_per_unit: 5, name: b}
  - key: none
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true, replaces: [{name: b}]}
  - key: chain
    rate_limit: {unit: year, requests_per_unit: 9, name: chain, replaces: [{name: b}]}
  - key: end
    rate_limit: {unit: year, requests_per_unit: 9, replaces: [{name: chain}]}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: q
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: bucket
    rate_limit: {unit: year, requests_per_unit: 4, algorithm: token_bucket, burst: 2}
  - key: primes
    rate_limit: {unit: year, requests_per_unit: 1009, algorithm: token_bucket}
  - key: file
    value: a/*
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: alone
    value: a/*
    rate_limit: {unit: year, requests_per_unit: 2}
";

in_both!(a_limit_counts_down_and_refuses, RULES, [], _service, client => {
    for left in ["OK: OK 2", "OK: OK 1", "OK: OK 0", "OVER: OVER 0", "OVER: OVER 0"] {
        assert_eq!(x(&client, &["a=1"]).await, left);
    }
    assert_eq!(x(&client, &["a=2"]).await, "OK: OK 2", "another value");
    assert_eq!(x(&client, &["none=1"]).await, "OVER: OVER 0");
    assert_eq!(hits(&client, &["b=1"], 2).await, "OK: OK 3");
    let response = ask(&client, about("x", &["b=1"], 0)).await.unwrap();
    let limit = response.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (5, 6, "b"));
    let until_reset = response.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!((1..=365 * 86_400).contains(&until_reset.seconds));
});

// Otherwise a caller with a long header would turn the other limits off, too.
in_both!(a_value_of_any_length_is_counted, RULES, [], _service, client => {
    let [long, other] = ["/", "-"].map(|letter| format!("b={}", letter.repeat(60_000)));
    assert_eq!(hits(&client, &["a=1", &long], 2).await, "OK: OK 1, OK 3");
    assert_eq!(hits(&client, &["a=1", &long], 2).await, "OVER: OVER 0, OK 3");
    assert_eq!(hits(&client, &[&long, &other], 1).await, "OK: OK 2, OK 4");
});

in_both!(a_refused_request_takes_nothing, RULES, [], _service, client => {
    assert_eq!(hits(&client, &["a=1"], 2).await, "OK: OK 1");
    assert_eq!(hits(&client, &["a=1"], 2).await, "OVER: OVER 0");
    assert_eq!(hits(&client, &["a=1", "b=1"], 2).await, "OVER: OVER 0, OK 5");
    assert_eq!(hits(&client, &["b=1", "none=1"], 2).await, "OVER: OK 5, OVER 0");
    assert_eq!(hits(&client, &["a=1", "b=1"], 1).await, "OK: OK 0, OK 4");
    assert_eq!(hits(&client, &["a=1"], u32::MAX).await, "OVER: OVER 0");
});

in_both!(more_than_eight_descriptors_are_all_or_nothing, RULES, [], _service, client => {
    let some: Vec<String> = (0..20).map(|index| format!("b={index}")).collect();
    let all: Vec<&str> = some.iter().map(String::as_str).collect();
    let each = |status: &str| vec![status; 20].join(", ");
    assert_eq!(hits(&client, &all, 3).await, format!("OK: {}", each("OK 2")));
    assert_eq!(x(&client, &["b=17", "b=17", "a=1"]).await, "OK: OK 1, OK 0, OK 2");
    let refused = hits(&client, &all, 1).await;
    let statuses = each("OK 2").replacen("OK 2", "A", 17).replacen("OK 2", "OVER 0", 1);
    assert_eq!(refused, format!("OVER: {}", statuses.replace('A', "OK 2")));
    assert_eq!(x(&client, &["b=0"]).await, "OK: OK 1");
});

in_both!(a_descriptor_twice_is_counted_twice_in_order, RULES, [], _service, client => {
    assert_eq!(x(&client, &["a=1", "a=1"]).await, "OK: OK 2, OK 1");
    assert_eq!(x(&client, &["a=1", "a=1"]).await, "OVER: OK 1, OVER 0");
    assert_eq!(x(&client, &["a=1", "a=1@10/6"]).await, "OK: OK 0, OK 6");
    assert_eq!(x(&client, &["a=1@10/6", "a=1"]).await, "OVER: OK 6, OVER 0");
    assert_eq!(x(&client, &["shadow=1", "shadow=1", "shadow=1"]).await, "OK: OK 1, OK 0, OK 0");
});

in_both!(an_override_shares_the_counter_of_its_unit, RULES, [], _service, client => {
    assert_eq!(hits(&client, &["a=1"], 3).await, "OK: OK 0");
    assert_eq!(x(&client, &["a=1@9/6"]).await, "OK: OK 5");
    assert_eq!(x(&client, &["a=1@9/4"]).await, "OK: OK 8", "another unit");
    assert_eq!(x(&client, &["a=1@2/6"]).await, "OVER: OVER 0");
    assert_eq!(x(&client, &["shadow=1@1/6"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["shadow=1@1/6"]).await, "OVER: OVER 0", "no shadow");
    assert_eq!(x(&client, &["unknown=1@1/6"]).await, "OK: OK 0");
    let other = ask(&client, about("y", &["a=1@1/6"], 0)).await.unwrap();
    assert_eq!(short(&other), "OK: OK 0 free", "an unknown domain");
});

in_both!(reports_of_use_count_over_the_limit_too, RULES, [], service, client => {
    assert_eq!(x(&client, &["a=1+0"]).await, "OK: OK 3");
    assert_eq!(x(&client, &["a=1+2", "b=1"]).await, "OK: OK 1, OK 4");
    assert_eq!(x(&client, &["a=1+2", "b=1"]).await, "OVER: OVER 0, OK 3", "both counted");
    assert_eq!(x(&client, &["a=1+0"]).await, "OVER: OVER 0", "4 of 3 are used");
    assert_eq!(x(&client, &["a=1@9/6"]).await, "OK: OK 4");
    assert_eq!(x(&client, &["b=1"]).await, "OK: OK 2");
    assert_eq!(x(&client, &["b=2+5"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["b=2+0"]).await, "OK: OK 0", "5 of 5 are used");
    assert_eq!(x(&client, &["none=1+0"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["none=1+1"]).await, "OVER: OVER 0");
    assert_eq!(x(&client, &["shadow=1+3"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["bucket=1+1"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["bucket=1+2"]).await, "OVER: OVER 0");
    assert_eq!(x(&client, &["bucket=1+0"]).await, "OVER: OVER 0");
    // Its time of a unit is rounded up, and an empty bucket owes nothing all the same.
    assert_eq!(x(&client, &["primes=1+1009"]).await, "OK: OK 0");
    assert_eq!(hits(&client, &["primes=2"], 1009).await, "OK: OK 0");
    assert_eq!(x(&client, &["primes=2"]).await, "OVER: OVER 0");
    for _ in 0..3 {
        let most = format!("a=2+{}", u64::MAX);
        assert_eq!(x(&client, &[&most, &most]).await, "OVER: OVER 0, OVER 0");
        assert_eq!(x(&client, &["a=2"]).await, "OVER: OVER 0");
    }
    let series = "{domain=\"x\",key1=\"shadow\"}";
    assert_eq!(service.metric(&format!("ratelimit_service_rate_limit_shadow_mode{series}")), 3);
});

in_both!(negative_hits_are_given_back_and_refuse_nothing, RULES, [], service, client => {
    assert_eq!(x(&client, &["b=1+4"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["b=1~3"]).await, "OK: OK 4");
    assert_eq!(x(&client, &["b=1~3"]).await, "OK: OK 5", "never below 0");
    assert_eq!(x(&client, &["b=1~0"]).await, "OK: OK 5");
    assert_eq!(x(&client, &["b=1+9"]).await, "OVER: OVER 0");
    assert_eq!(x(&client, &["b=1~1"]).await, "OK: OK 0", "8 of 5 are used");
    assert_eq!(x(&client, &["b=1~4"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["b=1~1", "b=1~1", "a=1"]).await, "OK: OK 3, OK 3, OK 2");
    // What others refuse is given back all the same, for it was used before.
    assert_eq!(x(&client, &["none=1", "b=1~1"]).await, "OVER: OVER 0, OK 4");
    assert_eq!(x(&client, &["none=1~9"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["bucket=1+2"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["bucket=1~1", "a=1~1"]).await, "OK: OK 1, OK 3");
    assert_eq!(x(&client, &["shadow=1+3", "bucket=1~9"]).await, "OK: OK 0, OK 2");
    let most = format!("b=1~{}", u64::MAX);
    assert_eq!(x(&client, &[&most]).await, "OK: OK 5");
    let many: Vec<String> = (0..20).map(|index| format!("b=m{index}+2")).collect();
    let _ = x(&client, &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let back: Vec<String> = (0..20).map(|index| format!("b=m{index}~1")).collect();
    let left = x(&client, &back.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(left, format!("OK: {}", vec!["OK 4"; 20].join(", ")));
    // The whole request's hits, of a descriptor that has none of its own.
    let mut request = about("x", &["b=1~1"], 2);
    request.descriptors[0].hits_addend = None;
    assert_eq!(x(&client, &["b=1+3"]).await, "OK: OK 2");
    assert_eq!(short(&ask(&client, request).await.unwrap()), "OK: OK 4");
    let series = "{domain=\"x\",key1=\"bucket\"}";
    let of = |name: &str| service.metric(&format!("ratelimit_service_rate_limit_{name}{series}"));
    assert_eq!((of("total_negative_hits"), of("total_hits")), (10, 2));
});

in_both!(rules_replace_others_by_name, RULES, [], _service, client => {
    let max = u32::MAX;
    assert_eq!(x(&client, &["b=1", "free=1"]).await, format!("OK: OK 0 free, OK {max} free"));
    assert_eq!(x(&client, &["b=1", "chain=1"]).await, "OK: OK 0 free, OK 8");
    assert_eq!(x(&client, &["b=1", "chain=1", "end=1"]).await, "OK: OK 0 free, OK 0 free, OK 8");
    assert_eq!(x(&client, &["b=1", "b=2"]).await, "OK: OK 4, OK 4", "nothing was taken");
    assert_eq!(x(&client, &["b=1@9/6", "free=1"]).await, format!("OK: OK 7, OK {max} free"));
});

in_both!(a_shadow_refuses_nothing_and_takes_nothing_without_room, RULES, [], service, client => {
    assert_eq!(hits(&client, &["shadow=1"], 3).await, "OK: OK 0");
    assert_eq!(hits(&client, &["shadow=1", "b=1"], 2).await, "OK: OK 0, OK 3");
    assert_eq!(hits(&client, &["shadow=1", "b=1"], 2).await, "OK: OK 0, OK 1");
    assert_eq!(hits(&client, &["shadow=1", "b=1"], 2).await, "OVER: OK 0, OVER 0");
    let series = "{domain=\"x\",key1=\"shadow\"}";
    assert_eq!(service.metric(&format!("ratelimit_service_rate_limit_shadow_mode{series}")), 7);
    assert_eq!(service.metric(&format!("ratelimit_service_rate_limit_total_hits{series}")), 9);
});

in_both!(quotas_refuse_together_only, RULES, [], _service, client => {
    assert_eq!(x(&client, &["q=1", "a=1"]).await, "OK: OK 0, OK 2");
    assert_eq!(x(&client, &["q=1", "q=2", "a=1"]).await, "OK: OVER 0, OK 0, OK 1");
    assert_eq!(x(&client, &["q=1", "q=2", "a=1"]).await, "OVER: OVER 0, OVER 0, OK 1");
    assert_eq!(x(&client, &["a=1"]).await, "OK: OK 0");
});

in_both!(a_shared_threshold_is_one_counter, RULES, [], _service, client => {
    assert_eq!(x(&client, &["file=a/1"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["file=a/2"]).await, "OK: OK 0");
    assert_eq!(x(&client, &["file=a/3"]).await, "OVER: OVER 0");
    assert_eq!(x(&client, &["alone=a/1"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["alone=a/2"]).await, "OK: OK 1");
    assert_eq!(x(&client, &["file=b/2"]).await, "OK: OK 0 free");
});

in_both!(a_bucket_is_an_extension, RULES, [], _service, client => {
    assert_eq!(x(&client, &["bucket=1", "a=1", "b=1"]).await, "OK: OK 1, OK 2, OK 4");
    assert_eq!(x(&client, &["b=1", "bucket=1", "bucket=1"]).await, "OVER: OK 4, OK 1, OVER 0");
    assert_eq!(x(&client, &["bucket=1"]).await, "OK: OK 0");
    let response = ask(&client, about("x", &["bucket=1"], 0)).await.unwrap();
    assert_eq!(short(&response), "OVER: OVER 0");
    assert_eq!(response.statuses[0].current_limit.as_ref().unwrap().requests_per_unit, 4);
});

in_both!(invalid_requests_are_errors_with_words, RULES, [], service, client => {
    let table = [
        (about("", &["a=1"], 0), "domain"),
        (about("x", &[], 0), "descriptors"),
        (about("x", &["a=1@5/0"], 0), "unit 0"),
        (about("x", &["a=1@5/99"], 0), "unit 99"),
    ];
    for (request, word) in table {
        let status = ask(&client, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(word), "{status}");
    }
    let errors = "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"}";
    assert_eq!(service.metric(errors), 4);
    let free = ask(&client, about("other", &["a=1"], 0)).await.unwrap();
    assert_eq!(short(&free), "OK: OK 0 free");
});

in_both!(in_shadow_mode_nothing_is_refused, RULES, [("SHADOW_MODE", "true")], service, client => {
    assert_eq!(hits(&client, &["a=1", "b=1"], 2).await, "OK: OK 1, OK 3");
    assert_eq!(hits(&client, &["a=1", "b=1"], 2).await, "OK: OVER 0, OK 3");
    assert_eq!(hits(&client, &["a=1", "b=1"], 1).await, "OK: OK 0, OK 2");
    assert_eq!(service.metric("ratelimit_service_global_shadow_mode"), 1);
});

const FIELDS: [(&str, &str); 1] = [("RESPONSE_HEADERS", "1")];

in_both!(fields_show_the_last_refusal_or_the_least_left, RULES, FIELDS, _service, client => {
    let fields = async |descriptors: &[&str]| {
        let response = ask(&client, about("x", descriptors, 0)).await.unwrap();
        let fields = response.response_headers_to_add.iter();
        let fields: Vec<_> = fields.map(|one| (one.key.clone(), one.value.clone())).collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| &**name).collect();
        if fields.is_empty() {
            return String::new();
        }
        assert_eq!(names, ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]);
        assert!(fields[2].1.parse::<u64>().unwrap() > 0);
        format!("{}/{}", fields[1].1, fields[0].1)
    };
    assert_eq!(fields(&["b=1", "a=1", "a=2"]).await, "2/3");
    assert_eq!(fields(&["a=1", "none=1", "b=1", "none=2@0/6"]).await, "0/0");
    assert_eq!(fields(&["shadow=1", "a=1"]).await, "1/2");
    assert_eq!(fields(&["free=1", "other=1"]).await, "");
});

in_both!(without_the_setting_there_are_no_fields, RULES, [], _service, client => {
    let response = ask(&client, about("x", &["a=1"], 0)).await.unwrap();
    assert!(response.response_headers_to_add.is_empty());
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_share_counters_and_many_callers_never_exceed_a_limit() {
    let redis = Server::start();
    let rules = "
domain: x
descriptors:
- key: a
  rate_limit: {unit: year, requests_per_unit: 100}
- key: b
  rate_limit: {unit: year, requests_per_unit: 150}
";
    let url = redis.url();
    let services =
        [0, 1].map(|_| Service::start(rules, &[("REDIS_URL", &url), ("REDIS_TIMEOUT", "30")]));
    let callers = (0..8).map(|caller| {
        let client = client(services[caller % 2].grpc);
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..25 {
                let both = x(&client, &["a=1", "b=1"]).await;
                admitted += u32::from(both.starts_with("OK"));
            }
            admitted
        })
    });
    let mut admitted = 0;
    for caller in callers.collect::<Vec<_>>() {
        admitted += caller.await.unwrap();
    }
    assert_eq!(admitted, 100);
    let left = x(&client(services[0].grpc), &["b=1"]).await;
    assert_eq!(left, "OK: OK 49", "refusals took nothing");
}
