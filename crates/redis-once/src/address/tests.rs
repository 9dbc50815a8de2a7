use super::*;

fn hosts(hosts: &[Host]) -> Vec<(&str, u16)> {
    hosts.iter().map(|host| (host.name.as_str(), host.port)).collect()
}

#[test]
fn one_server_is_what_the_client_reads() {
    let address = Address::parse("redis://app:p%40ss@redis.example:7000/3").unwrap();
    assert!(!address.uses_tls);
    assert_eq!(address.settings.db(), 3);
    assert_eq!(address.settings.username(), Some("app"));
    assert_eq!(address.settings.password(), Some("p@ss"));
    let Topology::Server(server) = address.topology else { panic!("one server") };
    assert_eq!(hosts(&[server]), [("redis.example", 7_000)]);
    for url in ["redis://[::1]", "valkey://localhost", "REDIS://localhost/?protocol=resp3"] {
        assert!(matches!(Address::parse(url).unwrap().topology, Topology::Server(_)), "{url}");
    }
}

#[test]
fn an_address_that_does_not_parse_says_how_to_write_it() {
    for url in ["redis://127.0.0.1:99999", "redis://app:pa/ss@127.0.0.1"] {
        let error = Address::parse(url).err().expect("no address").to_string();
        assert!(error.contains("at most 65535") && error.contains("%2F"), "{error}");
        assert!(!error.contains("99999") && !error.contains("ss@"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_socket_is_a_server() {
    for url in ["unix:///run/redis.sock", "redis+unix:///run/redis.sock?db=2&pass=x"] {
        let Topology::Socket(path) = Address::parse(url).unwrap().topology else { panic!("{url}") };
        assert_eq!(path, PathBuf::from("/run/redis.sock"), "{url}");
    }
}

#[test]
fn a_cluster_has_nodes() {
    let url = "redis-cluster://:secret@one:7001?node=two:7002&node=[::1]:7003&node=four";
    let address = Address::parse(url).unwrap();
    let Topology::Cluster { nodes } = &address.topology else { panic!("a cluster") };
    let expected = [("one", 7_001), ("two", 7_002), ("::1", 7_003), ("four", 6_379)];
    assert_eq!(hosts(nodes), expected);
    assert_eq!(address.settings.password(), Some("secret"));
    assert!(Address::parse("valkey-cluster://one").is_ok());
}

#[test]
fn sentinels_have_a_service_and_credentials_of_their_own() {
    let url = "redis-sentinel://app:one@s1/5?node=s2:26380&sentinelServiceName=main\
        &sentinelUsername=guard&sentinelPassword=t%26wo&sentinelTls=yes";
    let address = Address::parse(url).unwrap();
    let Topology::Sentinel { sentinels, service_name, settings, uses_tls } = &address.topology
    else {
        panic!("sentinels")
    };
    assert_eq!((address.uses_tls, uses_tls), (false, &Some(true)));
    assert_eq!(hosts(sentinels), [("s1", 26_379), ("s2", 26_380)]);
    assert_eq!(service_name, "main");
    assert_eq!((settings.username(), settings.password()), (Some("guard"), Some("t&wo")));
    let settings = &address.settings;
    assert_eq!((settings.username(), settings.password()), (Some("app"), Some("one")));
    assert_eq!(settings.db(), 5);
}

#[test]
fn a_user_without_a_password_logs_in() {
    for (url, login) in [
        ("redis://app@one", (Some("app"), Some(""))),
        ("redis://app:@one", (Some("app"), Some(""))),
        ("redis+unix:///run/redis.sock?user=app", (Some("app"), Some(""))),
        ("redis://default@one", (Some("default"), None)),
        ("redis://one", (None, None)),
        ("redis+unix:///run/redis.sock?user=", (Some(""), None)),
    ] {
        let settings = Address::parse(url).unwrap().settings;
        assert_eq!((settings.username(), settings.password()), login, "{url}");
    }
    let url = "redis-sentinel://one?sentinelServiceName=main&sentinelUsername=guard";
    let Topology::Sentinel { settings, .. } = Address::parse(url).unwrap().topology else {
        panic!("no sentinel");
    };
    assert_eq!((settings.username(), settings.password()), (Some("guard"), Some("")));
}

#[test]
fn two_letters_ask_for_tls_everywhere() {
    for form in ["", "-cluster"] {
        for (scheme, uses_tls) in
            [("redis", false), ("valkey", false), ("rediss", true), ("valkeys", true)]
        {
            let address = Address::parse(&format!("{scheme}{form}://one")).unwrap();
            assert_eq!(address.uses_tls, uses_tls, "{scheme}{form}");
        }
    }
}

// Case 126.
#[test]
fn bad_addresses_say_why_and_repeat_no_password() {
    let table = [
        ("", "no scheme"),
        ("localhost:6379", "no scheme"),
        ("redis//:hush@one", "no scheme"),
        ("http://:hush@one", "scheme"),
        ("redis+sentinel://:hush@one", "scheme"),
        ("redis-clusters://:hush@one", "scheme"),
        ("unix-cluster:///hush", "scheme"),
        ("redis://:hush@", "parse"),
        ("redis://:hush@:x/1", "parse"),
        ("redis://:hush@one:1,two:2", "parse"),
        ("redis://:hush@one:6379/first", "invalid"),
        ("redis://:hush@0.0.0.0", "invalid"),
        ("redis://:hush@one#insecure", "always checked"),
        ("redis://:hush@one?node=two:1", "redis-cluster://"),
        ("redis://:hush@one?sentinelServiceName=main", "redis-sentinel://"),
        ("redis-cluster://:hush@one?node=two:hush", "host:port"),
        ("redis-cluster://one?node=me:hush@two:1", "host:port"),
        ("redis-cluster://one?node=two:1/hush", "host:port"),
        ("redis-cluster://one?node=", "host:port"),
        ("redis-cluster://:hush@one?nodes=two:1", "parameter"),
        ("redis-cluster://:hush@one?sentinelServiceName=main", "parameter"),
        ("redis-sentinel://:hush@one", "sentinelServiceName"),
        ("redis-sentinel://one?sentinelPassword=hush", "sentinelServiceName"),
        ("redis-sentinel://one?sentinelServiceName=&sentinelPassword=hush", "is empty"),
        ("redis-sentinel://one?sentinelPasswort=hush", "parameter"),
        ("redis-sentinel://one?sentinelServiceName=main&sentinelTls=hush", "neither yes nor no"),
    ];
    for (url, why) in table {
        let Err(error) = Address::parse(url) else { panic!("{url} is valid") };
        assert_eq!(error.kind(), ErrorKind::Configuration, "{url}");
        let printed = format!("{error} {error:?}");
        assert!(printed.contains(why), "{url}: {printed}");
        assert!(!printed.contains("hush"), "{url}: {printed}");
    }
}
