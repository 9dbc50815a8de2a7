use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::algorithm::{Report, TokenBucket};
use crate::core::Quota;
use crate::core::charge::KeepFree;

fn request(op: Op) -> Request {
    Request { key: String::from("k"), quota: None, rule: None, keep_free: KeepFree::default(), op }
}

fn check() -> Request {
    request(Op::Check { cost: 1, max_wait: 500 })
}

/// Each answer has a wait, and a state of two elements.
const LONG: ReplyForm = ReplyForm { state_elements: 2, has_short_answers: false };

/// The elements of a packed list.
fn unpack(packed: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut rest = packed;
    let elements: Option<Vec<_>> =
        (0..list_length(&mut rest)?).map(|_| element(&mut rest)).collect();
    elements.filter(|_| rest.is_empty())
}

/// Makes a packed list with each element in its widest form. `None` becomes an error text.
fn packed(elements: &[Option<i64>]) -> Value {
    let mut bytes = vec![0xdc];
    bytes.extend((elements.len() as u16).to_be_bytes());
    for element in elements {
        match element {
            Some(number) => {
                bytes.push(if *number < 0 { 0xd3 } else { 0xcf });
                bytes.extend(number.to_be_bytes());
            }
            None => bytes.extend(b"\xa6OOM no"),
        }
    }
    Value::BulkString(bytes)
}

fn ints(numbers: &[i64]) -> Value {
    packed(&numbers.iter().copied().map(Some).collect::<Vec<_>>())
}

/// Makes the reader for a bucket of five, which gains one in 100 µs.
fn reader() -> impl ReadEntry {
    let quota = Quota::new(1, Duration::from_micros(100)).burst(5);
    ConfiguredAlgorithm::new("bucket".into(), TokenBucket::new(quota)).unwrap()
}

/// Makes the error of a text that the server raised.
fn raised(text: &str) -> Error {
    Error::new(ErrorKind::Capacity, text.to_owned())
}

fn read_first(reply: &Value) -> Result<ReplyEntry, Error> {
    BatchReply::read(reply, 1, LONG)?.entry(0, &check(), &reader(), raised)
}

#[test]
fn a_reserved_wait_is_read() {
    // It was full again at 1,000, after five charges and four more.
    let reply = ints(&[600, -101, 1_101, 0]);
    assert_eq!(BatchReply::read(&reply, 1, LONG).unwrap().now, 600);
    let decided = ReplyEntry::Decided(Ruling {
        verdict: Verdict::Wait(100),
        report: Report { remaining: 0, reset_after: 600 },
        members: Box::default(),
        mark: Some([1_200, 0, 0, 0].into()),
        not_taken: 0,
        paused_until: 0,
        is_blocked: false,
    });
    assert_eq!(read_first(&reply).unwrap(), decided);
    // The charge is admitted only if the script's wait and the state agree, and the units were
    // taken.
    for wait in [0, -1, -100, -102, 100, 500, -501] {
        let reply = ints(&[600, wait, 1_101, 0]);
        assert_eq!(read_first(&reply).unwrap_err().kind(), ErrorKind::State);
    }
}

#[test]
fn every_form_of_an_element_is_read() {
    let text = |bytes: &[u8]| unpack(bytes).map(|elements| format!("{elements:?}"));
    let numbers =
        b"\x95\x7f\xcc\xff\xcd\x01\x00\xce\x00\x01\x00\x00\xcf\x00\x06\x4b\x5e\x2a\x00\x00\x01";
    let read = [127, 255, 256, 65_536, 0x0006_4b5e_2a00_0001].map(Element::Number);
    assert_eq!(unpack(numbers), Some(read.to_vec()));
    for bytes in [
        &b"\x91\xa2no"[..],
        b"\x91\xd9\x02no",
        b"\x91\xda\x00\x02no",
        b"\xdd\0\0\0\x01\xdb\0\0\0\x02no",
    ] {
        assert_eq!(unpack(bytes), Some(vec![Element::Text(b"no")]), "{:?}", text(bytes));
    }
}

#[test]
fn negative_numbers_are_read() {
    let numbers =
        b"\x96\xff\xe0\xd0\x80\xd1\xff\x7f\xd2\xff\xff\x7f\xff\xd3\xff\xff\xff\xff\x7f\xff\xff\xff";
    let read = [-1, -32, -128, -129, -32_769, -2_147_483_649].map(Element::Number);
    assert_eq!(unpack(numbers), Some(read.to_vec()));
}

