//! The algorithm and the quota of each limiter, from the command line or from a policy file.

use std::fs;

use tower_sluice::algorithm::AnyAlgorithm;
use tower_sluice::redis::StoredKey;
use tower_sluice::{Charge, Pool, Redis};
use tower_sluice_policies::serde_json::Value;
use tower_sluice_policies::{Policies, PolicyHandle, Row, Rows, TableError};

use clap::ValueEnum;

use crate::options::{Name, Named, RuleOptions, Start};
use crate::rights::Stop;

/// The name of the row that the command line makes.
const ROW: &str = "limit";

pub(crate) struct Rules {
    known: Vec<(String, AnyAlgorithm)>,
    /// The policies of a file, which know how their keys are made.
    policies: Option<Policies>,
}

impl Rules {
    /// The rules that the options state, for `limiter` if they are those of one.
    pub(crate) fn of(
        pool: &Pool,
        options: &RuleOptions,
        limiter: Option<&str>,
    ) -> Result<Self, Stop> {
        let (rows, name) = match (&options.policies, options.algorithm) {
            (Some(path), _) => {
                let wrong = |why: String| Stop::Config(format!("{}: {why}", path.display()));
                let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                (toml::from_str(&text).map_err(|error| wrong(error.to_string()))?, None)
            }
            (None, Some(algorithm)) => {
                let name = limiter.ok_or_else(|| {
                    Stop::Asked(String::from("--algorithm is for one limiter: write its name"))
                })?;
                (Rows::from_iter([options.row(algorithm)]), Some(name))
            }
            (None, None) => return Ok(Self { known: Vec::new(), policies: None }),
        };
        let table = Policies::builder().redis(pool.clone()).reads_bodies().build(&rows);
        let policies = table.map_err(|error| match &options.policies {
            Some(path) => Stop::Config(format!("{}: {error}", path.display())),
            None => Stop::Asked(told(&error)),
        })?;
        let handles = policies.policies();
        let known = handles.iter().filter_map(|handle| {
            let own = handle.policy();
            Some((name.unwrap_or(own.name()).to_owned(), own.chosen_algorithm()?))
        });
        let known = known.collect();
        Ok(Self { known, policies: name.is_none().then_some(policies) })
    }

    pub(crate) fn knows(&self, limiter: &str) -> bool {
        self.known.iter().any(|(name, _)| name == limiter)
    }

    /// Returns the algorithm of a limiter.
    pub(crate) fn algorithm(&self, limiter: &str) -> Result<AnyAlgorithm, Stop> {
        let known = self.known.iter().find(|(name, _)| name == limiter);
        known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
            Stop::Asked(match &self.policies {
                Some(_) => format!("the file has no policy {limiter:?} over keys of the crate"),
                None => String::from(
                    "a state needs its rule: write --algorithm, --limit and --period or --calendar, or --policies",
                ),
            })
        })
    }

    fn handle(&self, limiter: &str) -> Option<PolicyHandle> {
        self.policies.as_ref().and_then(|policies| policies.get(limiter))
    }

    /// Returns a limiter, and the charge of a key under it.
    pub(crate) fn limiter(
        &self,
        pool: &Pool,
        named: &Named,
    ) -> Result<(Redis<AnyAlgorithm>, Charge), Stop> {
        let algorithm = self.algorithm(&named.limiter)?;
        let invalid = |error: &dyn std::fmt::Display| Stop::Asked(error.to_string());
        let limiter = Redis::try_new(named.limiter.as_str(), algorithm, pool.clone())
            .map_err(|error| invalid(&error))?;
        let limiter = match named.buckets {
            Some(number) => limiter.buckets(number),
            None => limiter,
        };
        let charge = match (self.handle(&named.limiter).filter(|_| !named.stored), &named.key[..]) {
            (Some(handle), parts) => handle.charge(parts).map_err(|error| invalid(&error))?,
            (None, [key]) if named.stored && key.starts_with("h:") => {
                return Err(Stop::Asked(String::from(
                    "a digest cannot be charged: write the key as the application does",
                )));
            }
            (None, [key]) => Charge::new(key.clone()),
            (None, _) => {
                return Err(Stop::Asked(String::from("only keys of --policies have parts")));
            }
        };
        Ok((limiter, charge))
    }

    /// Returns the key in Redis of the key that the command line names.
    pub(crate) fn stored_key(&self, pool: &Pool, named: &Named) -> Result<StoredKey, Stop> {
        let digest = named.key.first().filter(|key| named.stored && key.starts_with("h:"));
        let key = match digest {
            Some(digest) => {
                // The name of any other key, with the digest in its place.
                let algorithm = self.algorithm(&named.limiter)?;
                let limiter = Redis::try_new(named.limiter.as_str(), algorithm, pool.clone())
                    .map_err(|error| Stop::Asked(error.to_string()))?;
                let other = limiter.stored_keys("x").pop();
                let name = other.and_then(|key| key.name().strip_suffix("{x}").map(str::to_owned));
                name.and_then(|begin| StoredKey::parse(pool, &format!("{begin}{{{digest}}}")))
            }
            None => {
                let (limiter, charge) = self.limiter(pool, named)?;
                limiter.stored_keys(charge.key()).pop()
            }
        };
        key.ok_or_else(|| Stop::Asked(String::from("this key has no name in Redis")))
    }
}

impl RuleOptions {
    /// A row of policies with these settings, which are then checked as a row is.
    fn row(&self, algorithm: Name) -> Row {
        let name = algorithm.to_possible_value().expect("no name is skipped");
        // As in `replay`, a smooth limiter stores the permits of a second.
        let second = (algorithm == Name::SmoothBursty).then(|| String::from("1s"));
        let log = (algorithm == Name::SlidingLog).then_some(self.limit).flatten();
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let fields: [(&str, Option<Value>); 18] = [
            ("limit", self.limit.map(Value::from)),
            ("period", text(&self.period)),
            ("burst", self.burst.map(Value::from)),
            ("horizon", text(&self.horizon)),
            ("max_hold", text(&self.max_hold)),
            ("cells", self.cells.map(Value::from)),
            ("anchored", self.anchored.then_some(true.into())),
            ("calendar", text(&self.calendar)),
            ("time_zone", text(&self.time_zone)),
            ("week_begins", text(&self.week_begins)),
            ("month_begins", self.month_begins.map(Value::from)),
            ("warm_up", text(&self.warm_up)),
            ("cold_factor", self.cold_factor.map(Value::from)),
            ("max_burst", self.max_burst.clone().or(second).map(Value::from)),
            ("wait_for_own_cost", self.own_debt.then_some(true.into())),
            ("start_empty", (self.start == Some(Start::Empty)).then_some(true.into())),
            ("max_limit", log.map(Value::from)),
            ("key", Some("path".into())),
        ];
        let row = Row::new().with("name", ROW).with("algorithm", name.get_name());
        fields.into_iter().fold(row, |row, (field, value)| match value {
            Some(value) => row.with(field, value),
            None => row,
        })
    }
}

/// Returns the errors of a table, in terms of the options that made it.
fn told(error: &TableError) -> String {
    let told = error.rows().iter().map(|one| {
        let option = match one.field() {
            Some("wait_for_own_cost") => String::from("own-debt"),
            Some("start_empty") => String::from("start"),
            Some(field) => field.replace('_', "-"),
            None => return one.message().to_owned(),
        };
        format!("--{option}: {}", one.message())
    });
    told.collect::<Vec<_>>().join("; ")
}
