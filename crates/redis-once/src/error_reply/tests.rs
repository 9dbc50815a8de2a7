use redis::parse_redis_value;

use super::*;

/// A proxy answers for a server that may have run the command, right before it was lost.
#[test]
fn a_reply_says_that_a_command_did_not_run_unless_a_proxy_lost_its_server() {
    let table = [
        ("upstream failure", false),
        ("ERR Operation timed out", false),
        ("ERR server connection close", false),
        ("ERR max number of clients reached", true),
        ("ERR Script killed by user with SCRIPT KILL...", true),
        ("LOADING Redis is loading the dataset in memory", true),
        ("OOM command not allowed when used memory > 'maxmemory'.", true),
        ("ERR unknown command 'X'", true),
    ];
    for (text, expected) in table {
        let value = parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a value");
        let error = value.extract_error().expect_err("an error");
        assert_eq!(is_answer(&error), expected, "{text}");
    }
    assert!(!is_answer(&io::Error::from(io::ErrorKind::BrokenPipe).into()));
}

// Cases 134 and 135.
#[test]
fn every_known_reply_lands_in_its_kind() {
    use ErrorKind::{Capacity, Configuration, Infrastructure, State};
    let table = [
        ("NOSCRIPT No matching script. Please use EVAL.", Configuration),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", State),
        ("READONLY You can't write against a read only replica.", Infrastructure),
        ("MASTERDOWN Link with MASTER is down", Infrastructure),
        ("MISCONF Redis is configured to save RDB snapshots, but", Infrastructure),
        ("LOADING Redis is loading the dataset in memory", Infrastructure),
        ("BUSY Redis is busy running a script.", Infrastructure),
        ("NOREPLICAS Not enough good replicas to write.", Infrastructure),
        ("OOM command not allowed when used memory > 'maxmemory'.", Capacity),
        ("ERR OOM command not allowed when used memory > 'maxmemory'.", Capacity),
        ("ERR READONLY You can't write against a read only replica.", Infrastructure),
        ("ERR NOREPLICAS Not enough good replicas to write.", Infrastructure),
        ("ERR MASTERDOWN Link with MASTER is down and", Infrastructure),
        ("ERR MISCONF Valkey is configured to save RDB snapshots, but", Infrastructure),
        ("ERR WRONGTYPE Operation against a key holding the wrong kind of value", State),
        ("Out of memory", Capacity),
        ("ERR Script killed by user with SCRIPT KILL...", Infrastructure),
        ("ERR max number of clients reached", Infrastructure),
        ("ERR max number of clients + cluster connections reached", Infrastructure),
        ("upstream failure", Infrastructure),
        ("ERR no upstream host", Infrastructure),
        ("ERR Connection refused", Infrastructure),
        ("ERR Broken pipe", Infrastructure),
        ("ERR Network is unreachable", Infrastructure),
        ("ERR Host is down", Infrastructure),
        ("ERR Operation timed out", Infrastructure),
        ("ERR Network unreachable", Infrastructure),
        ("ERR unknown", Infrastructure),
        ("ERR no server connection avaliable", Infrastructure),
        ("ERR max requests limit exceeded. Limit: 500000, Usage: 500000.", Capacity),
        ("ERR max concurrent connections exceeded", Capacity),
        ("ERR user_script:7: attempt to compare nil with number", State),
        ("ERR value is not an integer or out of range", State),
        // A request must not choose the kind, as by a key that a server repeats first.
        ("ERR Connection refused by key", Configuration),
        ("ERR Broken pipe by key", Configuration),
        ("ERR LOADING", Configuration),
        ("ERR OOM by key", Configuration),
        ("ERR Out of memory by key", Configuration),
        ("ERR unknown option", Configuration),
        ("LOADINGX", Configuration),
        ("NOAUTH Authentication required.", Configuration),
        ("WRONGPASS invalid username-password pair or user is disabled.", Configuration),
        ("NOPERM this user has no permissions to run the 'ping' command", Configuration),
        ("ERR The user executing the script can't run this command", Configuration),
        ("ERR ACL failure in script: No permissions to access a key", Configuration),
        ("MOVED 15495 127.0.0.1:7313", Configuration),
        ("ASK 449 127.0.0.1:7312", Configuration),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Infrastructure),
        ("CROSSSLOT Keys in request don't hash to the same slot", Configuration),
        ("CLUSTERDOWN The cluster is down", Infrastructure),
        ("ERR Script attempted to access a non local key in a cluster node", Configuration),
        ("ERR This Redis command is not allowed from script", Configuration),
        ("ERR command eval not support for your account", Configuration),
        ("NOPROTO unsupported protocol version", Configuration),
        ("DENIED Redis is running in protected mode", Configuration),
        ("CORRUPT the stored value is not one that this limiter writes", State),
        ("OOM", Capacity),
        ("FOO bar", Configuration),
        ("ERR unknown command 'EVALSHA'", Configuration),
        ("ERR Unknown Redis command called from script", Configuration),
        ("ERR This instance has cluster support disabled", Configuration),
        ("", Configuration),
    ];
    for (text, kind) in table {
        assert_eq!(from_error_reply(text, []).kind(), kind, "{text}");
        // The texts of Redis 6.2: errors that a script catches, and errors that it raises.
        let caught = format!("@user_script: 104: -{text}\r\n");
        let raised = format!("ERR Error running script (call to f_0a9f): @user_script:7: {text}");
        let both = format!("ERR Error running script (call to f_0a9f): @user_script:7: {caught}");
        // The texts of Redis 7 and later for both.
        let behind = format!("{text} script: 0a9f, on @user_script:265.");
        for worded in [caught, raised, both, behind] {
            let error = from_error_reply(&worded, []);
            assert_eq!(error.kind(), kind, "{worded}");
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            assert!(!shown.contains("Error running script"), "{shown}");
            assert!(!shown.contains("@user_script: "), "{shown}");
        }
    }
}

