//! The guide to [tower-sluice](https://docs.rs/tower-sluice): a page for each subject, with
//! recipes, and help for users of other rate limiters.
//!
//! [Start](start) takes five minutes. [`help`] lists all recipes. The directory `docs/guide` of
//! the repository has the same pages as a book.

// A page links to other pages by references, such as `[keys]`. The first definition of a reference
// counts: in rustdoc that of `links.txt`, in the repository the page's own.
macro_rules! page {
    ($name:ident, $file:literal $(, $picture:literal)?) => {
        #[doc = include_str!("links.txt")]
        // In rustdoc, the address of a picture is a data URL.
        $(#[doc = include_str!($picture)])?
        #[doc = ""]
        #[doc = include_str!($file)]
        pub mod $name {}
    };
}

page!(start, "start.md");
page!(choosing_an_algorithm, "choosing-an-algorithm.md", "compare.url");
page!(wait_or_refuse, "wait-or-refuse.md");
page!(keys_and_client_addresses, "keys-and-client-addresses.md");
page!(what_callers_see, "what-callers-see.md");
page!(help, "help.md");
page!(several_limits, "several-limits.md");
page!(tiers, "tiers.md");
page!(costs_and_budgets, "costs-and-budgets.md", "charge.url");
page!(tokens_and_bytes, "tokens-and-bytes.md");
page!(concurrency, "concurrency.md");
page!(login_protection, "login-protection.md");
page!(clients, "clients.md");
page!(grpc, "grpc.md");
page!(limiters_of_your_own, "limiters-of-your-own.md");
page!(redis_in_production, "redis-in-production.md");
page!(clusters_and_proxies, "clusters-and-proxies.md");
page!(when_redis_fails, "when-redis-fails.md", "away.url");
page!(metrics_and_alerts, "metrics-and-alerts.md");
page!(tuning, "tuning.md", "growth.url");
page!(coming_from, "coming-from.md", "peers.url");

// Not part of the guide, but linked from it. These files stand elsewhere in the repository.
page!(security, "security.md");
page!(how_it_is_tested, "how-it-is-tested.md");
