//! Limits as rows of a table, from a file, a database or any other source. The table can be
//! exchanged while requests run.
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
//! | `burst` | the most units at once; windows have none | the limit |
//! | `max_wait` | the longest wait that is reserved for a request | 0: none is delayed |
//! | `cache_ratio` | `max_wait` as a ratio, of the time in which an empty store fills | |
//! | `horizon` | the longest wait that is reserved for any request | 60 s, or `max_wait` |
//! | `key` | `client_ip`, `header:NAME`, `path`, `host`, `global`; or a list of them | `global` |
//! | `match` | see [below](#which-requests-a-policy-takes) | every request |
//! | `cost` | units of a request; or `content_length_kb`, the size of its body | 1 |
//! | `on_error` | `deny`, `allow`, or `{ local = n }`: limits in this process | `deny` |
//! | `enabled` | `false`: this policy takes nothing, and the others still hold | `true` |
//! | `shadow` | `true`: it decides and takes, and neither refuses nor delays | `false` |
//!
//! `on_error` says what happens to a request that Redis cannot decide:
//!
//! | `on_error` | Redis is away | Redis is full, or its password changed | a foreign value |
//! |---|---|---|---|
//! | `"deny"` | 503 | 503 | 503 |
//! | `"allow"` | it passes | 503 | 503 |
//! | `{ local = n }` | n units per period and key in this process | the same | 503 |
//!
//! `content_length_kb` reads the header field `content-length`: the cost is the body in units of
//! 1,024 bytes, at least 1. A body without the field, such as a chunked body, costs 1 however long
//! it is. Where that matters, refuse such bodies in a layer outside of the limit.
//!
//! A request without the header field of its key has no key, and gets 400. With that field in
//! `match`, the policy takes only requests that have it.
//!
//! An unknown field is an error. So is a second row of the same name.
//!
//! # Algorithms
//!
//! | algorithm | its own settings | default |
//! |---|---|---|
//! | `token_bucket` | | |
//! | `budget` | `max_hold`: the longest time of a request with its wait | 60 s, or `max_wait` |
//! | `fixed_window` | `anchored`: a window begins with its first request | `false` |
//! | `sliding_log` | `max_limit`: the largest limit that it may have | 10,000 |
//! | `sliding_window` | `cells`, 1 to 60 | 10 |
//! | `sliding_counter` | | |
//! | `smooth_bursty` | `burst`, or `max_burst` as the time in which it comes | the limit |
//! | | `wait_for_own_cost`: a request waits for its own units, not for those before it | `false` |
//! | | `start_empty`: a new key has nothing stored | `false` |
//! | `smooth_warming_up` | `warm_up` | the period |
//! | | `cold_factor`, 1 to 1,000 | 3 |
//! | | `wait_for_own_cost` | `false` |
//! | `redisson` | `rate_type`: `overall` or `per_client` | `overall` |
//! | | `keep_alive`: deletes a limiter that was not used for this time | never |
//!
//! Each is the one of the same name in [`algorithm`](crate::algorithm). A row of `smooth_bursty`
//! stores the limit unless set otherwise, but
//! [`SmoothBursty`](crate::algorithm::SmoothBursty) itself stores a second.
//!
//! `redisson` is Java's limiter on its own keys, and needs the feature `redisson`. The limiter's
//! name is that of the policy where the key is `global`, else `NAME:KEY`. A name that has a rate
//! already keeps it.
//!
//! # Which requests a policy takes
//!
//! | in `match` | takes |
//! |---|---|
//! | `path` | paths of this pattern: `/users/{id}`, `/api/{*rest}`; or of any pattern in a list |
//! | `method` | this method, or one of a list, in either case: those that IANA lists, and `PURGE` |
//! | `header` | requests with this header; `{ x-plan = "gold" }` with this value |
//! | `name` | requests that the program gives this name: see [`Policies::named`] |
//! | `ignore_case` | with `true`, also paths in other letters: `/API` for `/api` |
//!
//! If several are stated, all must hold.
//!
//! - `match = "/login"` is short for `{ path = "/login" }`, and `match = ["/login", "/logout"]` for
//!   a list of paths.
//! - `GET` does not take `HEAD` requests, which many servers answer like a `GET`: list both.
//! - A method of your own is an error: give its requests a `name`.
//! - Write no secret as the value of a header: a serialized policy shows it.
//!
//! A placeholder is `{id}` for a segment, or `{*rest}` for all that follows. `*`, `:id` and `<id>`
//! of other routers are errors. Such a character itself is percent-encoded: `%2A` for `*`, `%3A`
//! for a `:` at the beginning of a segment.
//!
//! `{*rest}` is never empty: `/api/{*rest}` does not take `/api` and `/api/`. For all of them write
//! `path = ["/api", "/api/{*rest}"]`; for every path leave `path` out.
//!
//! **Spellings.** Servers read some paths in different ways. A policy takes a request if any of
//! these readings is a path of the policy:
//!
//! - percent-encoded once or twice, with `%2F` or a backslash in place of a slash;
//! - with empty segments, with `.` and `..`, with a slash at its end or without;
//! - with parameters as in `/api;a=b`, with `%3F` or a blank after it;
//! - behind a host, as in `//x/api`.
//!
//! [`PoliciesBuilder::refuse_ambiguous_paths`] refuses such a request instead. A path with more
//! than 64 readings, or a long one with several, gets 400 if a policy that is on has a `path`.
//!
//! **Pairs.** Two rows may have paths that differ only by the slash at the end, or by parameters.
//! Then each takes its own spelling: the row `/login` does not take `/login/` if there is a row
//! `/login/`. This holds for a row with `enabled = false` too: it leaves its spelling without a
//! limit. A row with `ignore_case` leaves nothing to a row without.
//!
//! **Exempt paths.** A row that is off exempts no path from other rows: under `/api/{*rest}`, a row
//! `/api/health` with `enabled = false` leaves `/api/health` limited. To exempt a path, list the
//! paths that are limited. Or use a key closure that returns
//! [`Keyed::Exempt`](crate::key::Keyed::Exempt) before it calls [`Policies::charge`].
//!
//! **Letters.** `/API` and `/api` are two paths. Express and ASP.NET treat both as one: set
//! `ignore_case`. Where a server knows still other names of a resource, match by `name` behind its
//! router.
//!
//! **Several policies.** A request that no policy takes passes. If several take it, all of them
//! decide, all or nothing: in one call if they are in one Redis. The request waits until it fits
//! all of them, if the policy with the longest wait allows that wait by its `max_wait`. Policies of
//! Redisson are asked on their own, and so are keys in different slots of a cluster.
//!
//! **Actual costs.** If a request costs more or less in the end, as [`actual_cost`] says, the units
//! of each policy change in proportion: seven times the charged cost is seven times the units of
//! each policy. A policy of Redisson takes no more than was charged, since its format has no debts.
//!
//! **Keys.** The values of headers are digested before they become keys. All spellings of a path
//! are one key: `/a`, `/a/`, `/a;v=1`, `/a%3Fx`. A host is a key in lower case, without
//! its port.
//!
//! With `key = "path"` a path such as `//host/a` has the key of `/host/a`. Node's `new URL` and
//! Python's `urlsplit` read `/a` instead. So a caller that invents hosts has a new limit for each.
//! Before such a server, set [`PoliciesBuilder::refuse_ambiguous_paths`].
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
//! A row limits `/NAME` and `/NAME/{*rest}` with one pace for all callers. Of ten calls at once at
//! rate 5 and cache 0.5, five pass, two wait 200 and 400 ms, and three are refused.
//!
//! # Other formats
//!
//! [`Rows`] is read by serde from TOML, JSON and YAML; `5.0` is the number 5 in each of them. A
//! table without any row is an error, unless `allow_empty = true` stands at its top: see [`Rows`].
//! [`Row::from_texts`] makes a row of texts, as a Redis hash has them. A [`Source`] yields rows
//! from anywhere else.
//!
//! [`actual_cost`]: crate::RateLimitLayer::actual_cost

mod checked_policy;
mod chosen_algorithm;
mod combinations;
mod decide_policies;
mod limited_policy;
mod path;
mod pattern;
mod policies;
mod policy_event;
mod policy_handle;
mod policy_key;
mod read_rows;
mod row;
mod row_fields;
mod table;

pub use checked_policy::{OnError, Policy};
pub use policies::{Named, Policies, PoliciesBuilder, Source};
pub use policy_event::Event;
pub use policy_handle::PolicyHandle;
pub use row::{Row, Rows};
pub use row_fields::{RowError, TableError};
