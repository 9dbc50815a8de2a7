//! The service itself: its ports, its files, and Redis when it is away.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use common::Service;
use common::ask::{about, ask, client, short, x};
use support::files::Files;
use support::{Server, until};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The longest time until a changed file is in force, on a busy machine.
const RELOAD: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 3 });

/// The longest time until an error, on a busy machine: 0.9 s are promised.
const SOON: Duration = Duration::from_secs(4);

fn rules(limit: u32) -> String {
    let rate_limit = format!("{{unit: year, requests_per_unit: {limit}}}");
    format!("domain: x\ndescriptors:\n- key: a\n  rate_limit: {rate_limit}\n")
}

/// Waits until the rules in force allow so many.
fn in_force(service: &Service, limit: u32) {
    let begun = Instant::now();
    let word = format!("requests_per_unit={limit},");
    until(&word, || service.get("/rlconfig").1.contains(&word));
    assert!(begun.elapsed() < RELOAD, "it took {:?}", begun.elapsed());
}

fn channel(service: &Service) -> Channel {
    Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap().connect_lazy()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_knows_two_names() {
    let service = Service::start(&rules(3), &[]);
    let mut health = HealthClient::new(channel(&service));
    for name in ["", "ratelimit"] {
        let request = HealthCheckRequest { service: name.to_owned() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "{name}");
    }
    let other = HealthCheckRequest { service: "other".to_owned() };
    assert_eq!(health.check(other).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_service_and_sends_its_file() {
    const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
    let service = Service::start(&rules(3), &[]);
    macro_rules! asked {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            let mut reflection = ServerReflectionClient::new(channel(&service));
            let requests = [
                MessageRequest::ListServices(String::new()),
                MessageRequest::FileContainingSymbol(NAME.to_owned()),
            ];
            let requests = requests.map(|one| ServerReflectionRequest {
                host: String::new(),
                message_request: Some(one),
            });
            let requests = Request::new(tokio_stream::iter(requests));
            let mut answers =
                reflection.server_reflection_info(requests).await.unwrap().into_inner();
            let list = answers.next().await.unwrap().unwrap().message_response.unwrap();
            let MessageResponse::ListServicesResponse(list) = list else { panic!("{list:?}") };
            assert!(list.service.iter().any(|one| one.name == NAME), "{list:?}");
            let file = answers.next().await.unwrap().unwrap().message_response.unwrap();
            let MessageResponse::FileDescriptorResponse(file) = file else { panic!("{file:?}") };
            let has_name = |file: &Vec<u8>| String::from_utf8_lossy(file).contains("rls.proto");
            assert!(file.file_descriptor_proto.iter().any(has_name));
        }};
    }
    asked!(v1);
    asked!(v1alpha);
}

#[test]
fn json_is_that_of_protobuf() {
    let service = Service::start(&rules(1), &[("RESPONSE_HEADERS", "true")]);
    let body =
        r#"{"domain":"x","descriptors":[{"entries":[{"key":"a","value":"1"}]}],"hitsAddend":1}"#;
    let (status, answer) = service.json(body);
    assert_eq!(status, 200);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], 1);
    assert_eq!(answer["statuses"][0]["currentLimit"]["unit"], "YEAR");
    assert!(answer["statuses"][0].get("limitRemaining").is_none(), "0 is left out");
    let reset = answer["statuses"][0]["durationUntilReset"].as_str().unwrap();
    assert!(reset.strip_suffix('s').unwrap().parse::<u32>().unwrap() > 0);
    assert_eq!(answer["responseHeadersToAdd"][0]["key"], "RateLimit-Limit");

    let other = body.replace("hitsAddend", "hits_addend");
    let (status, answer) = service.json(&other);
    assert_eq!(status, 429);
    assert!(answer.contains(r#""overallCode":"OVER_LIMIT""#), "{answer}");
    let entry = r#"{"entries":[{"key":"a","value":"2"}],"hitsAddend":"18446744073709551615"}"#;
    let own = format!(r#"{{"domain":"x","descriptors":[{entry}]}}"#);
    assert_eq!(service.json(&own).0, 429);
    for broken in ["", "{", "[]", r#"{"other":1}"#, "{}", r#"{"domain":"x"}"#, "{} {}"] {
        assert_eq!(service.json(broken).0, 400, "{broken}");
    }
    assert_eq!(service.get("/json").0, 405);
    assert_eq!(service.get("/other").0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_a_series_for_each_rule_and_no_values() {
    let text = "
domain: x
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: b
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 10}
";
    let service = Service::start(text, &[]);
    let client = client(service.grpc);
    for index in 0..12 {
        let (secret, own) = (format!("a=secret-{index}"), format!("a=own-{index}@9/6"));
        x(&client, &[&secret, &own, "a=same", "b=seen"]).await;
    }
    let metrics = service.get("/metrics").1;
    assert!(!metrics.contains("secret") && !metrics.contains("own-"), "{metrics}");
    assert!(metrics.contains("key1=\"b_seen\""), "{metrics}");
    let count = |name: &str, key: &str| {
        let series = format!("{{domain=\"x\",key1=\"{key}\"}}");
        service.metric(&format!("ratelimit_service_rate_limit_{name}{series}"))
    };
    assert_eq!(count("total_hits", "a"), 24);
    assert_eq!(count("over_limit", "a"), 2);
    assert_eq!(count("within_limit", "a"), 22);
    assert_eq!(count("near_limit", "b_seen"), 2 + 2 - 2);
    assert_eq!(count("total_hits", "override"), 12);
    assert_eq!(service.metric("ratelimit_service_config_load_success"), 1);
    let requests = "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}";
    assert_eq!(service.metric(requests), 12);
    assert!(metrics.contains("rate_limit_decisions_total"), "the crate's own: {metrics}");
}

#[test]
fn a_changed_file_is_in_force_soon() {
    let service = Service::start(&rules(1), &[]);
    assert_eq!(
        service.get("/rlconfig").1,
        "x.a: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false\n"
    );
    let file = service.folder.join("rules.yaml");
    fs::write(&file, rules(2)).unwrap();
    in_force(&service, 2);
    let other = service.folder.join("other");
    fs::write(&other, rules(3)).unwrap();
    fs::rename(&other, &file).unwrap();
    in_force(&service, 3);
    let more = service.folder.join("more.yaml");
    fs::write(&more, rules(44).replace("domain: x", "domain: y")).unwrap();
    in_force(&service, 44);
    fs::remove_file(&more).unwrap();
    until("a removed file is out of force", || !service.get("/rlconfig").1.contains("44"));
    fs::write(service.folder.join(".hidden.yaml"), "broken: x").unwrap();
    fs::create_dir(service.folder.join("folder.yaml")).unwrap();
    fs::write(&file, rules(5)).unwrap();
    in_force(&service, 5);
    fs::remove_file(&file).unwrap();
    // Who replaces files by deleting them first leaves no gap without limits.
    until("an empty folder is wrong", || service.get("/healthcheck").1.contains("has no file"));
    in_force(&service, 5);
    fs::write(service.folder.join("rules.yml"), rules(6)).unwrap();
    in_force(&service, 6);
}

#[test]
fn a_folder_without_rules_is_an_error() {
    let why = Service::run(Files::new(), &[]).err().expect("it limits nothing");
    assert!(why.contains("has no file that ends in .yaml or .yml"), "{why}");
}

#[test]
fn a_config_map_that_turns_is_a_reload() {
    let files = Files::new();
    let folder = files.to_path_buf();
    let version = |name: &str, limit| {
        let version = folder.join(name);
        fs::create_dir(&version).unwrap();
        fs::write(version.join("rules.yaml"), rules(limit)).unwrap();
    };
    version("..1", 1);
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/rules.yaml", folder.join("rules.yaml")).unwrap();
    let service = Service::run(files, &[]).unwrap();
    in_force(&service, 1);
    version("..2", 2);
    symlink("..2", folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    fs::remove_dir_all(folder.join("..1")).unwrap();
    in_force(&service, 2);
    // A folder of which only one file is the configuration.
    let file = folder.join("rules.yaml");
    let one = Service::run(Files::new(), &[("CONFIG", file.to_str().unwrap())]).unwrap();
    in_force(&one, 2);
    version("..3", 3);
    symlink("..3", folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    in_force(&one, 3);
}

#[test]
fn a_broken_file_leaves_the_old_table_until_it_is_good_again() {
    let service = Service::start(&rules(1), &[]);
    assert_eq!(service.get("/healthcheck"), (200, "OK\n".to_owned()));
    let file = service.folder.join("rules.yaml");
    fs::write(&file, rules(2).replace("unit:", "unite:")).unwrap();
    until("the health says it", || service.get("/healthcheck").1.contains("unite"));
    let (status, body) = service.get("/healthcheck");
    assert_eq!(status, 200);
    assert!(body.contains("rules.yaml: line 4"), "{body}");
    assert!(service.get("/rlconfig").1.contains("requests_per_unit=1,"));
    until("stderr says it", || service.process.stderr().contains("rules.yaml: line 4"));
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 1);
    fs::write(service.folder.join("twice.yaml"), rules(3)).unwrap();
    fs::write(&file, rules(2)).unwrap();
    until("a domain twice is refused", || service.get("/healthcheck").1.contains("twice.yaml"));
    fs::remove_file(service.folder.join("twice.yaml")).unwrap();
    in_force(&service, 2);
    until("the health is good again", || service.get("/healthcheck").1 == "OK\n");
}

#[test]
fn a_start_that_fails_says_why() {
    let start = |name: &str, text: &str, variables: &[(&str, &str)]| {
        let folder = Files::new();
        folder.write(name, text);
        Service::run(folder, variables).err().expect("it starts")
    };
    let error = start("rules.yaml", "domain: x\nother: y", &[]);
    assert!(error.contains("rules.yaml: line 2: the key `other`"), "{error}");
    let error = start("rules.yaml", "domain: x\ndescriptors: [", &[]);
    assert!(error.contains("rules.yaml: line "), "{error}");
    let error = start("rules.yaml", &rules(1), &[("CONFIG", "nowhere")]);
    assert!(error.contains("nowhere"), "{error}");
    let error = start("rules.yaml", &rules(1), &[("CONFIG", "")]);
    assert!(error.contains("CONFIG"), "{error}");
    let error = start("rules.yaml", &rules(1), &[("SHADOW_MODE", "maybe")]);
    assert!(error.contains("SHADOW_MODE"), "{error}");
    let error = start("rules.yaml", &rules(1), &[("REDIS_URL", "no url")]);
    assert!(error.contains("REDIS_URL"), "{error}");
    let error = start("rules.yaml", &rules(1), &[("LISTEN", "nowhere")]);
    assert!(error.contains("LISTEN"), "{error}");
}

/// Four calls at once: how many failed, and the longest time.
async fn four(service: &Service) -> (usize, Duration) {
    let client = client(service.grpc);
    // The connection is made before the time runs.
    ask(&client, about("x", &["none=1"], 0)).await.unwrap();
    let begun = Instant::now();
    let calls = (0..4).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, about("x", &["a=1"], 0)).await.is_err() })
    });
    let mut failed = 0;
    for call in calls.collect::<Vec<_>>() {
        failed += usize::from(call.await.unwrap());
    }
    (failed, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_answers_are_errors_soon_and_come_back() {
    let mut redis = Server::start();
    let service = Service::start(&rules(1_000), &[("REDIS_URL", &redis.url())]);
    let back = async |service: &Service| {
        let begun = Instant::now();
        while four(service).await.0 > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not come back");
        }
    };
    // The first decision may be late on a busy machine.
    back(&service).await;
    redis.signal("STOP");
    for _ in 0..3 {
        let (failed, time) = four(&service).await;
        assert_eq!(failed, 4);
        assert!(time < SOON, "it took {time:?}");
    }
    let (status, _) = service.json(r#"{"domain":"x","descriptors":[{"entries":[{"key":"a"}]}]}"#);
    assert_eq!(status, 503);
    redis.signal("CONT");
    back(&service).await;
    redis.kill();
    let (failed, time) = four(&service).await;
    assert_eq!(failed, 4);
    assert!(time < SOON, "it took {time:?}");
    let free = ask(&client(service.grpc), about("x", &["other=1"], 0)).await.unwrap();
    assert_eq!(short(&free), "OK: OK 0 free");
    let errors = "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"}";
    assert!(service.metric(errors) >= 17);
    redis.restart();
    back(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_may_count_by_itself_while_redis_is_away() {
    let mut redis = Server::start();
    let variables = [("REDIS_URL", &*redis.url()), ("ON_ERROR", "local")];
    let service = Service::start(&rules(3), &variables);
    let client = client(service.grpc);
    assert_eq!(x(&client, &["a=1"]).await, "OK: OK 2");
    redis.kill();
    for answer in ["OK: OK 2", "OK: OK 1", "OK: OK 0", "OVER: OVER 0"] {
        assert_eq!(x(&client, &["a=1"]).await, answer);
    }
    assert_eq!(x(&client, &["a=2", "a=3"]).await, "OK: OK 2, OK 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_number_and_a_restart_keep_the_count() {
    let redis = Server::start();
    let url = redis.url();
    let patient = [("REDIS_URL", &*url), ("REDIS_TIMEOUT", "30")];
    let service = Service::start(&rules(5), &patient);
    assert_eq!(x(&client(service.grpc), &["a=1"]).await, "OK: OK 4");
    fs::write(service.folder.join("rules.yaml"), rules(3)).unwrap();
    in_force(&service, 3);
    assert_eq!(x(&client(service.grpc), &["a=1"]).await, "OK: OK 1");
    drop(service);
    let service = Service::start(&rules(3), &patient);
    assert_eq!(x(&client(service.grpc), &["a=1"]).await, "OK: OK 0");
}

#[test]
fn a_signal_ends_it_well() {
    let mut service = Service::start(&rules(1), &[]);
    assert!(service.folder.exists());
    service.process.signal("TERM");
    assert!(service.process.wait().success());
}
