//! One charge of several keys: each member of a combination gets its part, and nothing else does.

use http::{Request, Response};
use tower::BoxError;
use tower_sluice::key::{Global, IntoCharge};
use tower_sluice::limiter::{Breaker, Description, Operation, Parts, Switch};
use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use tower_sluice::testing::Scripted;
use tower_sluice::{Exempt, FailOpen, HttpResponder, by_head};

use super::*;

const ADDRESS: &str = "192.0.2.1";

fn quota(limit: u64) -> Quota {
    Quota::new(limit, 300 * HOUR)
}

fn user(pool: &Pool) -> Redis<TokenBucket> {
    Redis::new("user", TokenBucket::new(quota(1_000)), pool.clone()).decision_timeout(PATIENT)
}

fn address(pool: &Pool) -> Redis<SlidingLog> {
    Redis::new("address", SlidingLog::new(quota(1_000)), pool.clone()).decision_timeout(PATIENT)
}

/// Makes limits of 1,000 units in memory, of a user and of an address, and the limiter of both.
fn in_memory() -> ([Boxed; 2], AllInTurn<2, Parts>) {
    let user = Memory::new("user", TokenBucket::new(quota(1_000))).boxed();
    let address = Memory::new("address", TokenBucket::new(quota(1_000))).boxed();
    ([user.clone(), address.clone()], AllInTurn::of_parts([user, address]))
}

/// Makes each combination of a limit of a user and one of an address, with its name and members.
fn fronts(server: &Server) -> [(&'static str, [Boxed; 2], Boxed); 3] {
    let pool = server.pool();
    let over = |pool: &Pool| AllAtOnce::of_parts((user(pool), address(pool))).boxed();
    let members = [user(&pool).boxed(), address(&pool).boxed()];
    let (in_memory, in_turn) = in_memory();
    [
        ("AllAtOnce", members.clone(), over(&pool)),
        ("AllAtOnce in a cluster", members, over(&pool.clone().by_hash_slot())),
        ("AllInTurn", in_memory, in_turn.boxed()),
    ]
}

/// Returns the units that `alice` and the address have taken.
async fn taken([user, address]: &[Boxed; 2]) -> [u64; 2] {
    let user = user.peek("alice").await.unwrap().remaining().unwrap();
    let address = address.peek(ADDRESS).await.unwrap().remaining().unwrap();
    [1_000 - user, 1_000 - address]
}

/// Refunds and settlements arrive a moment later.
async fn taken_in_the_end(members: &[Boxed; 2], expected: [u64; 2]) {
    let settled = async {
        while taken(members).await != expected {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENT, settled).await;
    assert!(in_time.is_ok(), "{:?}, not {expected:?}", taken(members).await);
}

#[tokio::test]
async fn each_part_is_charged_to_its_own_limit_with_its_own_cost() {
    let server = Server::start();
    for (name, members, limiter) in &fronts(&server) {
        let alice = || Charge::new("alice");
        for (charge, [one, other], settled) in [
            (Charge::new(("alice", ADDRESS)), [1, 1], 1),
            (Charge::new(["alice", ADDRESS]).cost(3), [3, 3], 3),
            (Charge::several([alice().cost(5), Charge::new(ADDRESS)]), [5, 1], 5),
            (Charge::several([alice().cost(5), Charge::new(ADDRESS).cost(2)]), [5, 2], 1),
            (Charge::several([alice(), Charge::new(ADDRESS).peek()]), [1, 0], 1),
            (Charge::several([alice().cost(0), Charge::new(ADDRESS)]), [1, 1], 1),
            (Charge::several([Some(alice().cost(2)), None]), [2, 0], 2),
            (Charge::several([None, Some(Charge::new(ADDRESS))]).cost(4), [0, 4], 4),
            (Charge::new((alice().cost(7), ADDRESS)).peek(), [0, 0], 0),
        ] {
            let before = taken(members).await;
            let after = [before[0] + one, before[1] + other];
            let mut decision = limiter.check(&charge).await.unwrap();
            assert!(decision.is_admitted(), "{name}");
            assert_eq!(taken(members).await, after, "{name}: {charge:?}");
            if let Some(reservation) = decision.take_reservation() {
                assert_eq!(reservation.cost(), settled);
                limiter.refund(reservation).unwrap();
            }
            taken_in_the_end(members, before).await;
            limiter.penalize(charge.clone()).await.unwrap();
            taken_in_the_end(members, after).await;
            limiter.reset(charge.clone()).await.unwrap();
            // An absent part is not reset either.
            let present = |index: usize| charge.parts()[index].is_some();
            taken_in_the_end(
                members,
                [0, 1].map(|index| if present(index) { 0 } else { after[index] }),
            )
            .await;
        }
        // A part brings its plan, and a refusal takes nothing of the others.
        let small = Charge::new("alice").quota(quota(2));
        let refused = limiter.check(&Charge::several([small, Charge::new(ADDRESS)]).cost(3)).await;
        let refused = refused.unwrap();
        assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("user")), "{name}");
        let [_, before] = taken(members).await;
        let same = limiter.check(&Charge::new(("bob", ADDRESS)).cost(1_001)).await.unwrap();
        assert_eq!((same.is_admitted(), taken(members).await[1]), (false, before), "{name}");
    }
}

