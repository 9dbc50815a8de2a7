#!/usr/bin/env bash
# Looks at the page of the admin port in a headless Chromium: with what `browser.js` shows it, in
# both themes, and of a gateway while requests run. Installs Chromium from the system's packages
# when it is missing. `browser.sh picture.png` keeps a picture.
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

# Runs a page, and prints it as it then stands.
browse() {
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$(mktemp -d -p "$folder")" --hide-scrollbars --window-size=1240,1500 --force-device-scale-factor=1 \
    --enable-logging=stderr "$@" 2>"$folder/console"
  if grep -E 'CONSOLE.*(Uncaught|Refused|Error)' "$folder/console" >&2; then fail "the page has errors"; fi
}
# The page of the gateway, after some of its seconds.
look() { browse --virtual-time-budget=4000 "$@" "$admin/"; }

# The page as it is, without a gateway, and with the checks behind its script. What the media query
# asks chooses the theme.
for theme in light dark; do
  {
    sed "s/@media (prefers-color-scheme: dark)/@media $([ $theme = dark ] && echo all || echo print)/; /<script>/,\$d" \
      programs/gateway/page.html
    echo '<script>fetch = () => new Promise(() => {});</script>'
    sed -n '/<script>/,/<\/script>/p' programs/gateway/page.html
    echo '<script>'
    cat programs/gateway/browser.js
    echo '</script></body></html>'
  } >"$folder/$theme.html"
  browse --dump-dom "file://$folder/$theme.html" | sed -n '/<pre id="results">/,/<\/pre>/p' | sed 's/<[^>]*>//g' >"$folder/results"
  grep -q 'the paper is' "$folder/results" || fail "the checks of the $theme page did not end"
  sed "s/^/$theme: /" "$folder/results"
  ! grep -q FAILED "$folder/results" || fail "the page fails in the $theme theme"
done

if [ -z "${GATEWAY:-}" ]; then
  cargo build --quiet --release -p gateway
  GATEWAY=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/gateway
fi

cp programs/gateway/policies.toml "$folder/policies.toml"
LISTEN=127.0.0.1:0 ADMIN=127.0.0.1:0 ADMIN_TOKEN=secret POLICIES="$folder/policies.toml" \
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
  local paths=(/ /budget /fixed_window /sliding_log /sliding_window /sliding_counter /smooth_bursty
    /smooth_warming_up /redisson /geocoder /weather)
  local turn=$((3 * $1))
  while :; do
    curl -s -o "$folder/answer-$1" -H "x-api-key: key-$1" "$listen/api/[1-4]" || true
    curl -s -o "$folder/answer-$1" "$listen${paths[turn++ % ${#paths[@]}]}" || true
    curl -s -o "$folder/answer-$1" "$listen/{fixed_window,}?[1-4]" || true
    curl -s -o "$folder/answer-$1" -d 'some bytes' "$listen/echo" || true
  done
}
for task in 1 2 3; do
  load "$task" &
  started+=($!)
done
# The counts of a column, added.
count() {
  grep -o "class=\"number $1-count\"[^>]*>[0-9,]*" "$2" | sed 's/.*>//; s/,//g' | awk '{ all += $1 } END { print all + 0 }'
}

sleep "${SECONDS_OF_LOAD:-8}"
look --dump-dom >"$folder/first"
for policy in $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/policies.toml"); do
  grep -q "data-policy=\"$policy\"" "$folder/first" || fail "the page does not show the policy $policy"
done
in_force=$(curl -s "$admin/health" | tail -n 1)
grep -qF "id=\"state\">$in_force<" "$folder/first" || fail "the page does not say: $in_force"
for outcome in allowed delayed limited shadow off; do
  [ "$(count "$outcome" "$folder/first")" -gt 0 ] || fail "the page shows nothing that was $outcome"
  grep -q "<path class=\"$outcome\" d=\"M" "$folder/first" || fail "the graph shows nothing that was $outcome"
done
sleep 2
look --dump-dom >"$folder/second"
[ "$(count allowed "$folder/second")" -gt "$(count allowed "$folder/first")" ] \
  || fail "the page stands still"

if [ -n "$picture" ]; then look --window-size=1240,1240 --screenshot="$picture" >"$folder/third"; fi

curl -s -X PUT -H 'authorization: Bearer secret' -d off "$admin/switch" >"$folder/switched"
look --dump-dom >"$folder/off"
grep -q 'All limits are off' "$folder/off" || fail "the page does not say that all limits are off"

echo 'limit = 1' >"$folder/policies.toml"
for _ in $(seq 50); do
  curl -s "$admin/health" | grep -q limit && break
  sleep 0.1
done
look --dump-dom >"$folder/broken"
grep -q 'An older table is in force.*limit' "$folder/broken" || fail "the page does not show what is wrong"
echo "ok: the page shows every policy, the last minute, a live graph, all limits off, and a broken file"
