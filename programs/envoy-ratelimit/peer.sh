#!/usr/bin/env bash
# envoyproxy/ratelimit beside this service: 5,000 random calls to both, each difference computed.
#
#   PEER=path             the built peer; default: built by Go under target/envoy-peer
#   PEER_SOURCE=folder    a checkout of the peer to build; default: its module from Go's proxy
#   CALLS=5000 SEED=1     how many calls, and which
set -euo pipefail
cd "$(dirname "$0")/../.."
version=f2fb15770f7fd1c88ca6c3a1b58ee513917ace96
root=${CARGO_TARGET_DIR:-$PWD/target}/envoy-peer
PEER=${PEER:-$root/ratelimit}
if [ ! -x "$PEER" ]; then
  command -v go >/dev/null || { echo "peer.sh: Go is needed" >&2; exit 1; }
  mkdir -p "$root"
  if [ -n "${PEER_SOURCE:-}" ]; then
    (cd "$PEER_SOURCE" && go build -o "$root/ratelimit" ./src/service_cmd)
  else
    GOBIN=$root go install "github.com/envoyproxy/ratelimit/src/service_cmd@$version"
    mv "$root/service_cmd" "$root/ratelimit"
  fi
fi
export PEER
[ "${1:-}" != build ] || { echo "$PEER"; exit 0; }
cargo test --quiet -p envoy-ratelimit --test peer -- --ignored --nocapture
