#!/usr/bin/env bash
# Looks at the page of the admin port in a headless Chromium, while requests run. Installs Chromium
# from the system's packages when it is missing. `browser.sh picture.png` keeps a picture.
set -euo pipefail
cd "$(dirname "$0")/../.."
picture=${1:-}
[ -z "$picture" ] || picture=$(realpath "$picture")

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  root=""
  if [ "$(id -u)" -ne 0 ]; then root=sudo; fi
  $root apt-get update -q >/dev/null
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium >/dev/null
  chromium=$(command -v chromium)
fi

if [ -z "${GATEWAY:-}" ]; then
  cargo build --quiet --release -p gateway
  GATEWAY=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/gateway
fi

folder=$(mktemp -d)
started=()
finish() {
  for id in "${started[@]}"; do kill "$id" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "browser.sh: $*" >&2
  exit 1
}

cp examples/gateway/policies.toml "$folder/policies.toml"
LISTEN=127.0.0.1:0 ADMIN=127.0.0.1:0 POLICIES="$folder/policies.toml" \
  "$GATEWAY" >"$folder/addresses" 2>"$folder/stderr" &
started+=($!)
for _ in $(seq 100); do
  [ -s "$folder/addresses" ] && break
  sleep 0.1
done
read -r listen admin < <(sed 's|listening on \(.*\), admin on \(.*\)|\1 \2|' "$folder/addresses") \
  || fail "the gateway does not start: $(cat "$folder/stderr")"

# Requests of several kinds, until the end: many pass, some wait, some are refused.
load() {
  local paths=(/ /fixed_window /sliding_log /sliding_window /sliding_counter /smooth_bursty
    /smooth_warming_up /redisson /geocoder)
  while :; do
    curl -s -o "$folder/answer-$1" -H "x-api-key: key-$1" "$listen/api/[1-4]" || true
    curl -s -o "$folder/answer-$1" "$listen${paths[RANDOM % ${#paths[@]}]}" || true
    curl -s -o "$folder/answer-$1" "$listen/{fixed_window,}?[1-4]" || true
    curl -s -o "$folder/answer-$1" -d 'some bytes' "$listen/echo" || true
  done
}
for task in 1 2 3; do
  load "$task" &
  started+=($!)
done

# Runs the page for some of its seconds, and prints it as it then stands.
browse() {
  timeout 120 "$chromium" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --user-data-dir="$folder/profile" --hide-scrollbars --window-size=1000,1180 --force-device-scale-factor=1 \
    --enable-logging=stderr --virtual-time-budget=4000 "$@" "$admin/" 2>"$folder/console"
  ! grep -E 'CONSOLE.*(Uncaught|Refused|Error)' "$folder/console" || fail "the page has errors"
}
# The counts of a column, added.
count() {
  grep -o "class=\"number $1-count\">[0-9,]*" "$2" | sed 's/.*>//; s/,//g' | awk '{ all += $1 } END { print all + 0 }'
}

sleep "${SECONDS_OF_LOAD:-8}"
browse --dump-dom >"$folder/first"
for policy in $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/policies.toml"); do
  grep -q "data-policy=\"$policy\"" "$folder/first" || fail "the page does not show the policy $policy"
done
for outcome in admitted delayed denied shadow; do
  [ "$(count "$outcome" "$folder/first")" -gt 0 ] || fail "the page shows nothing that was $outcome"
  grep -q "<rect class=\"$outcome\" x=" "$folder/first" || fail "the graph shows nothing that was $outcome"
done
sleep 2
browse --dump-dom >"$folder/second"
[ "$(count admitted "$folder/second")" -gt "$(count admitted "$folder/first")" ] \
  || fail "the page stands still"

if [ -n "$picture" ]; then browse --screenshot="$picture" >"$folder/third"; fi

echo 'limit = 1' >"$folder/policies.toml"
for _ in $(seq 50); do
  curl -s "$admin/health" | grep -q limit && break
  sleep 0.1
done
browse --dump-dom >"$folder/broken"
grep -q 'class="wrong"[^>]*>[^<]*limit' "$folder/broken" || fail "the page does not show what is wrong"
echo "ok: the page shows every policy, the last minute, a live graph, and a broken file"
