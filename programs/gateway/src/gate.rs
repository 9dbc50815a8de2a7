//! The limits: what decides about a request, and what operators see and change of it.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::ClientIp;
use tower_sluice::limiter::{Metered, MetricsExt, SwitchMode};
use tower_sluice::respond::{Hooks, InHandler, Later, OnAdmitted, ProblemJson, RateLimitHeaders};
use tower_sluice::{
    Charge, Decision, ErrorKind, HttpResponder, Limiter, Pool, Quota, RateLimitLayer, Redis,
};
use tower_sluice_policies::{Policies, PolicyHandle, Rows};

use crate::meters::{Meters, REQUESTS};
use crate::settings::Settings;
use serving::log::Log;
use serving::metrics::Metrics;

/// The time that a probe of the store may take.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The most live keys that each policy has in memory.
const MAX_KEYS: usize = 1_000_000;

/// Makes services that decide before their inner one is called.
pub(crate) type Limits = RateLimitLayer<
    Metered<Policies>,
    Policies,
    HttpResponder<ProblemJson>,
    Hooks<(), Later<InHandler>>,
>;

/// The table of policies. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    policies: Policies,
    meters: Meters,
    fields: RateLimitHeaders,
    /// `None`: in memory, which always decides.
    probe: Option<Redis<TokenBucket>>,
}

/// The action of an operator on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Show,
    Reset,
    Unblock,
    Penalize(u64),
}

/// The reason why an operator's request fails.
#[derive(Debug)]
pub(crate) enum AdminError {
    UnknownPolicy,
    Invalid(String),
    Undecided(String),
}

impl Gate {
    /// A gate without policies yet.
    pub(crate) fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, String> {
        let meters = Meters::new(metrics);
        let observed = meters.clone();
        let client_ip = ClientIp::new()
            .trusted_networks(settings.trusted.iter().copied())
            .header(settings.forwarded.clone());
        let mut builder = Policies::builder()
            .max_keys(MAX_KEYS)
            .client_ip(client_ip)
            .reads_bodies()
            .on_decision(move |event| observed.record(event))
            .on_unmatched(|path, requests| {
                static LOG: Log = Log::new();
                LOG.say(|| format!("no policy took {requests} requests, such as {path:?}"));
            });
        let mut probe = None;
        if let Some(url) = &settings.redis_url {
            let pool = Pool::connect(url).map_err(|error| format!("REDIS_URL: {error:#}"))?;
            let pool = pool.prefix(&*settings.redis_prefix);
            let quota = Quota::per_second(1_000_000);
            let limiter = Redis::new("gateway-health", TokenBucket::new(quota), pool.clone());
            probe = Some(limiter.decision_timeout(PROBE_TIMEOUT));
            builder = builder.redis(pool);
        }
        let policies = builder.build(&Rows::none()).map_err(|error| error.to_string())?;
        let fields = RateLimitHeaders::new(settings.headers).on_admitted(OnAdmitted::Always);
        Ok(Self { policies, meters, fields, probe })
    }

    /// Puts a table into force, or keeps the old one and says why.
    pub(crate) fn load(&self, text: &str) -> Result<(), String> {
        let rows: Rows = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        self.policies.load(&rows).map_err(|error| error.to_string())?;
        // They hold as much memory as the table.
        drop(rows);
        let policies = self.policies.policies();
        self.meters.keep(policies.iter().map(|one| one.policy().name()));
        Ok(())
    }

    /// The counters of what is decided.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The limits of all workers together.
    pub(crate) fn limits(&self) -> Limits {
        let respond = HttpResponder::new().headers(self.fields).problem_json();
        let policies = self.policies.clone();
        RateLimitLayer::new(policies.clone().metrics(REQUESTS), policies)
            .respond(respond)
            .settle_later(InHandler)
    }

