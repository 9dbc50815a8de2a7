//! A password that changes while a pool is used.

use super::*;

use servers::sentinel::{SERVICE, Sentinel};

/// A rotated password is in use by then.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Gives a user another password, the only one from now on, and ends all connections.
async fn rotate(connection: &mut MultiplexedConnection, user: &str, password: &str) {
    let password = format!(">{password}");
    run(connection, &["ACL", "SETUSER", user, "reset", "on", &password, "~*", "&*", "+@all"]).await;
    cut(connection).await;
}

/// Rotates the password of `app` on these servers, three times. The pool must go on at once when it
/// is given the new one, whether or not it was refused before.
async fn goes_on(what: &str, pool: Pool, servers: &mut [MultiplexedConnection]) {
    let counter = over(pool.clone());
    until_well(&counter).await;
    let mut fastest = LONG;
    for password in ["two", "three", "four"] {
        for server in &mut *servers {
            rotate(server, "app", password).await;
        }
        until(&counter, ErrorKind::Configuration).await;
        pool.set_credentials("app", password).expect("a pool of the crate");
        fastest = fastest.min(until_well(&counter).await);
    }
    pool.set_credentials("app", "five").expect("a pool of the crate");
    // Live connections stay.
    until_well(&counter).await;
    for server in &mut *servers {
        rotate(server, "app", "five").await;
    }
    until_well(&counter).await;
    println!("fault case=173 {what} well_after_ms={}", fastest.as_millis());
    assert!(fastest < AT_ONCE, "{what}: {fastest:?}");
    let printed = format!("{pool:?} {counter:?}");
    assert!(!printed.contains("five"), "{printed}");
}

// Case 173.
#[tokio::test]
async fn a_rotated_password_is_taken_without_a_new_pool() {
    let server = Server::with(&[]);
    let mut admin = server.connection().await;
    rotate(&mut admin, "app", "one").await;
    let pool = Pool::connect(&format!("redis://app:one@127.0.0.1:{}", server.port())).unwrap();
    goes_on("server", pool, &mut [admin]).await;
}

// Case 173.
#[tokio::test]
async fn a_rotated_password_is_taken_on_each_server_of_a_cluster() {
    let cluster = Cluster::start().await;
    let mut servers = Vec::new();
    for node in 0..3 {
        let mut admin = cluster.connection(node).await;
        rotate(&mut admin, "app", "one").await;
        servers.push(admin);
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://app:one@");
    goes_on("cluster", Pool::connect(&url).unwrap(), &mut servers).await;
}

// Case 173.
#[tokio::test]
async fn rotated_passwords_are_taken_behind_sentinels() {
    let server = Server::with(&[]);
    let mut admin = server.connection().await;
    rotate(&mut admin, "app", "one").await;
    let sentinel = Sentinel::alone(server.port(), "");
    let mut watched = sentinel.connection().await;
    rotate(&mut watched, "watcher", "one").await;
    let url = format!(
        "redis-sentinel://app:one@127.0.0.1:{}?sentinelServiceName={SERVICE}\
         &sentinelUsername=watcher&sentinelPassword=one",
        sentinel.port
    );
    let pool = Pool::connect(&url).unwrap();
    goes_on("sentinels", pool.clone(), &mut [admin]).await;
    pool.set_sentinel_credentials("watcher", "two").unwrap();
    rotate(&mut watched, "watcher", "two").await;
    // The sentinel sees that the pool has logged in again.
    eventually("the sentinel is asked again", async || {
        let mut ask = redis::cmd("CLIENT");
        let clients: String = ask.arg("LIST").query_async(&mut watched).await.expect("clients");
        clients.contains("user=watcher")
    })
    .await;
}

#[tokio::test]
async fn a_pool_of_the_application_takes_no_password() {
    let server = Server::with(&[]);
    let pool = Pool::from_connection(server.connection().await);
    let plain = Pool::connect(&server.url()).unwrap();
    for refused in [
        pool.set_credentials("app", "secret"),
        pool.set_sentinel_credentials("app", "secret"),
        plain.set_sentinel_credentials("app", "secret"),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(!format!("{error:?}").contains("secret"));
    }
}

/// Without a login, its connections would have the rights of the user `default`.
#[tokio::test]
async fn a_user_without_a_password_is_that_user() {
    let server = Server::with(&[]);
    let mut admin = server.connection().await;
    for (user, more) in [("one", ""), ("two", "?protocol=resp2")] {
        run(&mut admin, &["ACL", "SETUSER", user, "reset", "on", "nopass", "~*", "+@all"]).await;
        let at = |user| format!("redis://{user}@127.0.0.1:{}{more}", server.port());
        let counter = counter_at(&at(user));
        until_well(&counter).await;
        let list = redis::cmd("CLIENT").arg("LIST").query_async::<String>(&mut admin).await;
        assert!(list.expect("clients").contains(&format!("user={user}")), "{more}");
        until(&counter_at(&at("nobody")), ErrorKind::Configuration).await;
    }
}
