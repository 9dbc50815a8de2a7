#!/usr/bin/env bash
# Requests a second and processor time of this service and of envoyproxy/ratelimit, by the same
# client. For a quiet machine: it prints its load first. peer.sh says how the peer is built.
#
#   SECONDS_EACH=5        how long each of the nine measurements takes
set -euo pipefail
cd "$(dirname "$0")/../.."
PEER=$(programs/envoy-ratelimit/peer.sh build)
export PEER
cargo test --release --quiet --no-run -p envoy-ratelimit --test load
echo "cores=$(nproc) load=$(cut -d' ' -f1-3 /proc/loadavg)"
cargo test --release --quiet -p envoy-ratelimit --test load -- --ignored --nocapture
