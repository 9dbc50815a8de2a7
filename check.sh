#!/usr/bin/env bash
# The whole check: what must pass before a change lands. Installs redis-server when it is missing.
set -euo pipefail
cd "$(dirname "$0")"

begun=$SECONDS
say() {
  printf '\n== %s (after %d s)\n' "$*" $((SECONDS - begun))
}

need_redis() {
  if command -v redis-server >/dev/null; then return; fi
  say "installing redis-server"
  local root=""
  if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then root=sudo; fi
  if command -v apt-get >/dev/null; then
    $root apt-get update -q >/dev/null \
      && $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends redis-server >/dev/null \
      || true
  elif command -v brew >/dev/null; then
    brew install --quiet redis || true
  fi
  command -v redis-server >/dev/null || {
    echo "check.sh: redis-server is needed and could not be installed: get it from your system's packages" >&2
    exit 1
  }
}

say "about 4 minutes on 2 cores, and 9 if everything has to be built"
need_redis
# Nothing is debugged here, and builds are twice as fast without the symbols.
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
# A check is built once: what would speed up the next build only costs time.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# The crate, its tests and benches, and its small examples. The others have a check of their own.
packages="--workspace --exclude envoy-ratelimit --exclude gateway --exclude serving"

say "formatting"
cargo fmt --all --check
say "lints, all features"
cargo clippy --quiet $packages --all-features --all-targets -- -D warnings
say "lints, no features"
cargo clippy --quiet -p tower-sluice -p tests --no-default-features --all-targets -- -D warnings
# What their tests use would turn features on.
cargo clippy --quiet -p redis-once -p tower-sluice-policies --no-default-features -- -D warnings
say "tests, all features"
tests/run.sh --all-features
# The blocks of the guide are those of `tests`, which has what they need.
cargo test --quiet $packages --exclude tower-sluice-guide --all-features --doc
# Without Redis there are no processes and stores to test: the units, the tests of the layer and of
# the memory, and the examples in the documentation are enough.
say "tests, no features"
cargo test --quiet -p tower-sluice -p tests --no-default-features --lib --test layer --test limiters
cargo test --quiet -p tower-sluice --no-default-features --doc
cargo test --quiet -p redis-once -p tower-sluice-policies --no-default-features --lib
say "programs that must not compile"
tests/ui.sh
say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet -p tower-sluice -p redis-once -p tower-sluice-policies -p tower-sluice-redisson -p tower-sluice-guide --all-features --no-deps
RUSTDOCFLAGS="-D warnings" cargo doc --quiet -p tower-sluice --no-default-features --no-deps
say "all is well"
