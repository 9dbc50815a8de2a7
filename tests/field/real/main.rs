//! Real twemproxy, Envoy and haproxy before real servers. `tests/field.sh` finds the programs, and
//! names them in `TWEMPROXY`, `ENVOY` and `HAPROXY`.

#![cfg(feature = "redis")]

mod proxies;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use support::Server;
use support::faults::{chain, eventually};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, ErrorKind, Limiter, LimiterExt, Memory, Pool, Quota, Redis};

use self::proxies::{Kind, RealProxy};

const LONG: Duration = Duration::from_secs(30);

fn hourly(name: &str, limit: u64, pool: Pool) -> Redis<TokenBucket> {
    let quota = Quota::new(limit, Duration::from_secs(360_000));
    Redis::new(name, TokenBucket::new(quota), pool).decision_timeout(LONG)
}

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::with(&[])).collect()
}

/// Charges keys in turn from many tasks. Returns the number of admitted charges.
async fn admitted<L>(limiter: L, keys: usize, charges: usize) -> usize
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send,
{
    let (limiter, mut tasks) = (Arc::new(limiter), JoinSet::new());
    for number in 0..charges {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            let decision = limiter.check(&Charge::new(format!("key {}", number % keys))).await;
            decision.unwrap_or_else(|error| panic!("{}", chain(&error))).is_admitted()
        });
    }
    tasks.join_all().await.into_iter().filter(|is_admitted| *is_admitted).count()
}

