use super::*;

#[test]
fn the_clock_of_an_address_is_not_the_clients() {
    let table = [
        ("redis://h/1", Some(("redis://h/1", false))),
        ("redis://h?protocol=resp2", Some(("redis://h?protocol=resp2", false))),
        ("redis://h?clock=caller", Some(("redis://h", true))),
        ("unix:///s?db=2&clock=caller&pass=x", Some(("unix:///s?db=2&pass=x", true))),
        ("redis://h?clock=server", None),
        ("redis://h?clock=", None),
    ];
    for (url, expected) in table {
        let read = without_clock(url).ok();
        assert_eq!(read.as_ref().map(|(url, clock)| (&**url, *clock)), expected, "{url}");
    }
    let pool = Pool::connect("redis-cluster://h?node=g&clock=caller").expect("an address");
    assert!(pool.has_caller_clock());
}
