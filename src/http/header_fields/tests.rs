use sfv::{DictSerializer, Integer, KeyRef, ListSerializer, StringRef, key_ref};

use super::*;

/// The hand-written text equals the text of the library.
#[test]
fn a_standing_is_written_as_a_serializer_writes_it() {
    let mut dice = fastrand::Rng::with_seed(11);
    let integer = |number| Integer::try_from(number).expect("in range");
    for _ in 0..1_000 {
        let mut number = || dice.u64(..=standing::MAX_INTEGER) >> dice.u32(..50);
        let [limit, remaining, reset] = [number(), number(), number()];
        let has_reset = dice.bool();
        let at = Standing { limit, remaining, reset, has_reset };
        let name = "a.B:c_d-9".repeat(dice.usize(1..=7));
        let key = dice.bool().then(|| dice.u64(..).to_be_bytes());
        let mut list = ListSerializer::new();
        let mut item = list.bare_item(StringRef::from_str(&name).unwrap());
        item = item.parameter(key_ref("r"), integer(remaining));
        if has_reset {
            item = item.parameter(key_ref("t"), integer(reset));
        }
        _ = match &key {
            Some(key) => item.parameter(key_ref("pk"), &key[..]),
            None => item,
        };
        assert_eq!(draft_11(&name, at, key).unwrap(), list.finish().unwrap());

        let mut dictionary = DictSerializer::new();
        let values = [("limit", limit), ("remaining", remaining), ("reset", reset)];
        for (key, value) in values {
            _ = dictionary.bare_item(KeyRef::from_str(key).unwrap(), integer(value));
        }
        assert_eq!(draft_07(at).unwrap(), dictionary.finish().unwrap());
    }
}
