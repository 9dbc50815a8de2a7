#!/usr/bin/env bash
# Runs the tests as `cargo test` does, but with several test binaries side by side: many of them
# wait more than they compute. Takes cargo's options, such as --all-features. TEST_JOBS sets how
# many run at once. Default: one more than there are cores.
#
# A binary that passes gets one line. One that fails gets its whole output, after all have ended.
# One that does not end within 15 minutes fails: a test that hangs says so, with its name.
set -euo pipefail
cd "$(dirname "$0")/.."

# Runs one binary, and keeps what it prints.
if [ "${1:-}" = one ]; then
  output=$2 binary=$3
  name=$(basename "$binary") begun=$SECONDS
  name=${name%-*}
  # It has a process group of its own, which Ctrl-C does not reach.
  timeout --kill-after=10 900 "$binary" >"$output/$name" 2>&1 &
  trap 'kill $!; exit 130' INT TERM
  if wait $!; then
    echo "ok $name, $((SECONDS - begun)) s: $(grep '^test result:' "$output/$name" || echo 'no tests')"
  else
    touch "$output/$name.failed"
    echo "FAILED $name, $((SECONDS - begun)) s"
  fi
  exit 0
fi

# Those that take longest begin first, so that none of them is left alone at the end.
first="algorithms oracle faults simulation busy_process pools redis redisson"

output=$(mktemp -d)
trap 'rm -r "$output"' EXIT
jobs=${TEST_JOBS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}

# Cargo names the path of each binary in a message of JSON.
# What has a check of its own is left out.
packages="--workspace --exclude envoy-ratelimit --exclude gateway --exclude serving"
# shellcheck disable=SC2086
cargo test $packages --no-run --message-format=json-render-diagnostics "$@" >"$output/messages"
binaries=$(grep '"profile":{[^}]*"test":true' "$output/messages" \
  | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[ -n "$binaries" ] || { echo "tests/run.sh: cargo built no test" >&2; exit 1; }
ordered=$(
  for name in $first; do grep "/$name-[0-9a-f]*\$" <<<"$binaries" || true; done
  grep -v -E "/(${first// /|})-[0-9a-f]*\$" <<<"$binaries" || true
)

tr '\n' '\0' <<<"$ordered" | xargs -0 -n1 -P"$jobs" tests/run.sh one "$output"
failed=0
for mark in "$output"/*.failed; do
  [ -e "$mark" ] || continue
  failed=1
  printf '\n== %s\n' "$(basename "$mark" .failed)"
  cat "${mark%.failed}"
done
exit $failed
