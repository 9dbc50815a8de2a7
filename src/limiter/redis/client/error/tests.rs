use redis::parse_redis_value;

use super::*;

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
        ("ERR Script killed by user with SCRIPT KILL...", Infrastructure),
        ("ERR max number of clients reached", Infrastructure),
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
        ("ERR Script attempted to access a non local key in a cluster node", State),
        ("CORRUPT the stored value is not one that this limiter writes", State),
        ("OOM", Capacity),
        ("FOO bar", State),
        ("ERR unknown command 'EVALSHA'", Configuration),
        ("ERR Unknown Redis command called from script", Configuration),
        ("ERR This instance has cluster support disabled", Configuration),
        ("", State),
    ];
    for (text, kind) in table {
        assert_eq!(from_error_reply(text).kind(), kind, "{text}");
        // The texts of Redis 6.2: errors that a script catches, and errors that it raises.
        let caught = format!("@user_script: 104: -{text}\r\n");
        let raised = format!("ERR Error running script (call to f_0a9f): @user_script:7: {text}");
        let both = format!("ERR Error running script (call to f_0a9f): @user_script:7: {caught}");
        // The texts of Redis 7 and later for both.
        let behind = format!("{text} script: 0a9f, on @user_script:265.");
        for worded in [caught, raised, both, behind] {
            let error = from_error_reply(&worded);
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
        "sk_live_1",
        "@user_script: 1: sk_live_1",
        "ERR Error running script (call to f_0a9f): @user_script:7: sk_live_1",
        "NOPERM User app has no permissions to access the 'sk_live_1' key",
        "ERR ACL failure in script: User app has no permissions to access the 'sk_live_1' key",
    ];
    for text in table {
        let sent = format!("-{text}\r\n");
        let failed = parse_redis_value(sent.as_bytes()).unwrap().extract_error().unwrap_err();
        for error in [from_error_reply(text), from_redis_error(failed)] {
            let printed = printed(&error);
            assert!(!printed.contains("sk_live_1"), "{printed}");
            assert!(printed.contains("redis answered"), "{printed}");
        }
    }
    let odd = RedisError::from((redis::ErrorKind::UnexpectedReturnType, "odd", "sk_live_1".into()));
    assert!(!printed(&from_redis_error(odd)).contains("sk_live_1"));
}

#[test]
fn long_replies_are_cut() {
    let error = from_error_reply(&format!("OOM {}", "é".repeat(40_000)));
    assert!(error.to_string().len() < 300);
}

/// The client reports cut replies and malformed replies as the same parse error.
#[test]
fn only_the_end_of_a_connection_within_a_reply_is_infrastructure() {
    let of = |text: &str| {
        let error = RedisError::from(redis::ParsingError::from(text.to_owned()));
        from_redis_error(error).kind()
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