    /// Asks the store whether it decides, and returns why not. A charge of its own, since a store
    /// that only reads decides nothing.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let answer = probe.check(&Charge::from_static("probe")).await;
        answer.map(drop).map_err(|error| format!("{error:#}"))
    }

    /// The policies, as `GET /policies` shows them: with the switch that holds, and with its own,
    /// which was set.
    pub(crate) fn policies(&self) -> Value {
        let shown = |handle: &PolicyHandle| {
            let mut row = serde_json::to_value(handle.policy()).unwrap_or_default();
            row["switch"] = json!(word(handle.mode()));
            row["set"] = json!(word(handle.switch().mode()));
            row
        };
        let policies: Vec<Value> = self.policies.policies().iter().map(shown).collect();
        let exempt = self.policies.exemptions();
        json!({
            "switch": self.switch_word(),
            "counts": self.counts(),
            "policies": policies,
            "exempt": exempt.iter().map(|row| json!(**row)).collect::<Value>(),
        })
    }

    /// The policies, as the page shows them: nothing that a caller does not see in header fields.
    pub(crate) fn summary(&self) -> Value {
        let shown = |handle: &PolicyHandle| {
            let (policy, quota) = (handle.policy(), handle.policy().quota());
            let row = serde_json::to_value(policy).unwrap_or_default();
            json!({
                "name": policy.name(),
                "algorithm": policy.algorithm(),
                "limit": quota.limit(),
                "period": match (row["calendar"].as_str(), quota.period()) {
                    (Some(calendar), _) => calendar.to_owned(),
                    (None, Duration::ZERO) => String::from("at once"),
                    (None, period) => humantime::format_duration(period).to_string(),
                },
                "on_error": policy.on_error(),
                "mode": word(handle.mode()),
            })
        };
        self.policies.policies().iter().map(shown).collect()
    }

    /// Returns the number of policies, and how many of them limit, decide in a shadow, and are off.
    pub(crate) fn counts(&self) -> Value {
        let modes: Vec<_> = self.policies.policies().iter().map(PolicyHandle::mode).collect();
        let count = |mode| modes.iter().filter(|one| **one == mode).count();
        json!({
            "policies": modes.len(),
            "on": count(SwitchMode::On),
            "shadow": count(SwitchMode::Shadow),
            "off": count(SwitchMode::Off),
        })
    }

    /// `on`, `off` or `shadow`: the switch of all policies.
    pub(crate) fn switch_word(&self) -> &'static str {
        word(self.policies.global_switch().mode())
    }

    /// Sets the switch of a policy, or of all. Returns what holds then: the most permissive of both
    /// switches and the row.
    pub(crate) fn switch(
        &self,
        policy: Option<&str>,
        mode: SwitchMode,
    ) -> Result<&'static str, AdminError> {
        let Some(name) = policy else {
            self.policies.global_switch().set(mode);
            return Ok(word(mode));
        };
        let policy = self.get(name)?;
        policy.switch().set(mode);
        Ok(word(policy.mode()))
    }

    /// Shows or changes a key, whose parts are written as a client sends them.
    pub(crate) async fn key(
        &self,
        policy: &str,
        plan: Option<String>,
        parts: &[String],
        action: KeyAction,
    ) -> Result<Value, AdminError> {
        let policy = self.get(policy)?;
        let policy = plan.into_iter().fold(policy, PolicyHandle::of_plan);
        let answer = match action {
            KeyAction::Show => policy.peek(parts).await,
            KeyAction::Reset => policy.reset(parts).await.map(|done| done.0),
            KeyAction::Unblock => policy.unblock(parts).await.map(|done| done.0),
            KeyAction::Penalize(units) => policy.penalize(parts, units).await.map(|done| done.0),
        };
        match answer {
            Ok(decision) => Ok(stands(&decision)),
            Err(error) if error.kind() == ErrorKind::Request => {
                Err(AdminError::Invalid(error.to_string()))
            }
            Err(error) => Err(AdminError::Undecided(format!("{error:#}"))),
        }
    }

    fn get(&self, name: &str) -> Result<PolicyHandle, AdminError> {
        self.policies.get(name).ok_or(AdminError::UnknownPolicy)
    }
}

/// Returns what is left of a key, and the time until all of it is back.
fn stands(decision: &Decision) -> Value {
    let reset_after = decision.reset_after().map(|time| time.as_secs_f64());
    json!({ "remaining": decision.remaining().unwrap_or(0), "reset_after": reset_after })
}

fn word(mode: SwitchMode) -> &'static str {
    match mode {
        SwitchMode::Off => "off",
        SwitchMode::Shadow => "shadow",
        _ => "on",
    }
}