#[test]
fn only_the_code_tells_a_read_only_server() {
    let sentence = "You can't write against a read only replica.";
    assert!(is_read_only(&format!("READONLY {sentence}")));
    assert!(is_read_only(&format!("ERR READONLY {sentence}")));
    assert!(is_read_only(&format!("@user_script: 104: -READONLY {sentence}\r\n")));
    for text in ["ERR READONLY", "READONLYX", "@user_script: READONLY", "FOO READONLY"] {
        assert!(!is_read_only(text), "{text}");
    }
}

/// The full text of an error: `Display`, `Debug`, and all sources.
fn printed(error: &Error) -> String {
    let mut printed = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        printed.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    printed
}

// Case 127.
#[test]
fn no_argument_of_a_call_is_printed() {
    let table = [
        "ERR unknown command 'EVALSHA', with args beginning with: '0a9f' '1' 'sk_live_1' ",
        "ERR unknown command `EVALSHA`, with args beginning with: `0a9f`, `1`, `sk_live_1`, ",
        "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 'sk_live_1' ",
        "ERR value of 'sk_live_1' is out of range",
        "ERR sk_live_1",
        "FOO sk_live_1",
        "sk_live_1 is not understood",
        "FOO SK_LIVE_1. Not sk_live_1, nor api:tb1:{sk_live_1}",
        "FOO the key sk_li... is odd",
        "FOO the key \"sk\\x5flive_1\" is odd",
        "sk_live_1",
        "@user_script: 1: sk_live_1",
        "ERR Error running script (call to f_0a9f): @user_script:7: sk_live_1",
        "NOPERM User app has no permissions to access the 'sk_live_1' key",
        "ERR ACL failure in script: User app has no permissions to access the 'sk_live_1' key",
    ];
    for text in table {
        let sent = format!("-{text}\r\n");
        let failed = parse_redis_value(sent.as_bytes()).unwrap().extract_error().unwrap_err();
        let key = ["{sk_live_1}"];
        for error in [from_error_reply(text, key), from_redis_error(failed, key)] {
            let printed = printed(&error);
            let lower = printed.to_lowercase();
            assert!(!lower.contains("sk_li") && !lower.contains("live_1"), "{printed}");
            assert!(printed.contains("redis answered"), "{printed}");
        }
    }
    let odd = RedisError::from((redis::ErrorKind::UnexpectedReturnType, "odd", "sk_live_1".into()));
    assert!(!printed(&from_redis_error(odd, [])).contains("sk_live_1"));
}

/// An operator has only these words. Hiding the whole text hid the cause.
#[test]
fn the_words_of_a_server_are_shown() {
    let table = [
        ("ERR This Redis command is not allowed from script", None),
        ("ERR command eval not support for your account", None),
        ("ERR bad lua script for redis cluster, all the keys should be passed", None),
        ("ERR max requests limit exceeded. Limit: 500000, Usage: 500000.", None),
        ("ERR unsupported command 'HELLO'", None),
        ("NOPROTO unsupported protocol version", None),
        ("ERR DB index is out of range", None),
        ("ERR upstream failure", None),
        ("OOM command not allowed when used memory > 'maxmemory'.", None),
        ("NOPERM User app has no permissions to run the 'client|setinfo' command", None),
        ("FOO value of 'user-42' for user-42: no", Some("FOO value of '…' for …: no")),
        ("FOO the value '7 x' is odd", Some("FOO the value '…' is odd")),
    ];
    for (text, shown) in table {
        let expected = format!("redis answered: {}", shown.unwrap_or(text));
        assert_eq!(from_error_reply(text, ["{user-42}"]).to_string(), expected);
    }
}

#[test]
fn long_replies_are_cut() {
    let error = from_error_reply(&format!("OOM {}", "é".repeat(40_000)), []);
    assert!(error.to_string().len() < 300);
    // Megabytes of text and secrets are not compared with each other.
    let secrets: Vec<_> = (0..10_000).map(|number| format!("secret-{number}")).collect();
    let text = format!("OOM {}", "number-7 ".repeat(1 << 20));
    let error = from_error_reply(&text, secrets.iter().map(String::as_str));
    assert!(error.to_string().len() < 300);
}

// A request cannot cause it, and load cannot either.
#[test]
fn a_connection_that_is_closed_or_reset_is_infrastructure() {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    for kind in [BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof] {
        let error = from_failed_call(io::Error::from(kind).into(), []);
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{kind}");
    }
}

/// The client reports cut replies and malformed replies as the same parse error.
#[test]
fn only_the_end_of_a_connection_within_a_reply_is_infrastructure() {
    let of = |text: &str| {
        let error = RedisError::from(redis::ParsingError::from(text.to_owned()));
        from_redis_error(error, []).kind()
    };
    let cut = [
        "Parse error at 0\nUnexpected end of input\nUnexpected `148`\n",
        "Parse error at 1\n\
        Unexpected end of input\nExpected lf newline\n",
    ];
    for text in cut {
        assert_eq!(of(text), ErrorKind::Infrastructure, "{text}");
    }
    for text in ["Parse error at 0\nUnexpected `120`\n", "`Unexpected end of input`", ""] {
        assert_eq!(of(text), ErrorKind::State, "{text}");
    }
}
