//! The policy file changes while requests run.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::Gateway;
use common::client::Connection;
use support::files::Files;
use support::{PATIENCE, until};

/// A change is in force within this time, on a busy machine too.
const SEEN: Duration = Duration::from_secs(10);

fn table(limit: u64) -> String {
    format!(
        "[[policy]]\nname = \"api\"\nalgorithm = \"fixed_window\"\nlimit = {limit}\n\
         period = \"1d\"\nkey = \"header:x-api-key\"\n"
    )
}

fn limit(gateway: &Gateway) -> u64 {
    gateway.admin("GET", "/policies", "").json()["policies"][0]["limit"].as_u64().expect("a limit")
}

/// Waits until the limit is in force, and returns how long it took.
fn until_limit(gateway: &Gateway, expected: u64) -> Duration {
    let begun = Instant::now();
    until("the new limit", || limit(gateway) == expected);
    begun.elapsed()
}

#[test]
fn a_file_is_seen_rewritten_in_place_and_renamed_over() {
    let gateway = Gateway::with_policies(&table(5));
    for limit in 6..9 {
        gateway.rewrite(&table(limit));
        assert!(until_limit(&gateway, limit) < SEEN);
        gateway.replace(&table(limit + 10));
        assert!(until_limit(&gateway, limit + 10) < SEEN);
    }
}

#[test]
fn a_file_behind_a_link_is_seen() {
    let files = Files::new();
    let folder = files.to_path_buf();
    for version in ["one", "two"] {
        std::fs::create_dir(folder.join(version)).unwrap();
    }
    std::fs::write(folder.join("one/policies.toml"), table(5)).unwrap();
    std::fs::write(folder.join("two/policies.toml"), table(6)).unwrap();
    // As mounted configuration changes: a link to a folder is renamed over another.
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
    };
    link("one", "now");
    link("now/policies.toml", "policies.toml");
    let file = folder.join("policies.toml");
    let variables = [("POLICIES", file.to_str().unwrap()), ("ADMIN_TOKEN", common::TOKEN)];
    let gateway = Gateway::run(files, &variables).unwrap();
    link("two", "next");
    std::fs::rename(folder.join("next"), folder.join("now")).unwrap();
    assert!(until_limit(&gateway, 6) < SEEN);
}

#[test]
fn a_file_is_seen_wherever_its_link_leads_by_now() {
    let [own, one, two] = [Files::new(), Files::new(), Files::new()];
    std::fs::write(one.join("a.toml"), table(5)).unwrap();
    std::fs::write(two.join("b.toml"), table(6)).unwrap();
    let (file, next) = (own.join("policies.toml"), own.join("next"));
    std::os::unix::fs::symlink(one.join("a.toml"), &file).unwrap();
    let variables = [("POLICIES", file.to_str().unwrap()), ("ADMIN_TOKEN", common::TOKEN)];
    let gateway = Gateway::run(own, &variables).unwrap();
    std::os::unix::fs::symlink(two.join("b.toml"), &next).unwrap();
    std::fs::rename(next, &file).unwrap();
    assert!(until_limit(&gateway, 6) < SEEN);
    // The other folder was not there when the gateway began to watch.
    std::fs::write(two.join("b.toml"), table(7)).unwrap();
    assert!(until_limit(&gateway, 7) < SEEN);
    std::fs::write(two.join("new"), table(8)).unwrap();
    std::fs::rename(two.join("new"), two.join("b.toml")).unwrap();
    assert!(until_limit(&gateway, 8) < SEEN);
}

#[test]
fn a_file_is_seen_in_a_folder_that_was_replaced() {
    let folder = Files::new();
    let (now, next) = (folder.join("now"), folder.join("next"));
    let write = |folder: &std::path::Path, limit| {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("policies.toml"), table(limit)).unwrap();
    };
    write(&now, 5);
    let file = now.join("policies.toml");
    let variables = [("POLICIES", file.to_str().unwrap()), ("ADMIN_TOKEN", common::TOKEN)];
    let gateway = Gateway::run(folder, &variables).unwrap();
    write(&next, 6);
    std::fs::rename(&now, gateway.folder.join("old")).unwrap();
    std::fs::rename(&next, &now).unwrap();
    assert!(until_limit(&gateway, 6) < SEEN);
    write(&now, 7);
    assert!(until_limit(&gateway, 7) < SEEN);
}