// Case 33.
#[test]
fn odd_replies_are_errors() {
    let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
    let odd = [
        Value::Nil,
        Value::Okay,
        Value::Int(7),
        Value::Double(1.0),
        Value::Boolean(true),
        Value::Array(vec![Value::Int(7); 7]),
        bytes(b""),
        bytes(b"\x90"),
        bytes(b"\xc0"),
        bytes(b"\x07"),
        bytes(b"\xdd\xff\xff\xff\xff"),
        bytes(b"\x94\x07\0\0"),
        bytes(b"\x94\x07\0\0\0\0"),
        bytes(b"\x94\x07\0\0\xc0"),
        bytes(b"\x94\x07\0\0\xdb\xff\xff\xff\xff"),
        ints(&[7]),
        ints(&[7, 0, 0]),
        ints(&[7, 0, 0, 0, 0]),
        ints(&[-1, 0, 0, 0]),
        ints(&[i64::MIN, 0, 0, 0]),
        ints(&[7, 0, 0, 0]),
        ints(&[7, -2, 0, 0]),
        ints(&[7, 1, 0, 0]),
        ints(&[7, i64::MIN, 0, 0]),
        ints(&[7, -1, -1, 0]),
        ints(&[7, -1, 0, -1]),
        ints(&[7, i64::MAX, 0, 0]),
        ints(&[7, -1, i64::MAX, 0]),
        // More than the denominator of the rule.
        ints(&[7, -1, 8, 1]),
    ];
    for reply in odd {
        assert_eq!(read_first(&reply).unwrap_err().kind(), ErrorKind::State, "{reply:?}");
    }
}

/// A block has a later end, with the number of digits that a script writes. Any other text is
/// an error.
#[test]
fn a_block_is_read() {
    let read = |text: &[u8], op: Op| {
        let mut bytes = b"\x94\x07".to_vec();
        bytes.extend([0xd9, text.len() as u8]);
        bytes.extend(text);
        bytes.extend([0, 0]);
        let reply = Value::BulkString(bytes);
        BatchReply::read(&reply, 1, LONG)?.entry(0, &request(op), &reader(), raised)
    };
    let check = || Op::Check { cost: 1, max_wait: i64::MAX };
    let report = Report { remaining: 0, reset_after: 100 };
    let (verdict, members) = (Verdict::Deny(100), Box::default());
    let blocked = ReplyEntry::Decided(Ruling {
        verdict,
        report,
        members,
        mark: None,
        not_taken: 0,
        paused_until: 0,
        is_blocked: true,
    });
    for op in [check(), Op::Estimate { cost: 1, max_wait: 0 }, Op::Reset] {
        assert_eq!(read(b"BLOCKED 107", op).unwrap(), blocked);
    }
    let penalize = |text: &[u8]| {
        read(text, Op::Penalize { cost: 3, births: None }).map(|entry| entry.settled())
    };
    assert_eq!(penalize(b"BLOCKED 107 2").unwrap(), -2);
    for text in ["BLOCKED 107", "BLOCKED 107 4"] {
        assert!(penalize(text.as_bytes()).is_err(), "{text}");
    }
    for text in [
        "BLOCKED ",
        "BLOCKED 7",
        "BLOCKED 0",
        "BLOCKED 0107",
        "BLOCKED +107",
        "BLOCKED 9007199254740992",
        "BLOCKED no",
    ] {
        assert_eq!(read(text.as_bytes(), check()).unwrap_err().kind(), ErrorKind::State, "{text}");
    }
    let refund = Op::Refund { units: 1, cost: 1, mark: [0; 4].into() };
    assert!(read(b"BLOCKED 107", refund).is_err());
}

