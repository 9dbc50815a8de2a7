use super::*;

#[test]
fn ipv6_is_grouped_and_all_else_is_kept_whole() {
    for (address, prefix, key) in [
        ("203.0.113.9", 64, "203.0.113.9"),
        ("203.0.113.9", 8, "203.0.113.9"),
        ("2001:db8:1:2:3::9", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2ff:3::9", 56, "2001:db8:1:200::/56"),
        ("2001:db8:1:2:3::9", 128, "2001:db8:1:2:3::9"),
        ("2001:db8:1:2:3::9", 0, "::/0"),
        ("::1", 64, "::/64"),
        ("64:ff9b::203.0.113.9", 64, "64:ff9b::cb00:7109"),
        ("64:ff9b::1:203.0.113.9", 64, "64:ff9b::/64"),
        ("64:ff9b:1::203.0.113.9", 64, "64:ff9b:1::cb00:7109"),
        ("64:ff9b:2::203.0.113.9", 64, "64:ff9b:2::/64"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let client = ClientAddr::new(address, prefix);
        assert_eq!((client.to_string().as_str(), client.address()), (key, address));
    }
}
