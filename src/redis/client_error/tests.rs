use super::*;
use redis_once::calls::from_error_reply;

#[test]
fn a_clock_that_scripts_may_not_read_has_a_remedy() {
    let text = "ERR This Redis command is not allowed from script script: 6bb, on @user_script:1.";
    let error = Error::from(from_error_reply(text, []));
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().ends_with("set `Pool::caller_clock`)"), "{error}");
    let other = Error::from(from_error_reply("ERR unknown command", []));
    assert!(!other.to_string().contains("caller_clock"), "{other}");
}
