use super::*;

#[test]
fn networks_and_addresses_with_commas_between_them() {
    let read = |list| parse(list).unwrap().into_iter().map(canonical).map(|one| one.to_string());
    let list = " 10.0.0.0/8,127.0.0.1 ,, ::1,fd00::/8, ::ffff:192.0.2.0/120,";
    let read: Vec<_> = read(list).collect();
    assert_eq!(read, ["10.0.0.0/8", "127.0.0.1/32", "::1/128", "fd00::/8", "192.0.2.0/24"]);
    assert_eq!(parse("").unwrap(), []);
    for wrong in
        ["10.0.0.0/33", "10.0.0/8", "proxy", "10.0.0.1:80", "10.0.0.0/8;::1", "::ffff:10.0.0.0/8"]
    {
        let error = parse(&format!("127.0.0.1, {wrong}")).unwrap_err();
        assert!(error.to_string().contains(wrong), "{error}");
    }
}