/// The ends of pauses are later than now, or 0, and the wait is that for the last of them. Any other
/// text is an error.
#[test]
fn a_pause_is_read() {
    let read = |text: &[u8], op: Op| {
        let mut bytes = b"\x94\x07".to_vec();
        bytes.extend([0xd9, text.len() as u8]);
        bytes.extend(text);
        bytes.extend([0, 0]);
        let reply = Value::BulkString(bytes);
        BatchReply::read(&reply, 1, LONG)?.entry(0, &request(op), &reader(), raised)
    };
    let check = |max_wait| Op::Check { cost: 1, max_wait };
    let decided = |entry| match entry {
        ReplyEntry::Decided(answer) => (answer.verdict, answer.paused_until),
        entry => panic!("{entry:?}"),
    };
    let taken = read(b"PAUSED 107:-101", check(i64::MAX)).unwrap();
    assert_eq!(decided(taken), (Verdict::Wait(100), 107));
    let refused = read(b"PAUSED 107:100", check(99)).unwrap();
    assert_eq!(decided(refused), (Verdict::Deny(100), 107));
    let reset = read(b"PAUSED 107:RESET -101 5", check(i64::MAX)).unwrap();
    assert_eq!(decided(reset), (Verdict::Wait(100), 107));
    assert_eq!(decided(read(b"PAUSED 107:0", Op::Reset).unwrap()), (Verdict::Deny(100), 107));
    for text in [
        "PAUSED ",
        "PAUSED 107",
        "PAUSED 107:",
        "PAUSED 107:99",
        "PAUSED 107:no",
        "PAUSED 7:0",
        "PAUSED 0107:100",
        "PAUSED 107:+100",
        "PAUSED 107:-0",
        "PAUSED 0:0",
        "PAUSED -5:0",
        "PAUSED 107:BLOCKED 107",
        "PAUSED 107:PAUSED 107:100",
        "PAUSED 9007199254740992:100",
    ] {
        let error = read(text.as_bytes(), check(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{text}");
    }
}

/// One number tells the state, and if the units were taken. `false` stands before other answers.
#[test]
fn a_short_answer_is_read() {
    let form = ReplyForm { has_short_answers: true, ..LONG };
    let read = |elements: &[u8], op: Op| {
        let reply = Value::BulkString([b"\x92\x64", elements].concat());
        let entry = BatchReply::read(&reply, 1, form)?.entry(0, &request(op), &reader(), raised);
        entry.map(|entry| match entry {
            ReplyEntry::Decided(answer) => (answer.verdict, answer.report.reset_after),
            entry => panic!("{entry:?}"),
        })
    };
    let check = || Op::Check { cost: 1, max_wait: 0 };
    // Taken without a state, and from a bucket that is full at 112. Refused by one that is at 700.
    assert_eq!(read(b"\xff", check()).unwrap(), (Verdict::Allow, 100));
    assert_eq!(read(b"\xd0\x8f", check()).unwrap(), (Verdict::Allow, 112));
    assert_eq!(read(b"\xcd\x02\xbc", check()).unwrap(), (Verdict::Deny(200), 600));
    // The twin would not refuse, would not take, and takes nothing for a peek.
    for odd in [&b"\x00"[..], b"\x7f", b"\xd1\xfd\x43", b"\xd3\x80\0\0\0\0\0\0\0", b"\xc0"] {
        assert_eq!(read(odd, check()).unwrap_err().kind(), ErrorKind::State, "{odd:?}");
    }
    for op in [Op::Check { cost: 0, max_wait: 0 }, Op::Grant { cost: 1 }, Op::Reset] {
        assert_eq!(read(b"\xff", op).unwrap_err().kind(), ErrorKind::State);
    }
    assert_eq!(read(b"\xa6OOM no", check()).unwrap_err().to_string(), "OOM no");
    // Two charges: `false` and three elements, and a number.
    let reply = Value::BulkString(b"\x96\x64\xc2\xff\x00\x00\xff".to_vec());
    let reply = BatchReply::read(&reply, 2, form).unwrap();
    let entries =
        [0, 1].map(|place| reply.entry(place, &request(check()), &reader(), raised).unwrap());
    assert_eq!(entries[0], entries[1]);
    for short in [&b"\x95\x64\xc2\xff\x00\x00"[..], b"\x95\x64\xc2\xff\x00\xff", b"\x92\x64\xff"] {
        assert!(BatchReply::read(&Value::BulkString(short.to_vec()), 2, form).is_err());
    }
}

#[test]
fn one_charge_fails_alone() {
    let elements = [Some(7), None, Some(0), Some(0), Some(-1), Some(0), Some(0)];
    let reply = packed(&elements);
    let reply = BatchReply::read(&reply, 2, LONG).unwrap();
    let reader = reader();
    let error = reply.entry(0, &check(), &reader, raised).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Capacity, String::from("OOM no")));
    assert_eq!(reply.texts().collect::<Vec<_>>(), ["OOM no"]);
    assert!(reply.entry(1, &check(), &reader, raised).is_ok());
}

#[test]
fn a_number_that_no_script_computes_with_fails_its_own_charge() {
    for odd in [i64::MAX, MAX_NUMBER + 1, i64::MIN] {
        let reply = ints(&[7, -1, odd, 0, -1, 0, 0]);
        let reply = BatchReply::read(&reply, 2, LONG).unwrap();
        let reader = reader();
        let error = reply.entry(0, &check(), &reader, raised).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(reply.entry(1, &check(), &reader, raised).is_ok());
    }
}

// Cases 33 and 64.
#[test]
fn no_numbers_admit_beyond_patience() {
    let mut random = Rng::with_seed(33);
    for _ in 0..10_000 {
        let number = |random: &mut Rng| random.i64(..) >> random.u32(..64);
        let numbers: Vec<_> = (0..random.usize(..6)).map(|_| number(&mut random)).collect();
        if let Ok(ReplyEntry::Decided(Ruling { verdict: Verdict::Wait(wait), .. })) =
            read_first(&ints(&numbers))
        {
            assert!((1..=500).contains(&wait), "{numbers:?}");
        }
    }
}

// Case 33.
#[test]
fn no_bytes_are_read_beyond_their_end() {
    let mut random = Rng::with_seed(33);
    for _ in 0..10_000 {
        let bytes: Vec<u8> = (0..random.usize(..50)).map(|_| random.u8(..)).collect();
        let _ = read_first(&Value::BulkString([b"\x94".as_slice(), &bytes].concat()));
    }
}

#[cfg(feature = "calendar")]
#[test]
fn clocks_that_differ_are_both_named() {
    let reply = Value::BulkString(b"\x94\x00\xa8CALENDAR\x00\x00".to_vec());
    let error = read_first(&reply).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    let text = error.to_string();
    let rest = text.strip_prefix("the clock of redis is at 1970-01-01T00:00:00.000Z, ");
    let own = rest.and_then(|rest| rest.strip_prefix("the clock of this process at "));
    let year = own.and_then(|own| own[..4].parse::<u32>().ok());
    assert!(year.is_some_and(|year| year > 2025), "{text}");
}