#[test]
fn the_state_of_keys_is_kept() {
    let gateway = Gateway::with_policies(&table(5));
    for _ in 0..3 {
        assert_eq!(gateway.get_as("alice", "/").status, 200);
    }
    gateway.rewrite(&table(4));
    until_limit(&gateway, 4);
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    assert_eq!(gateway.get_as("alice", "/").status, 429);
}

#[test]
fn a_broken_file_keeps_the_old_table_and_is_named() {
    let gateway = Gateway::with_policies(&table(5));
    let broken = [
        (table(5).replace("= 5", "= -5"), vec!["api", "limit"]),
        (table(5).replace("1d", "soon"), vec!["api", "period"]),
        (table(5) + "burst = 3\n", vec!["api", "burst"]),
        (table(5) + "brust = 3\n", vec!["api", "brust"]),
        (table(5).replace("fixed_window", "fixed"), vec!["api", "algorithm"]),
        (table(5).replace("header:", ""), vec!["api", "key"]),
        (table(5) + "[[policy]]\nname = \"other\"\nlimit = -1\n", vec!["other", "limit"]),
        ("# one\n# two\n[[policy]\n".to_owned(), vec!["line 3"]),
        (table(5) + "[table]\n", vec!["table"]),
        (table(5).replace("\"api\"", "\"..\""), vec!["name", "paths"]),
        (table(5).replace("\"api\"", "\".\""), vec!["name", "paths"]),
    ];
    for (text, words) in broken {
        gateway.rewrite(&text);
        until(&format!("{words:?} in {:?}", gateway.health()), || {
            let health = gateway.health();
            assert_eq!(health.status, 200);
            words.iter().all(|word| health.text().contains(word))
        });
        until(&format!("{words:?} on stderr"), || {
            let stderr = gateway.process.stderr();
            words.iter().all(|word| stderr.contains(word))
        });
        assert_eq!(limit(&gateway), 5);
    }
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    gateway.rewrite(&table(7));
    until_limit(&gateway, 7);
    until("the error is gone", || gateway.health().text().starts_with("ok\n"));
}

#[test]
fn a_file_that_was_emptied_keeps_the_old_table_unless_it_says_that_this_is_meant() {
    let gateway = Gateway::with_policies(&table(1));
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    gateway.rewrite("");
    until("the error", || gateway.health().text().contains("allow_empty"));
    assert_eq!(gateway.get_as("alice", "/").status, 429);
    gateway.rewrite("allow_empty = true\n");
    until("the empty table", || gateway.health().text().starts_with("ok\n0 policies in force"));
    assert_eq!(gateway.get_as("alice", "/").status, 200);
}