/// A key that is blocked or in debt refuses a look, too: then nobody passes, and nobody pays.
#[tokio::test]
async fn a_part_that_takes_nothing_refuses_all_the_same() {
    let server = Server::start();
    for (name, members, limiter) in &fronts(&server) {
        let alice = Charge::new("alice");
        let looks = Charge::several([alice.clone(), Charge::new(ADDRESS).peek()]);
        let pays_last = Charge::several([alice.peek(), Charge::new(ADDRESS)]);
        for (place, key, charge) in [(1, ADDRESS, looks), (0, "alice", pays_last)] {
            let before = taken(members).await;
            members[place].block(key, HOUR).await.unwrap();
            let estimate = limiter.estimate(charge.clone()).await.unwrap();
            let refused = limiter.check(&charge).await.unwrap();
            for refused in [estimate, refused] {
                assert!(!refused.is_admitted(), "{name}: {charge:?} {refused:?}");
                assert_eq!(refused.limiter(), Some(["user", "address"][place]), "{name}");
                assert!(refused.retry_after().is_some(), "{name}");
            }
            members[place].unblock(key).await.unwrap();
            taken_in_the_end(members, before).await;
            assert!(limiter.check(&charge).await.unwrap().is_admitted(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_limiter_of_one_key_refuses_to_choose_one() {
    let (server, pool) = Server::pooled();
    let memory = Memory::new("memory", TokenBucket::new(quota(9)));
    let pair = (TokenBucket::new(quota(9)), FixedWindow::new(quota(9)));
    let redisson = Redisson::new(pool.clone()).default_rate(Rate::overall(9, HOUR));
    let limiters = [
        memory.clone().boxed(),
        memory.clone().deny_cache().lease(100).switch(&Switch::new()).boxed(),
        memory.clone().breaker(Breaker::new()).timeout(PATIENT).or_else(FailOpen).boxed(),
        Memory::new("pair", pair).boxed(),
        user(&pool).boxed(),
        user(&pool).lease(100).deny_cache().or_else(FailOpen).boxed(),
        Redis::new("pair", pair, pool.clone()).boxed(),
        redisson.decision_timeout(PATIENT).boxed(),
        AllAtOnce::of_parts((user(&pool), address(&pool))).boxed(),
    ];
    let count = limiters.len();
    for (number, limiter) in limiters.into_iter().enumerate() {
        // The last has two members, the first of which gets parts.
        let charge = match number + 1 == count {
            true => Charge::new((("alice", ADDRESS), "all")),
            false => Charge::new(("alice", ADDRESS)),
        };
        for _ in 0..2 {
            let error = limiter.check(&charge).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration, "{number}: {error}");
            assert!(error.to_string().contains("several keys"), "{number}: {error}");
        }
        for operation in [Operation::Penalize, Operation::Estimate, Operation::Reset] {
            if let Some(answer) = limiter.operate(operation, &charge) {
                assert_eq!(answer.await.unwrap_err().kind(), ErrorKind::Configuration, "{number}");
            }
        }
    }
    let mut connection = server.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert_eq!((keys, memory.len()), (vec![], 0));
}

#[tokio::test]
async fn as_many_parts_as_members_or_an_error() {
    let (_server, pool) = Server::pooled();
    let (members, in_turn) = in_memory();
    let both = AllAtOnce::of_parts((user(&pool), address(&pool)));
    let absent: [Option<Charge>; 2] = [None, None];
    for (charge, why) in [
        (Charge::new("alice"), "one key"),
        (Charge::new(["alice"]), "1 parts"),
        (Charge::new(["alice", ADDRESS, "all"]), "3 parts"),
        (Charge::several(Vec::<Charge>::new()), "0 parts"),
        (Charge::several(absent), "no limiter"),
        (Charge::new(("alice", ADDRESS)).quota(quota(5)), "belongs to a part"),
    ] {
        for limiter in [in_turn.clone().boxed(), both.clone().boxed()] {
            let error = limiter.check(&charge).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(why), "{error}");
            assert!(limiter.reset(charge.clone()).await.is_err());
        }
    }
    let empty = in_turn.check(&Charge::new(("alice", ""))).await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::Request);
    let empty = both.check(&Charge::new(("", ADDRESS))).await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::Request);
    assert_eq!(taken(&members).await, [0, 0]);
}

/// Members that are combinations themselves.
#[tokio::test]
async fn parts_may_have_parts() {
    let (members, inner) = in_memory();
    let everybody = Memory::new("everybody", TokenBucket::new(quota(9)));
    let outer = AllInTurn::of_parts([inner.boxed(), everybody.clone().boxed()]);
    assert!(outer.check(&Charge::new((("alice", ADDRESS), "all"))).await.unwrap().is_admitted());
    assert_eq!(taken(&members).await, [1, 1]);
    assert_eq!(everybody.peek("all").await.unwrap().remaining(), Some(8));
}

/// With nobody else to ask, a wait can be reserved: an anonymous request waits as any other.
#[tokio::test(start_paused = true)]
async fn a_member_that_is_left_alone_reserves_waits() {
    let users = Memory::new("user", TokenBucket::new(quota(1)));
    let addresses = Memory::new("address", TokenBucket::new(Quota::per_second(1)));
    let both = AllInTurn::of_parts([users.boxed(), addresses.clone().boxed()]);
    let anonymous = || Charge::several([None, Some(Charge::new(ADDRESS))]);
    let patient = anonymous().max_wait(HOUR);
    assert_eq!(both.check(&patient).await.unwrap().outcome(), Outcome::Allow);
    let mut waits = both.check(&patient).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Wait(Duration::from_secs(1)));
    both.refund(waits.take_reservation().unwrap()).unwrap();
    let estimate = both.estimate(patient).await.unwrap();
    assert_eq!(estimate.outcome(), Outcome::Wait(Duration::from_secs(1)));
    // Together nothing is reserved.
    let refused = both.check(&Charge::new(("alice", ADDRESS)).max_wait(HOUR)).await.unwrap();
    assert!(!refused.is_admitted());

    // A caller that leaves gives its slot back.
    let left = tokio::time::timeout(Duration::from_millis(300), both.acquire(anonymous())).await;
    assert!(left.is_err());
    let next = both.acquire(anonymous()).await.unwrap();
    assert_eq!(next.outcome(), Outcome::Wait(Duration::from_millis(700)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_for_the_same_parts_only() {
    let scripted = Scripted::new();
    for _ in 0..100 {
        let _ = scripted.clone().deny(HOUR);
    }
    let cached = scripted.clone().deny_cache();
    let alice = || Charge::new("alice");
    let asked = [
        Charge::new(("alice", ADDRESS)),
        Charge::new(("alice", "192.0.2.2")),
        Charge::new((ADDRESS, "alice")),
        Charge::new(("alice", ADDRESS, "all")),
        Charge::new((("alice", ADDRESS), "all")),
        Charge::several([Some(alice()), None]),
        Charge::several([None, Some(alice())]),
        Charge::several([alice().cost(2), Charge::new(ADDRESS)]),
        Charge::several([alice().quota(quota(2)), Charge::new(ADDRESS)]),
        alice(),
    ];
    for (number, charge) in asked.iter().enumerate() {
        for repeated in [false, true] {
            let refused = cached.check(charge).await.unwrap();
            assert_eq!(refused.origin() == Origin::Cache, repeated, "{number}");
        }
    }
    assert_eq!(scripted.charges().len(), asked.len());
    // A reset forgets the keys, whatever the parts cost.
    cached.reset(("alice", ADDRESS)).await.unwrap();
    for (number, is_repeated) in [(0, false), (7, false), (8, false), (1, true), (9, true)] {
        let refused = cached.check(&asked[number]).await.unwrap();
        assert_eq!(refused.origin() == Origin::Cache, is_repeated, "{number}");
    }
}

#[tokio::test]
async fn a_request_brings_several_keys_or_has_none() {
    let ([users, addresses], both) = in_memory();
    let members = [users, addresses];
    let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new("hello")) });
    let address = || Charge::new(ADDRESS).cost(3);
    let strict =
        RateLimitLayer::new(both.clone(), by_head(move |head| (head.header("x-user"), address())));
    let lenient = RateLimitLayer::new(
        both.clone(),
        by_head(move |head| {
            let address = match head.uri().path() {
                "/health" => Exempt.into_charge(),
                _ => address().into_charge(),
            };
            (head.header("x-user").into_charge().or_exempt(), address)
        }),
    );
    let request = |path: &str, user: Option<&str>| {
        let mut request = Request::builder().uri(path);
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        request.body(()).unwrap()
    };
    for (path, user, [strictly, leniently], costs) in [
        ("/", Some("alice"), [200, 200], [2, 6]),
        ("/", None, [400, 200], [0, 3]),
        ("/", Some(""), [400, 400], [0, 0]),
        ("/health", Some("alice"), [200, 200], [2, 3]),
        ("/health", None, [400, 200], [0, 0]),
    ] {
        let before = taken(&members).await;
        let answer = strict.layer(inner).oneshot(request(path, user)).await.unwrap();
        assert_eq!(answer.status().as_u16(), strictly, "{path} {user:?}");
        let answer = lenient.layer(inner).oneshot(request(path, user)).await.unwrap();
        assert_eq!(answer.status().as_u16(), leniently, "{path} {user:?}");
        let after = [before[0] + costs[0], before[1] + costs[1]];
        assert_eq!(taken(&members).await, after, "{path} {user:?}");
    }
    // One key, and limiters for two: nothing passes, and nothing is taken.
    let wrong = RateLimitLayer::new(both, Global).layer(inner);
    assert_eq!(wrong.oneshot(request("/", None)).await.unwrap().status(), 503);
}

