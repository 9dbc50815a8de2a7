#!/usr/bin/env bash
# The tests of the gateway: the built program over real sockets, some of them with redis-server.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0} CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
cargo clippy --quiet -p serving -p gateway --all-targets -- -D warnings
cargo test --quiet -p serving
cargo test --quiet -p gateway "$@"
