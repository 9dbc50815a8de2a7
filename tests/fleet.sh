#!/usr/bin/env bash
# What takes longer than a minute: real processes against real fleets of servers that die, move
# their keys and lose connections.
#
#   tests/fleet.sh                 on Redis 7.0 and Valkey 8.0, which tests/servers.sh finds
#   tests/fleet.sh NAME...         on these servers
#
# FLEET_SECONDS and FLEET_CHARGES set the sizes (60 and 1,000,000); sentinels need 45 s. FLEET_ONLY
# picks the cases whose names contain it: cluster, sentinel, memory, soak. Each case prints a
# line: fleet name=... server=... over=... errors=... An hour of faults is
# `FLEET_SECONDS=3600 FLEET_ONLY=soak tests/fleet.sh redis-7.0`, with a line for each minute.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- redis-7.0 valkey-8.0
outcome=0
for name in "$@"; do
  found=$(tests/servers.sh "$name")
  export REDIS_SERVER=${found#* } FLEET_SERVER=${found%% *}
  cargo test -p tests --release --quiet --test fleet ${FLEET_ONLY:-} -- --nocapture --test-threads 1 || outcome=1
done
exit $outcome
