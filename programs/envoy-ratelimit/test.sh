#!/usr/bin/env bash
# The tests of the rate limit service: the built program over real sockets, with redis-server, and
# behind a real Envoy, which envoy.sh fetches.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0} CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
ENVOY=$(programs/envoy-ratelimit/envoy.sh)
export ENVOY
cargo clippy --quiet -p serving -p envoy-ratelimit --all-targets -- -D warnings
cargo test --quiet -p serving
cargo test --quiet -p envoy-ratelimit "$@"
cargo test --quiet -p envoy-ratelimit --test envoy -- --ignored --test-threads 2
