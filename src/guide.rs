//! The guide: a page for each subject, with recipes, and help for users of other rate limiters.
//!
//! [Start](start) takes five minutes. [`recipes`] lists all recipes. The directory `docs/guide` of
//! the repository has the same pages as a book.

// A page links to other pages by references, such as `[keys]`. The first definition of a reference
// counts: in rustdoc that of `links-rustdoc.txt`, in the repository the page's own. Without a
// feature some pages are missing, and their links lead to docs.rs.
macro_rules! page {
    ($name:ident, $file:literal $(, $picture:literal)? $(; $($inside:item)*)?) => {
        #[cfg_attr(
            all(
                feature = "axum",
                feature = "metrics",
                feature = "policies",
                feature = "redisson",
                feature = "rustls"
            ),
            doc = include_str!("../docs/guide/links-rustdoc.txt")
        )]
        #[doc = include_str!("../docs/guide/links-docs-rs.txt")]
        // In rustdoc, the address of a picture is a data URL.
        $(#[doc = include_str!($picture)])?
        #[doc = ""]
        #[doc = include_str!(concat!("../docs/guide/", $file))]
        pub mod $name {
            $($($inside)*)?
        }
    };
}

#[cfg(all(feature = "axum", feature = "metrics", feature = "redis"))]
page!(start, "start.md");
page!(choosing_an_algorithm, "choosing-an-algorithm.md", "../docs/compare.url");
page!(wait_or_refuse, "wait-or-refuse.md");
page!(keys_and_client_addresses, "keys-and-client-addresses.md");
page!(what_callers_see, "what-callers-see.md");
page!(recipes, "recipes.md");
#[cfg(feature = "redis")]
page!(several_limits, "several-limits.md");
page!(tiers, "tiers.md");
#[cfg(feature = "policies")]
page!(policies, "policies.md");
page!(costs_and_budgets, "costs-and-budgets.md");
page!(token_budgets, "token-budgets.md");
page!(bandwidth, "bandwidth.md");
page!(login_protection, "login-protection.md");
#[cfg(feature = "redis")]
page!(clients_of_suppliers, "clients-of-suppliers.md");
page!(clients_that_retry, "clients-that-retry.md");
page!(grpc, "grpc.md");
page!(tests_of_your_application, "tests-of-your-application.md");
page!(a_store_of_your_own, "a-store-of-your-own.md");
#[cfg(feature = "rustls")]
page!(redis_in_production, "redis-in-production.md");
#[cfg(feature = "redis")]
page!(redis_cluster, "redis-cluster.md");
#[cfg(feature = "redis")]
page!(behind_a_proxy, "behind-a-proxy.md");
#[cfg(feature = "redis")]
page!(when_redis_fails, "when-redis-fails.md");
#[cfg(feature = "metrics")]
page!(metrics_and_alerts, "metrics-and-alerts.md");
#[cfg(feature = "redis")]
page!(capacity, "capacity.md", "../docs/growth.url");
page!(what_the_bound_means, "what-the-bound-means.md");
#[cfg(feature = "redis")]
page!(tuning, "tuning.md");
page!(gateway, "gateway.md");
page!(envoy, "envoy.md");
page!(common_pitfalls, "common-pitfalls.md");
page!(questions, "questions.md");
page! { coming_from, "coming-from/index.md", "../docs/peers.url";
    #[cfg(feature = "axum")]
    page!(tower_governor, "coming-from/tower-governor.md");
    #[cfg(feature = "axum")]
    page!(axum_governor, "coming-from/axum-governor.md");
    #[cfg(feature = "redis")]
    page!(tower_redis_cell, "coming-from/tower-redis-cell.md");
    #[cfg(all(feature = "axum", feature = "redis"))]
    page!(tower_rate_limiter, "coming-from/tower-rate-limiter.md");
    #[cfg(feature = "redisson")]
    page!(redisson, "coming-from/redisson.md");
    page!(guava, "coming-from/guava.md");
    page!(bucket4j, "coming-from/bucket4j.md");
    #[cfg(feature = "redis")]
    page!(rate_limiter_flexible, "coming-from/rate-limiter-flexible.md");
    #[cfg(all(feature = "axum", feature = "redis"))]
    page!(express_rate_limit, "coming-from/express-rate-limit.md");
    #[cfg(feature = "redis")]
    page!(redis_rate, "coming-from/redis-rate.md");
    page!(envoyproxy_ratelimit, "coming-from/envoyproxy-ratelimit.md");
}

// Not part of the guide, but linked from it.
page!(security, "../../SECURITY.md");
page!(how_it_is_tested, "../how-it-is-tested.md");
