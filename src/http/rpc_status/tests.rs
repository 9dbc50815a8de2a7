use super::*;

#[test]
fn a_delay_that_was_written_is_read() {
    let status = |details| RpcStatus { code: 8, details }.encoded("rate limit exceeded");
    for millis in [0, 1, 250, 1_250, 3_000, u64::MAX] {
        let info = ("RetryInfo", retry_info(millis));
        let expected =
            Duration::from_millis(millis).min(Duration::new(315_576_000_000, 615_000_000));
        for details in [vec![info.clone()], vec![("ErrorInfo", vec![10, 1, 0]), info]] {
            assert_eq!(retry_delay(&status(details)), Some(expected), "{millis}");
        }
    }
    assert_eq!(retry_delay(&status(vec![("ErrorInfo", retry_info(250))])), None);
    // A delay of 0 need not be sent.
    assert_eq!(retry_delay(&status(vec![("RetryInfo", vec![])])), Some(Duration::ZERO));
    // -1 s, and a second in nanoseconds.
    let minus = [&[10, 11, 8][..], &[0xff; 9], &[1]].concat();
    assert_eq!(retry_delay(&status(vec![("RetryInfo", minus)])), None);
    let second = vec![10, 6, 16, 0x80, 0x94, 0xeb, 0xdc, 3];
    assert_eq!(retry_delay(&status(vec![("RetryInfo", second)])), None);
    let whole = status(vec![("RetryInfo", retry_info(250))]);
    for cut in 0..whole.len() {
        assert_eq!(retry_delay(&whole[..cut]), None, "{cut}");
    }
}

#[test]
fn delays_leave_out_what_is_zero() {
    let hex = |text: &str| {
        text.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(retry_info(250), hex("0a 05 10 80 e5 9a 77"));
    assert_eq!(retry_info(1_250), hex("0a 07 08 01 10 80 e5 9a 77"));
    assert_eq!(retry_info(3_000), hex("0a 02 08 03"));
}

#[test]
fn a_request_without_a_key_has_the_code_of_its_status() {
    let table = [(400, 3), (401, 16), (403, 7), (422, 3)];
    for (status, expected) in table {
        assert_eq!(code(StatusCode::from_u16(status).unwrap()), expected, "{status}");
    }
}