const NAMES: [&str; 3] = ["user", "address", "login"];
const LIMITS: [u64; 3] = [1_000, 2_000, 3_000];

/// Three limiters in one Redis, of which each has a limit of its own.
fn three(pool: &Pool) -> (Redis<TokenBucket>, Redis<SlidingLog>, Redis<FixedWindow>) {
    let quotas = LIMITS.map(quota);
    (
        Redis::new(NAMES[0], TokenBucket::new(quotas[0]), pool.clone()).decision_timeout(PATIENT),
        Redis::new(NAMES[1], SlidingLog::new(quotas[1]), pool.clone()).decision_timeout(PATIENT),
        Redis::new(NAMES[2], FixedWindow::new(quotas[2]), pool.clone()).decision_timeout(PATIENT),
    )
}

/// A charge of those of three parts whose bit is set.
fn parts_of(bits: usize) -> Charge {
    let part = |index: usize| (bits >> index & 1 == 1).then(|| Charge::new(NAMES[index]));
    Charge::several([0, 1, 2].map(part))
}

/// The names of the policies in the header fields of an answer, each with its limit.
async fn fields(limiter: Boxed, charge: &Charge) -> Vec<(String, u64)> {
    let headers = RateLimitHeaders::new(HeaderStyle::Draft11).on_admitted(OnAdmitted::Always);
    let charge = charge.clone();
    let layer = RateLimitLayer::new(limiter, move |_: &Request<()>| charge.clone())
        .respond(HttpResponder::new().headers(headers));
    let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) });
    let answer = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
    let field = answer.headers()["ratelimit-policy"].to_str().unwrap();
    let policy = |text: &str| {
        let (name, limit) = text.split_once(";q=").unwrap();
        let limit = limit.split(';').next().unwrap().parse().unwrap();
        (name.trim_matches('"').to_owned(), limit)
    };
    field.split(", ").map(policy).collect()
}