/// The number of decisions that 64 callers get in two seconds, in thousands a second.
async fn throughput(pool: Pool) -> f64 {
    let (limiter, begun) = (hourly("fast", 1_000_000_000, pool), Instant::now());
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let (charge, mut count) = (Charge::new(format!("caller {caller}")), 0);
            while begun.elapsed() < Duration::from_secs(2) {
                let _ = limiter.check(&charge).await.expect("a decision");
                count += 1;
            }
            count
        });
    }
    let all: usize = callers.join_all().await.into_iter().sum();
    all as f64 / begun.elapsed().as_secs_f64() / 1_000.0
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_count_once() {
    for kind in Kind::ALL {
        // haproxy forwards connections, and so leads to one primary.
        let counts = if kind == Kind::Haproxy { 1..=1 } else { 1..=2 };
        let both_ways = |count| [(count, ""), (count, "?protocol=resp2")];
        for (count, query) in counts.flat_map(both_ways) {
            let servers = servers(count);
            let proxy = RealProxy::before(kind, &servers).await;
            let pool = Pool::connect(&format!("{}{query}", proxy.url())).unwrap();
            let first = AllAtOnce::new(
                (hourly("early", 1_000, pool.clone()), hourly("all early", 10, pool.clone())),
                |charge| [charge.clone(), Charge::new("all")],
            );
            // The first charges come before any connection.
            let early = admitted(first, 40, 40).await;
            pool.ready().await.unwrap_or_else(|error| panic!("{kind:?}: {}", chain(&error)));
            if count == 2 {
                let as_one = pool.clone().several_servers(false).ready().await;
                let error = as_one.expect_err("two servers");
                assert!(error.to_string().contains("limits would count twice"), "{error}");
            }
            let limit = admitted(hourly("api", 10, pool.clone()), 100, 2_000).await;
            let both = AllAtOnce::new(
                (hourly("user", 1_000, pool.clone()), hourly("address", 10, pool)),
                |charge| [charge.clone(), Charge::new("all")],
            );
            let members = admitted(both, 40, 40).await;
            println!(
                "field proxy={kind:?}{query} servers={count} limit={limit}/1000 \
                 members={members}/10 early={early}/10"
            );
            assert_eq!((limit, members, early), (1_000, 10, 10), "{kind:?} before {count}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn throughput_beside_a_direct_connection() {
    let servers = servers(1);
    let direct = throughput(Pool::connect(&servers[0].url()).unwrap()).await;
    println!("field throughput proxy=none thousands={direct:.0}");
    for kind in Kind::ALL {
        let proxy = RealProxy::before(kind, &servers).await;
        for several in [false, true] {
            let pool = Pool::connect(&proxy.url()).unwrap().several_servers(several);
            let through = throughput(pool).await;
            println!("field throughput proxy={kind:?} several={several} thousands={through:.0}");
            assert!(through > 0.0);
        }
    }
}

/// What callers saw while a server behind a proxy was away.
#[derive(Default)]
struct Seen {
    by_redis: AtomicUsize,
    by_fallback: AtomicUsize,
    saturated: AtomicUsize,
}

/// A server is killed or stopped for four seconds under load, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_behind_a_proxy_is_one_for_the_fallback() {
    for kind in Kind::ALL {
        for stops in [false, true] {
            let mut servers = servers(1);
            let proxy = RealProxy::before(kind, &servers).await;
            let redis = hourly("api", 1_000_000_000, Pool::connect(&proxy.url()).unwrap());
            let redis = redis.decision_timeout(Duration::from_millis(250));
            let own = TokenBucket::new(Quota::per_hour(1_000_000_000));
            let limiter = redis.clone().or_else(Memory::new("own", own));
            eventually("a decision", async || redis.check(&Charge::new("key")).await.is_ok()).await;
            let (seen, is_over) = (Arc::new(Seen::default()), Arc::new(AtomicUsize::new(0)));
            let mut callers = JoinSet::new();
            for caller in 0..16 {
                let (limiter, seen) = (limiter.clone(), Arc::clone(&seen));
                let is_over = Arc::clone(&is_over);
                callers.spawn(async move {
                    while is_over.load(Relaxed) == 0 {
                        let charge = Charge::new(format!("caller {caller}"));
                        let count = match limiter.check(&charge).await {
                            Ok(decision) if decision.fallback_cause().is_some() => {
                                &seen.by_fallback
                            }
                            Ok(_) => &seen.by_redis,
                            Err(error) if error.kind() == ErrorKind::Saturation => &seen.saturated,
                            Err(error) => panic!("{kind:?}: {}", chain(&error)),
                        };
                        count.fetch_add(1, Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            }
            match stops {
                true => servers[0].signal("STOP"),
                false => servers[0].kill(),
            }
            eventually("the fallback answers", async || {
                seen.by_fallback.load(Relaxed) > 100 || !callers.is_empty() && failed(&mut callers)
            })
            .await;
            // Longer than a server may close each connection before that is a wrong setup.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(4) {
                let error = redis.check(&Charge::new("key")).await.expect_err("it is away");
                let away = [ErrorKind::Infrastructure, ErrorKind::Saturation];
                assert!(away.contains(&error.kind()), "{kind:?}: {}", chain(&error));
            }
            match stops {
                true => servers[0].signal("CONT"),
                false => servers[0].restart(),
            }
            eventually("redis answers again", async || {
                redis.check(&Charge::new("key")).await.is_ok()
            })
            .await;
            let before = seen.by_redis.load(Relaxed);
            eventually("callers are answered by redis", async || {
                seen.by_redis.load(Relaxed) > before + 100
            })
            .await;
            is_over.store(1, Relaxed);
            callers.join_all().await;
            let Seen { by_redis, by_fallback, saturated } = &*seen;
            println!(
                "field outage proxy={kind:?} stopped={stops} by_redis={by_redis:?} \
                 by_fallback={by_fallback:?} saturated={saturated:?} other=0"
            );
        }
    }
}

/// Panics with what a caller panicked with.
fn failed(callers: &mut JoinSet<()>) -> bool {
    if let Some(ended) = callers.try_join_next() {
        ended.expect("callers go on");
    }
    false
}

/// haproxy follows a failover by its check of the role.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_behind_haproxy_is_followed() {
    let mut servers = servers(2);
    let port = servers[0].port().to_string();
    let mut replica = servers[1].connection().await;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port).exec_async(&mut replica).await.unwrap();
    servers[1].until_info("master_link_status:up").await;
    let proxy = RealProxy::before(Kind::Haproxy, &servers).await;
    let pool = Pool::connect(&proxy.url()).unwrap();
    let limiter = hourly("api", 10, pool).decision_timeout(Duration::from_millis(250));
    eventually("a decision", async || limiter.check(&Charge::new("key")).await.is_ok()).await;
    let mut wait = redis::cmd("WAIT");
    let mut primary = servers[0].connection().await;
    wait.arg(1).arg(0).exec_async(&mut primary).await.unwrap();
    servers[0].kill();
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut replica).await.unwrap();
    let mut left = None;
    eventually("the new primary decides", async || {
        let decision = limiter.check(&Charge::new("key")).await;
        left = decision.ok().and_then(|decision| decision.remaining());
        left.is_some()
    })
    .await;
    println!("field failover proxy=Haproxy left={left:?} of 10");
    assert!(left.is_some_and(|left| left <= 8), "the state was replicated: {left:?}");
}
