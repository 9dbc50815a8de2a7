//! Limits as rows of a table, from a file, a database or any other source. The table can be
//! replaced while requests run.
//!
//! [`Policies`] is the key extractor and the limiter of a layer. Each row of its table is a policy:
//!
//! ```toml
//! [[policy]]
//! name = "api"
//! algorithm = "token_bucket"
//! limit = 5
//! period = "1s"
//! burst = 5
//! max_wait = "500ms"
//! key = "header:x-api-key"
//! match = { path = ["/api", "/api/{*rest}"], method = ["GET", "POST"] }
//! cost = 1
//! on_error = "deny"
//! enabled = true
//! shadow = false
//! ```
//!
//! # Fields
//!
//! | field | value | default |
//! |---|---|---|
//! | `name` | 1 to 64 letters, digits and characters of `_.:-`, not `.` or `..`; unique | |
//! | `algorithm` | see [below](#algorithms) | `token_bucket` |
//! | `limit`, `period` | units, and a duration such as `500ms`, `1s`, `1h` | |
//! | `burst` | the most units at once; windows have no burst | the limit |
//! | `max_wait` | the longest wait that is reserved for a request | 0: no request waits |
//! | `cache_ratio` | `max_wait` as a share of the time in which an empty bucket fills: 0.5 is half of it | |
//! | `horizon` | the longest wait that is reserved for any request | 60 s, or `max_wait` |
//! | `key` | `client_ip`, `header:NAME`, `path`, `host`, `global`; or a list of them | `global` |
//! | `match` | see [below](#which-requests-a-policy-takes) | every request |
//! | `cost` | units of a request; or `content_length_kb`, the size of its body | 1 |
//! | `on_error` | `deny`, `allow`, or `{ local = n }`: limits in this process | `deny` |
//! | `enabled` | `false`: this policy takes no request; others still apply | `true` |
//! | `shadow` | `true`: it decides and takes units, but does not refuse or delay | `false` |
//!
//! `on_error` says what happens to a request that Redis cannot decide:
//!
//! | `on_error` | Redis is away | Redis is full, or its password changed | a foreign value |
//! |---|---|---|---|
//! | `"deny"` | 503 | 503 | 503 |
//! | `"allow"` | it passes | 503 | 503 |
//! | `{ local = n }` | n units per period and key in this process | the same | 503 |
//!
//! A request that costs more than n gets 503.
//!
//! `content_length_kb` reads the header field `content-length`: the cost is the body in units of
//! 1,024 bytes, at least 1. A body without the field, such as a chunked body, costs 1 at any
//! length. If that matters, refuse such bodies in a layer outside of the limit.
//!
//! A request without the header field of the policy's key gets 400. Add that field to `match`, and
//! the policy takes only requests that have the field.
//!
//! An unknown field is an error, and so is a second row with the same name.
//!
//! # Algorithms
//!
//! | algorithm | its own settings | default |
//! |---|---|---|
//! | `token_bucket` | `max_debt`: the longest time for which a key may owe units | 365 days |
//! | `budget` | `max_debt` | 365 days |
//! | | `max_hold`: the longest time of a request and its wait | 60 s, or `max_wait` |
//! | `fixed_window` | `anchored`: a window begins with its first request | `false` |
//! | `sliding_log` | `max_limit`: the largest limit that it may have | 10,000 |
//! | `sliding_window` | `cells`, 1 to 60 | 10 |
//! | `sliding_counter` | | |
//! | `smooth_bursty` | `burst`, or `max_burst` as the time in which that many come | the limit |
//! | | `wait_for_own_cost`: a request waits for its own units, not for earlier ones | `false` |
//! | | `start_empty`: a new key has nothing stored | `false` |
//! | | `max_debt` | 365 days |
//! | `smooth_warming_up` | `warm_up` | the period |
//! | | `cold_factor`, 1 to 1,000 | 3 |
//! | | `wait_for_own_cost` | `false` |
//! | | `max_debt` | 365 days |
//! | `redisson` | `rate_type`: `overall` or `per_client` | `overall` |
//! | | `keep_alive`: deletes a limiter that was not used for this time. Set it if callers choose the key: else each of their limiters stays in Redis | never |
//!
//! Each is the algorithm of the same name in [`algorithm`](crate::algorithm). By default a row of
//! `smooth_bursty` stores permits up to the limit, but
//! [`SmoothBursty`](crate::algorithm::SmoothBursty) itself stores the permits of one second.
//!
//! `redisson` is Java's limiter on its own keys, and needs the feature `redisson`. If the key is
//! `global`, the limiter's name is that of the policy; otherwise it is `NAME:KEY`. If a limiter of
//! that name already has a rate, it keeps that rate.
//!
//! # Which requests a policy takes
//!
//! | in `match` | takes |
//! |---|---|
//! | `path` | paths of this pattern: `/users/{id}`, `/api/{*rest}`; or of any pattern in a list |
//! | `method` | this method or one of a list, in any case: IANA's methods and `PURGE` |
//! | `header` | requests with this header; `{ x-plan = "gold" }` with this value |
//! | `name` | requests that the program gives this name: see [`Policies::named`] |
//! | `ignore_case` | with `true`, also paths in other case: `/API` for `/api` |
//!
//! If several are stated, all must hold.
//!
//! - `match = "/login"` is short for `{ path = "/login" }`, and `match = ["/login", "/logout"]` for
//!   a list of paths.
//! - `GET` does not take `HEAD` requests, which many servers answer like a `GET`: list both.
//! - A custom method is an error: give its requests a `name`.
//! - Do not write a secret as the value of a header: a serialized policy shows it.
//!
//! A placeholder is `{id}` for a segment, or `{*rest}` for all that follows. The placeholders `*`,
//! `:id` and `<id>` of other routers are errors. To write such a character itself, percent-encode
//! it: `%2A` for `*`, `%3A` for a `:` at the beginning of a segment.
//!
//! `{*rest}` is never empty: `/api/{*rest}` does not take `/api` and `/api/`. To take all of them,
//! write `path = ["/api", "/api/{*rest}"]`. To take every path, leave `path` out.
//!
//! # Paths
//!
//! A policy with a `path`, in its `match` or its `key`, refuses a path that servers read in several
//! ways with 400, unless the table allows it: `allow_in_paths = ["%2F", ";"]` at its top. Such parts
//! of a path are `//`, `..`, `%2F`, `%5C`, `;`, `%3F`, `%23`, `%25` before hex digits, `%20` at the
//! end, `%00` for control characters, and `%FF` for bytes that are not UTF-8. An allowed part stays
//! in the path as it was sent. The guide says how servers read each of them.
//!
//! All other spellings of a path are one path with one key: `/login`, `/login/`, `/%6cogin`.
//!
//! **Inside of a router.** axum's `nest` strips a prefix of the path. With the feature `axum`, a
//! policy also takes a request if the path that the caller sent is a path of the policy, and `key =
//! "path"` is the path that the caller sent. If the prefix has a parameter, as `/{tenant}`, the
//! caller chooses that part, and has a new limit for each value. The same is true if a layer inside
//! of an axum router rewrites paths. Take another key there, such as `client_ip`. Other routers
//! leave no trace of that path: put the layer outside of the routing and inside of rewrites.
//!
//! **Exempt paths.** A disabled row does not exempt its path from other rows. For example,
//! `/api/{*rest}` still limits `/api/health` if a row `/api/health` has `enabled = false`. To
//! exempt a path, list the paths that are limited. Or use a key closure that returns
//! [`Keyed::Exempt`](crate::key::Keyed::Exempt) before it calls [`Policies::charge`].
//!
//! **Letters.** `/API` and `/api` are two paths. Express and ASP.NET treat both as one path: set
//! `ignore_case` for them. If a server has other names for the same resource, match by `name`
//! behind its router.
//!
//! **Several policies.** A request that no policy takes passes. If several take it, all of them
//! decide, all or nothing. Up to eight policies in one Redis decide in one call. The request waits
//! until it fits all of them, if the policy with the longest wait allows that wait by its
//! `max_wait`. Policies of Redisson are asked in separate calls, and so are keys in different slots
//! of a cluster.
//!
//! Policies of Redisson decide first, before any peek. If another policy then refuses, they get
//! their permits back. The other separate calls are made in the order of the rows, and reserve
//! nothing. Before they take anything, all of them are peeked at, at the same time. A policy that
//! will refuse is then asked first.
//!
//! If a later policy still refuses, the request is refunded to the earlier ones, as far as
//! [their algorithms](crate::algorithm#what-an-algorithm-refunds) allow: a busy token bucket keeps
//! the units. So put policies whose keys are single callers before those that all share.
//!
//! If a request is refused, each policy in a shadow gives an estimate before the answer, so that
//! its switch counts it. That takes one call for each of them.
//!
//! **Actual costs.** If [`actual_cost`] changes the cost of a request in the end, the units of each
//! policy change in proportion. For example, seven times the charged cost is seven times the units
//! of each policy. A policy of Redisson takes at most what was charged, since its format has no
//! debts.
//!
//! **Keys.** The values of headers are hashed before they become keys. The key of a host is in
//! lower case, without the port.
//! A request that names several hosts, in its target and its `Host` fields, has no key. A row that
//! matches the header `host` takes requests of which one of these names is equal, at any port.
//!
//! # Interfaces of suppliers
//!
//! A second table limits the calls to interfaces of suppliers:
//!
//! ```toml
//! [[interface]]
//! name = "weather"
//! rate = 5        # calls per second, which is also what is stored
//! cache = 0.5     # the ratio of the store that may wait
//! status = 1      # 0: not limited
//! ```
//!
//! A row limits `/NAME` and `/NAME/{*rest}` at one pace for all callers. With rate 5 and cache 0.5,
//! of ten calls at the same time five pass, two wait 200 and 400 ms, and three are refused.
//!
//! # Other formats
//!
//! serde reads [`Rows`] from TOML, JSON and YAML; `5.0` is the number 5 in each of them. A table
//! without rows is an error, unless it has `allow_empty = true` at its top: see [`Rows`].
//! [`Row::from_texts`] makes a row from texts, such as those of a Redis hash. A [`Source`] returns
//! rows from anywhere else.
//!
//! [`actual_cost`]: crate::RateLimitLayer::actual_cost

mod checked_policy;
mod chosen_algorithm;
mod combinations;
mod decide_policies;
mod fields;
mod limited_policy;
mod path;
mod pattern;
mod policies;
mod policy_event;
mod policy_handle;
mod policy_key;
mod read_rows;
mod row;
mod table;
mod table_error;
mod values;

pub use checked_policy::{OnError, Policy};
pub use policies::{Named, Policies, PoliciesBuilder, Source};
pub use policy_event::Event;
pub use policy_handle::PolicyHandle;
pub use row::{Row, Rows};
pub use table_error::{RowError, TableError};
pub use values::parse_duration;