// Case 158.
#[tokio::test]
async fn fields_name_the_policies_of_the_parts_that_are_charged() {
    type Front<'a> = (&'a str, Boxed, &'a dyn Fn(usize) -> Charge);
    let (_server, pool) = Server::pooled();
    let memory = |index: usize| Memory::new(NAMES[index], TokenBucket::new(quota(LIMITS[index])));
    let nested = AllInTurn::of_parts([memory(1).boxed(), memory(2).boxed()]);
    let nest = |bits: usize| match parts_of(bits).parts() {
        [user, None, None] => Charge::several([user.clone(), None]),
        [user, address, login] => {
            let inner = Charge::several([address.clone(), login.clone()]);
            Charge::several([user.clone(), Some(inner)])
        }
        _ => unreachable!("three parts"),
    };
    let fronts: [Front<'_>; 4] = [
        ("AllAtOnce", AllAtOnce::of_parts(three(&pool)).boxed(), &parts_of),
        (
            "AllAtOnce in a cluster",
            AllAtOnce::of_parts(three(&pool.clone().by_hash_slot())).boxed(),
            &parts_of,
        ),
        (
            "AllInTurn",
            AllInTurn::of_parts([0, 1, 2].map(|index| memory(index).boxed())).boxed(),
            &parts_of,
        ),
        ("nested", AllInTurn::of_parts([memory(0).boxed(), nested.boxed()]).boxed(), &nest),
    ];
    let mut wrong = Vec::new();
    for (front, limiter, charge) in fronts {
        let named = Description::new().names(NAMES.map(|name| format!("per-{name}")));
        let limiter = limiter.describe(named).boxed();
        for bits in 1..8 {
            let present = (0..3).filter(|index| bits >> index & 1 == 1);
            let expected: Vec<_> =
                present.map(|index| (format!("per-{}", NAMES[index]), LIMITS[index])).collect();
            let found = fields(limiter.clone(), &charge(bits)).await;
            if found != expected {
                wrong.push(format!("{front}, parts {bits:03b}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A member of several quotas counts as so many policies, once it has answered.
// Case 158.
#[tokio::test(start_paused = true)]
async fn names_follow_a_member_of_several_quotas() {
    let pair = (TokenBucket::new(quota(5)), FixedWindow::new(quota(7)));
    let both = AllInTurn::of_parts([
        Memory::new("pair", pair).boxed(),
        Memory::new("login", TokenBucket::new(quota(9))).boxed(),
    ]);
    let limiter = both.describe(Description::new().names(["burst", "daily", "login"])).boxed();
    let all = Charge::new(("alice", ADDRESS));
    let named = |name: &str, limit| (name.to_owned(), limit);
    let expected = [named("burst", 5), named("daily", 7), named("login", 9)];
    assert_eq!(fields(limiter.clone(), &all).await, expected);
    let login = Charge::several([None, Some(Charge::new(ADDRESS))]);
    assert_eq!(fields(limiter, &login).await, expected[2..]);
}

/// Whole and part cost what was said, are settled, reset and charged twice, as with all parts.
// Case 158.
#[tokio::test]
async fn two_of_three_parts_are_settled_as_all_are() {
    let (_server, pool) = Server::pooled();
    let all = AllAtOnce::of_parts(three(&pool));
    let (user, _, login) = three(&pool);
    let taken = async || {
        let user = user.peek(NAMES[0]).await.unwrap().remaining().unwrap();
        let login = login.peek(NAMES[2]).await.unwrap().remaining().unwrap();
        [LIMITS[0] - user, LIMITS[2] - login]
    };
    let becomes = async |expected: [u64; 2]| {
        support::faults::eventually("the settlement", async || taken().await == expected).await;
    };
    let two = || parts_of(0b101);
    let unstated = two().cost(3);
    let [user_part, _, login_part] = [0, 1, 2].map(|index| Charge::new(NAMES[index]).cost(4));
    let stated = Charge::several([Some(user_part), None, Some(login_part)]).cost(3);

    let mut decision = all.check(&unstated).await.unwrap();
    assert_eq!(decision.reservation().unwrap().cost(), 3);
    all.settle(decision.take_reservation().unwrap(), 5).unwrap();
    becomes([5, 5]).await;
    let mut decision = all.check(&unstated).await.unwrap();
    all.settle(decision.take_reservation().unwrap(), 0).unwrap();
    becomes([5, 5]).await;
    // Stated costs stay, unless all is refunded.
    let mut decision = all.check(&stated).await.unwrap();
    all.settle(decision.take_reservation().unwrap(), 5).unwrap();
    becomes([9, 9]).await;
    let mut decision = all.check(&stated).await.unwrap();
    let settled =
        all.settle(decision.take_reservation().unwrap(), 0).expect("its own").await.unwrap();
    assert_eq!((settled.given_back, taken().await), (4, [9, 9]));
    all.penalize(two()).await.unwrap();
    becomes([10, 10]).await;
    all.reset(two()).await.unwrap();
    becomes([0, 0]).await;
    // A refusal names who refuses, and takes nothing of the others.
    let refused = all.check(&two().cost(1_001)).await.unwrap();
    assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("user")));
    assert_eq!(taken().await, [0, 0]);
    // A part brings its plan.
    let plan = Charge::several([None, Some(Charge::new("a").quota(quota(2))), Some("b".into())]);
    let refused = all.check(&plan.cost(3)).await.unwrap();
    assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("address")));
    // What one limiter took, another one hands back.
    let other = AllAtOnce::of_parts(three(&pool));
    let taken = all.check(&two()).await.unwrap().take_reservation().unwrap();
    let taken = other.settle(taken, 0).unwrap_err();
    assert!(all.settle(taken, 0).is_ok());
}

/// A quota of the whole charge that no member is given, whichever way members are asked.
// Case 159.
#[tokio::test]
async fn a_quota_that_no_member_is_given_is_an_error() {
    let (_server, pool) = Server::pooled();
    let cluster = pool.clone().by_hash_slot();
    let own = |charge: &Charge| [Charge::new(charge.key().to_owned()), Charge::new("all")];
    let passed = |charge: &Charge| [charge.clone(), Charge::new("all")];
    let [taken, address_limit] = [0, 1].map(|_| Memory::new("user", TokenBucket::new(quota(10))));
    let in_memory = [taken.clone().boxed(), address_limit.boxed()];
    let one_way = |keys: fn(&Charge) -> [Charge; 2]| {
        [
            ("one call", AllAtOnce::new((user(&pool), address(&pool)), keys).boxed()),
            ("in turn", AllAtOnce::new((user(&cluster), address(&cluster)), keys).boxed()),
            ("AllInTurn", AllInTurn::new(in_memory.clone(), keys).boxed()),
        ]
    };
    let mut wrong = Vec::new();
    for (name, limiter) in one_way(own) {
        let one = Charge::new("alice").quota(quota(3));
        let two = Charge::new("alice").quota((quota(3), quota(3)));
        for (quotas, charge) in [("one", one), ("two", two)] {
            for operation in [None, Some(Operation::Penalize), Some(Operation::Estimate)] {
                let answer = match operation {
                    None => limiter.check(&charge).await,
                    Some(operation) => limiter.operate(operation, &charge).unwrap().await,
                };
                let kind = answer.as_ref().err().map(tower_sluice::Error::kind);
                if kind != Some(ErrorKind::Configuration) {
                    wrong.push(format!("{name}, {quotas}, {operation:?}: {answer:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(taken.is_empty());
    // A clone of the charge gives it to its member.
    for (name, limiter) in one_way(passed) {
        let charge = Charge::new("alice").quota(quota(3)).cost(4);
        let refused = limiter.check(&charge).await.unwrap();
        assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("user")), "{name}");
        let two = Charge::new("alice").quota((quota(3), quota(3)));
        let error = limiter.check(&two).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{name}");
    }
}

/// A plan may state how many jobs run at once, beside a limit of another kind.
#[tokio::test]
async fn a_part_states_a_quota_at_once() {
    let (_server, pool) = Server::pooled();
    let cluster = pool.clone().by_hash_slot();
    let jobs = |pool: &Pool| {
        let jobs = Concurrency::new(1).max_hold(HOUR);
        Redis::new("jobs", jobs, pool.clone()).decision_timeout(PATIENT)
    };
    let in_memory = [
        Memory::new("user", TokenBucket::new(quota(1_000))).boxed(),
        Memory::new("jobs", Concurrency::new(1)).boxed(),
    ];
    let fronts = [
        ("one call", AllAtOnce::of_parts((user(&pool), jobs(&pool))).boxed()),
        ("in turn", AllAtOnce::of_parts((user(&cluster), jobs(&cluster))).boxed()),
        ("AllInTurn", AllInTurn::of_parts(in_memory).boxed()),
    ];
    for (name, limiter) in fronts {
        for cost in [1, 3] {
            // Of its own key, since what runs is held.
            let plan = || Charge::new(format!("{name} {cost}")).quota(Quota::at_once(2));
            let part = || Charge::new((Charge::new("alice").cost(cost), plan()));
            for _ in 0..2 {
                let admitted = limiter.check(&part()).await;
                assert!(admitted.is_ok_and(|one| one.is_admitted()), "{name}, {cost}");
            }
            let refused = limiter.check(&part()).await.unwrap();
            assert_eq!(refused.limiter(), Some("jobs"), "{name}, {cost}");
            // Only a limit at once has such a quota.
            let wrong = Charge::new("alice").quota(Quota::at_once(2));
            let error = limiter.check(&Charge::new((wrong, "idle"))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration, "{name}, {cost}");
        }
    }
}

/// One script has room for eight of any algorithms, or for fewer: then they are asked in turn.
#[tokio::test]
async fn eight_of_any_algorithms_decide_with_equal_and_with_different_costs() {
    let (_server, pool) = Server::pooled();
    let second = Duration::from_secs(1);
    let all: [AnyAlgorithm; 8] = [
        TokenBucket::new(quota(100)).into(),
        Budget::new(quota(100)).into(),
        FixedWindow::new(quota(100)).into(),
        SlidingLog::new(quota(100)).into(),
        SlidingWindow::new(quota(100)).into(),
        SlidingCounter::new(quota(100)).into(),
        SmoothBursty::new(quota(100)).max_burst(300 * HOUR).into(),
        SmoothWarmingUp::new(quota(100), second).into(),
    ];
    let mut dice = fastrand::Rng::with_seed(5);
    for round in 0..60 {
        let mut any = |place: usize| {
            // Eight of each, then any.
            let one = all.get(round).unwrap_or_else(|| &all[dice.usize(..8)]);
            let one = *one;
            Redis::new(format!("{round} {place}"), one, pool.clone()).decision_timeout(PATIENT)
        };
        let members = (any(0), any(1), any(2), any(3), any(4), any(5), any(6), any(7));
        let names = format!("{members:?}");
        let limiter = AllAtOnce::new(members, |charge| {
            std::array::from_fn(|place| match charge.key() {
                "alike" => charge.clone(),
                _ => charge.clone().cost(1 + place as u64 % 2),
            })
        });
        for key in ["alike", "different"] {
            let mut checked = limiter.check(&Charge::new(key)).await.expect(&names);
            assert!(checked.is_admitted(), "{names}");
            let reservation = checked.take_reservation().expect("units");
            limiter.refund(reservation).expect("its own").await.expect(&names);
            assert!(limiter.reset(Charge::new(key)).await.expect(&names).is_admitted());
        }
    }
}
