use proptest::prelude::*;

use super::*;

fn request(op: Op) -> Request {
    Request { key: String::from("k"), rule: None, op }
}

fn check() -> Request {
    request(Op::Check { cost: 1, max_wait: 500 })
}

/// Packed as the widest form of each, with an error text where `None` stands.
fn packed(elements: &[Option<i64>]) -> Value {
    let mut bytes = vec![0xdc];
    bytes.extend((elements.len() as u16).to_be_bytes());
    for element in elements {
        match element {
            Some(number) => {
                bytes.push(0xcf);
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

fn entry_of(reply: &Value) -> Result<ReplyEntry, Error> {
    BatchReply::read(reply, 1, 1)?.entry(0, &check())
}

#[test]
fn a_reserved_wait_is_read() {
    let reply = ints(&[7, 1, 400, 0, 900, 11, 12, 13, 14]);
    assert_eq!(BatchReply::read(&reply, 1, 1).unwrap().now, 7);
    let report = Report { remaining: 0, reset_after: 900 };
    let mark = [11, 12, 13, 14].into();
    let decided = ReplyEntry::Decided(Answer {
        verdict: Verdict::Wait(400),
        report,
        quota_index: 0,
        mark: Some(mark),
    });
    assert_eq!(entry_of(&reply).unwrap(), decided);
}

#[test]
fn of_several_quotas_each_may_leave_a_list() {
    let mut bytes = vec![0xdc, 0, 14, 7, 1, 100, 0, 90];
    bytes.extend(b"\x01\x02\x03\xa6,5,0,1\x04\x05\x06\x07\x01");
    let entry_of =
        |bytes: Vec<u8>| BatchReply::read(&Value::BulkString(bytes), 1, 2)?.entry(0, &check());
    let Ok(ReplyEntry::Decided(Answer { mark: Some(mark), quota_index: 1, .. })) =
        entry_of(bytes.clone())
    else {
        panic!()
    };
    assert_eq!((mark.first, &mark.more[..]), ([1, 2, 3, 0], &[[4, 5, 6, 7]][..]));
    assert_eq!((mark.list(0), mark.list(1)), (&[5, 0, 1][..], &[][..]));
    for list in [b"\xa6 5,0,1", b"\xa6,5,,1,", b"\xa6,5,-1,", b"\xa6,5,1e9"] {
        bytes[11..18].copy_from_slice(list);
        assert_eq!(entry_of(bytes.clone()).unwrap_err().kind(), ErrorKind::State);
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
        bytes(b"\x99\x07\0\0\0\0\0\0\0"),
        bytes(b"\x99\x07\0\0\0\0\0\0\0\0\0"),
        bytes(b"\x99\x07\0\0\0\0\0\0\0\xc0"),
        bytes(b"\x99\x07\0\0\0\0\0\0\0\xdb\xff\xff\xff\xff"),
        ints(&[7]),
        ints(&[7, 0, 0, 0, 0, 0, 0, 0]),
        ints(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ints(&[-1, 0, 0, 0, 0, 0, 0, 0, 0]),
        ints(&[i64::MIN, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for reply in odd {
        assert_eq!(entry_of(&reply).unwrap_err().kind(), ErrorKind::State, "{reply:?}");
    }
    let odd = [
        [0, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [1, 501, 0, 0, 0, 0],
        [1, i64::MIN, 0, 0, 0, 0],
        [2, 0, 0, 0, 0, 0],
        [4, 1, 0, 0, 0, 0],
        [5, 0, 0, 0, 0, 0],
        [0, 0, -1, 0, 0, 0],
        [0, 0, 0, i64::MAX, 0, 0],
    ];
    for numbers in odd {
        let reply = ints(&[&[7], numbers.as_slice(), &[0, 0]].concat());
        assert_eq!(entry_of(&reply).unwrap_err().kind(), ErrorKind::State, "{reply:?}");
    }
}

#[test]
fn one_charge_fails_alone() {
    let mut elements = vec![Some(7), None];
    elements.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7, 8, 9].map(Some));
    let reply = packed(&elements);
    let reply = BatchReply::read(&reply, 2, 1).unwrap();
    assert_eq!(reply.entry(0, &check()).unwrap_err().kind(), ErrorKind::Capacity);
    assert!(reply.entry(1, &check()).is_ok());
}

proptest! {
    #[test]
    fn no_numbers_admit_beyond_max_wait(numbers in prop::collection::vec(any::<i64>(), 0..11)) {
        if let Ok(ReplyEntry::Decided(Answer { verdict: Verdict::Wait(wait), .. })) = entry_of(&ints(&numbers)) {
            prop_assert!((1..=500).contains(&wait));
        }
    }

    #[test]
    fn no_bytes_are_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
        let _ = entry_of(&Value::BulkString([b"\x99".as_slice(), &bytes].concat()));
    }
}