#[test]
fn a_broken_file_at_the_start_is_an_error() {
    for (text, words) in [
        (table(5).replace("= 5", "= -5"), ["api", "limit"]),
        ("\n\n!".to_owned(), ["line 3", "policies.toml"]),
        ("# Nothing.\n".to_owned(), ["allow_empty", "policies.toml"]),
    ] {
        let folder = Files::new();
        let file = folder.write("policies.toml", &text);
        let stderr = Gateway::run(folder, &[("POLICIES", &file)]).err().expect("an error");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
}

#[test]
fn a_file_that_goes_away_keeps_the_old_table() {
    let gateway = Gateway::with_policies(&table(1));
    std::fs::remove_file(gateway.file()).unwrap();
    until("the error", || gateway.health().text().contains("cannot be read"));
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    assert_eq!(gateway.get_as("alice", "/").status, 429);
    gateway.rewrite(&table(2));
    until_limit(&gateway, 2);
    assert_eq!(gateway.health().text(), "ok\n1 policies in force, 0 in a shadow, 0 off\n");
}

#[test]
fn sighup_always_reads() {
    let gateway = Gateway::with_policies(&table(5));
    for times in 1..4 {
        gateway.process.signal("HUP");
        until("it was read", || gateway.process.stderr().matches("is in force").count() >= times);
    }
    assert_eq!(gateway.get_as("alice", "/").status, 200);
}

#[test]
fn swaps_under_load_fail_no_request() {
    let table = |limit| table(limit).replace("1d", "1s");
    let gateway = Gateway::with_policies(&table(1_000_000));
    let over = AtomicBool::new(false);
    let (asked, failed) = std::thread::scope(|scope| {
        let one = |task: usize| {
            let (gateway, over) = (&gateway, &over);
            scope.spawn(move || {
                let key = format!("key {task}");
                let mut connection = Connection::open(gateway.listen);
                let (mut asked, mut failed) = (0_u64, 0_u64);
                while !over.load(Ordering::Relaxed) {
                    let answer = connection.request("GET", "/", &[("x-api-key", &key)], b"");
                    asked += 1;
                    failed += u64::from(answer.status != 200);
                }
                (asked, failed)
            })
        };
        let tasks: Vec<_> = (0..8).map(one).collect();
        // Also where a swap is not seen, so that the tasks end.
        let _over = common::SetOnDrop(&over);
        for swap in 1..=10 {
            let limit = 1_000_000 + swap;
            if swap % 2 == 0 {
                gateway.rewrite(&table(limit))
            } else {
                gateway.replace(&table(limit))
            }
            until_limit(&gateway, limit);
        }
        over.store(true, Ordering::Relaxed);
        let counts = tasks.into_iter().map(|task| task.join().unwrap());
        counts.fold((0, 0), |(asked, failed), counts| (asked + counts.0, failed + counts.1))
    });
    assert!(asked > 0);
    assert_eq!(failed, 0, "of {asked}");
}

/// Makes a pipe that nobody writes to.
fn make_pipe(path: &std::path::Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status();
    assert!(status.expect("the mkfifo command").success(), "a pipe");
}

// Case 171.
#[test]
fn a_pipe_in_place_of_the_file_keeps_the_old_table_and_delays_nothing() {
    let mut gateway = Gateway::with_policies(&table(1));
    let pipe = gateway.folder.join("pipe");
    make_pipe(&pipe);
    std::fs::rename(pipe, gateway.file()).unwrap();
    until("the error", || gateway.health().text().contains("no regular file"));
    assert_eq!(gateway.get_as("alice", "/").status, 200);
    assert_eq!(gateway.get_as("alice", "/").status, 429);
    gateway.process.signal("HUP");
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
}

// Case 171.
#[test]
fn what_is_no_file_of_policies_is_an_error_at_the_start() {
    let folder = Files::new();
    let [pipe, large] = ["pipe", "large"].map(|name| folder.join(name));
    make_pipe(&pipe);
    std::fs::File::create(&large).unwrap().set_len(50 << 20).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (path, why) in [
        (path(&pipe), "no regular file"),
        (path(&large), "more than 16 MiB"),
        (path(&folder), "no regular file"),
        ("/dev/zero".to_owned(), "no regular file"),
    ] {
        let stderr = Gateway::run(Files::new(), &[("POLICIES", &path)]).err();
        assert!(stderr.expect("an error").contains(why), "{path}");
    }
}

/// Thousands of policies, each with a path of its own.
fn many(policies: usize, limit: u64) -> String {
    (0..policies)
        .map(|number| {
            let one = table(limit).replace("\"api\"", &format!("\"p{number}\""));
            format!("{one}match = {{ path = \"/p{number}/{{*rest}}\" }}\n")
        })
        .collect()
}

// Case 171.
#[test]
fn the_admin_port_answers_while_a_large_table_is_loaded() {
    // One thread for the admin port and the policy file: what blocks it delays the answers. Callers
    // have threads of their own.
    let variables = [("TOKIO_WORKER_THREADS", "1")];
    let mut gateway = Gateway::start(&many(3_000, 1), &variables);
    let mut connection = Connection::open(gateway.admin);
    let mut rounds: Vec<(Duration, Duration)> = Vec::new();
    // A machine that is busy with others may delay an answer, but not in each round.
    let is_free = (1..=5).any(|times| {
        gateway.process.signal("HUP");
        let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
        while gateway.process.stderr().matches("is in force").count() < times {
            let asked = Instant::now();
            assert_eq!(connection.request("GET", "/health", &[], b"").status, 200);
            slowest = slowest.max(asked.elapsed());
            assert!(begun.elapsed() < PATIENCE, "it is never loaded");
        }
        rounds.push((slowest, begun.elapsed()));
        slowest < begun.elapsed() / 2
    });
    assert!(is_free, "an answer waits for the whole loading: {rounds:?}");
    gateway.replace(&many(3_000, 2));
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
}
