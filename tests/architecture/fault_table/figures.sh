#!/usr/bin/env bash
# Runs the tests, and keeps the figures that they print for docs/faults.md, which it writes anew.
# Names of tests choose some: figures of the others stay. Then figures.txt says what to commit.
#
#   tests/architecture/fault_table/figures.sh [TEST...]
set -euo pipefail
cd "$(dirname "$0")/../../.."

kept=tests/architecture/fault_table/figures.txt
new=$(mktemp)
trap 'rm "$new"' EXIT
if [ $# -gt 0 ]; then
  chosen=$(printf -- '--test %s ' "$@")
else
  chosen="--lib --tests"
fi
# shellcheck disable=SC2086
cargo test -p tower-sluice -p redis-once -p tower-sluice-redisson -p tower-sluice-policies -p tests --all-features --no-fail-fast $chosen -- --nocapture 2>&1 \
  | grep -a -o 'fault case=[0-9]* .*' >"$new" || true
# A case whose figures are new loses its old ones.
cases=$(sed -n 's/^fault case=\([0-9]*\) .*/\1/p' "$new" | sort -u | paste -sd'|')
[ -n "$cases" ] || { echo "figures.sh: no test printed a figure" >&2; exit 1; }
{ grep -v -E "^fault case=($cases) " "$kept" || true; cat "$new"; } \
  | sort -t= -k2,2n -s -o "$kept"
UPDATE=1 cargo test -p tests --quiet --all-features --test architecture
