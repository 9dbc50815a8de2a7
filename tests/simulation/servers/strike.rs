//! A disturbance as plain data, so that a plan can list, print and shrink it.

use std::time::Duration;

use fastrand::Rng;

use super::Topology;

/// Something that happens to one server, or to several.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    pub kind: StrikeKind,
    /// The number of the server or slot, modulo how many there are.
    pub place: u32,
    /// The time that it lasts, or by which a clock steps.
    pub lasting: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StrikeKind {
    CrashKeepingData,
    CrashLosingData,
    /// A process that is stopped: it accepts connections, and answers later.
    Stand,
    ScriptFlush,
    /// A restart that keeps the data and takes long to read it.
    Loading,
    OutOfMemory,
    /// All connections are cut, and new ones refused.
    Refuse,
    /// Nothing arrives or leaves, and neither side has a sign of it.
    Silence,
    /// All connections are cut, and the host's name leads nowhere.
    NameFails,
    /// All connections are cut, and what opens new ones for the client panics.
    DialerPanics,
    /// All connections are cut, and another password holds for new ones.
    Login,
    /// A primary refuses writes, as a replica does.
    ReadOnly,
    ClockStepForward,
    ClockStepBack,
    ClockDrift,

    /// The primary dies or stands, and a replica that may lag takes its place. What it lacks is
    /// lost. The old primary becomes its replica.
    Failover,
    /// A replica that lacks nothing takes the place of the primary, which becomes a replica.
    ManualFailover,
    /// The old primary serves those who are connected to it for a while after the switch. Its
    /// writes are lost.
    SplitBrain,
    SentinelCrash,
    /// One sentinel names another server.
    SentinelStale,

    /// Slots migrate from one master to another, key by key. Other nodes learn of it later.
    MoveSlots,
    /// The same, at once.
    TakeSlots,
    /// Nodes refuse every request for a key.
    ClusterDown,
    /// A master dies or stands, and its replica takes its slots. What that lacks is lost.
    NodeFailover,
    /// One node answers CLUSTER SLOTS from an older view.
    SlotMapStale,
}

use StrikeKind::*;

/// The strikes that may happen in each topology.
pub const ANYWHERE: &[StrikeKind] = &[
    CrashKeepingData,
    CrashLosingData,
    Stand,
    ScriptFlush,
    Loading,
    OutOfMemory,
    Refuse,
    Silence,
    NameFails,
    Login,
    ClockStepForward,
    ClockStepBack,
    ClockDrift,
];

/// The strikes that may happen in one topology alone.
fn kinds_of(topology: &Topology) -> &'static [StrikeKind] {
    match topology {
        Topology::One => &[ReadOnly],
        Topology::Sentinels { replicas: 0, .. } => &[ReadOnly, SentinelCrash],
        Topology::Sentinels { .. } => {
            &[ReadOnly, Failover, ManualFailover, SplitBrain, SentinelCrash, SentinelStale]
        }
        Topology::Cluster { masters: 0 | 1, replicas: 0 } => &[ClusterDown],
        Topology::Cluster { replicas: 0, .. } => &[MoveSlots, TakeSlots, ClusterDown, SlotMapStale],
        Topology::Cluster { masters: 0 | 1, .. } => &[ClusterDown, NodeFailover],
        Topology::Cluster { .. } => {
            &[MoveSlots, TakeSlots, ClusterDown, NodeFailover, SlotMapStale]
        }
    }
}

impl Strike {
    /// True if the master of a failover in a cluster dies. Otherwise it stands.
    pub fn dies(&self) -> bool {
        (self.place / 16).is_multiple_of(2)
    }

    /// Any that may happen in a topology. Half of them are those of the topology alone.
    pub fn draw(dice: &mut Rng, topology: &Topology) -> Self {
        let own = kinds_of(topology);
        let is_own = *topology != Topology::One && dice.bool();
        let all: Vec<_> = if is_own { own.to_vec() } else { [ANYWHERE, own].concat() };
        let kind = all[dice.usize(..all.len())];
        Self { kind, place: dice.u32(..), lasting: Duration::from_millis(dice.u64(1..1_000)) }
    }
}
