//! The guide: a page for each subject, with recipes, and help for users of other rate limiters.
//!
//! [Start](start) takes five minutes. [`help`] lists all recipes. The directory `docs/guide` of
//! the repository has the same pages as a book.

// A page links to other pages by references, such as `[keys]`. The first definition of a reference
// counts: in rustdoc that of `links-rustdoc.txt`, in the repository the page's own. Without a
// feature some pages are missing, and their links lead to docs.rs.
macro_rules! page {
    ($name:ident, $file:literal $(, $picture:literal)?) => {
        #[cfg_attr(
            all(
                feature = "axum",
                feature = "metrics",
                feature = "rustls"
            ),
            doc = include_str!("../docs/guide/links-rustdoc.txt")
        )]
        #[doc = include_str!("../docs/guide/links-docs-rs.txt")]
        // In rustdoc, the address of a picture is a data URL.
        $(#[doc = include_str!($picture)])?
        #[doc = ""]
        #[doc = include_str!(concat!("../docs/guide/", $file))]
        pub mod $name {}
    };
}

#[cfg(all(feature = "axum", feature = "metrics", feature = "redis"))]
page!(start, "start.md");
page!(choosing_an_algorithm, "choosing-an-algorithm.md", "../docs/compare.url");
page!(wait_or_refuse, "wait-or-refuse.md");
page!(keys_and_client_addresses, "keys-and-client-addresses.md");
page!(what_callers_see, "what-callers-see.md");
page!(help, "help.md");
#[cfg(feature = "redis")]
page!(several_limits, "several-limits.md");
page!(tiers, "tiers.md");
page!(costs_and_budgets, "costs-and-budgets.md");
page!(tokens_and_bytes, "tokens-and-bytes.md");
page!(login_protection, "login-protection.md");
#[cfg(feature = "redis")]
page!(clients, "clients.md");
page!(grpc, "grpc.md");
page!(limiters_of_your_own, "limiters-of-your-own.md");
#[cfg(feature = "rustls")]
page!(redis_in_production, "redis-in-production.md");
#[cfg(feature = "redis")]
page!(clusters_and_proxies, "clusters-and-proxies.md");
#[cfg(feature = "redis")]
page!(when_redis_fails, "when-redis-fails.md");
#[cfg(feature = "metrics")]
page!(metrics_and_alerts, "metrics-and-alerts.md");
#[cfg(feature = "redis")]
page!(tuning, "tuning.md", "../docs/growth.url");
page!(coming_from, "coming-from.md", "../docs/peers.url");

// Not part of the guide, but linked from it.
page!(security, "../../SECURITY.md");
page!(how_it_is_tested, "../how-it-is-tested.md");
