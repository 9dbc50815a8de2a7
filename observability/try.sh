#!/usr/bin/env bash
# Shows on a real Prometheus that each alert fires by a fault that this script makes, and that each
# panel of the dashboard has data. `DRAW=FILE.svg` draws the panels as well. The gateway and Envoy's
# service run on one Redis. In the copy of the rules, ranges and `for` last seconds. It takes two to
# three minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in prometheus redis-server python3 curl; do
  command -v $program >/dev/null || { echo "try.sh: $program is needed" >&2; exit 1; }
done
for alert in $(sed -n 's/.*- alert: //p' observability/alerts.yaml); do
  grep -q "$alert" observability/try.sh || { echo "try.sh: no fault for $alert" >&2; exit 1; }
done
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0} CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
cargo build --quiet -p gateway -p envoy-ratelimit -p limits
bin=${CARGO_TARGET_DIR:-target}/debug
dir=$(mktemp -d)
# Each job has a process group of its own.
set -m
finish() { kill -TERM -- "-$1" || true; kill -CONT -- "-$1" || true; }
end() { exec 2>/dev/null; for job in $(jobs -p); do finish "$job"; done; wait; rm -rf "$dir"; }
trap end EXIT

port() { python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'; }
store=$(port) gate=$(port) admin=$(port) envoy=$(port) prom=$(port)
export REDIS_URL=redis://127.0.0.1:$store ADMIN_TOKEN=secret
row() { printf '[[policy]]\nname = "%s"\nmatch = { path = "/%s" }\nperiod = "1s"\n%s\n' "$1" "$1" "$2"; }
{
  row deny 'limit = 1000'
  row allow $'limit = 1000\non_error = "allow"'
  row local $'limit = 1000\non_error = { local = 1000 }'
  row wait $'limit = 20\nburst = 1\nmax_wait = "5min"'
  row tight 'limit = 1'
  row off 'limit = 1000'
  row shadow $'limit = 1\nshadow = true'
} >"$dir/policies.toml"
printf 'domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1000}}]\n' >"$dir/rules.yaml"
sed -E 's/for: .*/for: 2s/; s/\[[0-9]+m\]/[10s]/g' observability/alerts.yaml >"$dir/alerts.yaml"
cat >"$dir/prometheus.yml" <<EOF
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs: [{job_name: all, static_configs: [{targets: ["127.0.0.1:$admin", "127.0.0.1:$envoy"]}]}]
EOF

start() { redis-server --port "$store" --save '' >/dev/null & redis=$!; }
start
serve() {
  LISTEN=127.0.0.1:$gate ADMIN=127.0.0.1:$admin POLICIES=$dir/policies.toml $bin/gateway >"$dir/gateway.log" 2>&1 &
  gateway=$!
}
serve
LISTEN=127.0.0.1:0 HTTP=127.0.0.1:$envoy CONFIG=$dir/rules.yaml ON_ERROR=local $bin/envoy-ratelimit >"$dir/envoy.log" 2>&1 &
prometheus --config.file "$dir/prometheus.yml" --storage.tsdb.path "$dir/data" --web.listen-address "127.0.0.1:$prom" \
  2>"$dir/prometheus.log" &

at=http://127.0.0.1:$gate question='{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}'
get() { curl -s -Z --parallel-immediate --parallel-max 300 "$@" || true; }
every() { while sleep "$1"; do "${@:2}"; done; }
every 0.2 get -m 3 "$at/{deny,allow,local,off,shadow,none}?[1-4]" "$at/wait" >/dev/null 2>&1 &
every 0.2 get -m 1 -d "$question" "http://127.0.0.1:$envoy/json?[1-9]" >/dev/null 2>&1 &

firing() {
  curl -s "http://127.0.0.1:$prom/api/v1/alerts" | python3 -c '
import json, sys
alerts = json.load(sys.stdin)["data"]["alerts"]
print(*sorted({alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}))'
}

until_it() { # fires|ends ALERT
  local begun=$SECONDS is
  while [[ " $(firing) " == *" $2 "* ]] && is=fires || is=ends; [ $is != "$1" ]; do
    ((SECONDS - begun < 60)) || { echo "$2 never $1"; exit 1; }
    sleep 0.5
  done
}

# try FAULT BEGIN END ALERT..: makes a fault until all these alerts fire, which did not before.
try() {
  local alert begun making
  for alert in "${@:4}"; do until_it ends "$alert"; done
  echo "$1"
  eval "$2" >/dev/null 2>&1 & making=$! begun=$SECONDS
  for alert in "${@:4}"; do
    until_it fires "$alert"
    echo "  $alert fires after $((SECONDS - begun)) s"
  done
  timeout 3 $bin/limits top --policies "$dir/policies.toml" --rows 3 2>&1 | sed 's/^/    /' || true
  { finish $making; wait $making; kill -CONT "$redis"; eval "$3"; } >/dev/null 2>&1 || true
}

store() { redis-cli -p "$store" "$@"; }
stop() { kill -STOP "${@:2}"; sleep "$1"; kill -CONT "${@:2}"; }
again() { kill "$gateway"; serve; sleep 0.3; get "$at/deny?[1-99]"; sleep 2; }
switch() { curl -X PUT -d "$1" -H 'authorization: Bearer secret' "http://127.0.0.1:$admin/policies/off/switch"; }
sleep 5
try 'redis is away' 'kill $redis' start \
  RateLimitFailsOpen RateLimitUndecided RateLimitFallsBack RateLimitConnectsFail RateLimitBreakerOpen
try 'the password is another one' 'store config set requirepass other; store -a other client kill type normal' \
  'store -a other config set requirepass ""' RateLimitSetUpWrongly
try 'redis is full' 'store config set maxmemory 1' 'store config set maxmemory 0' RateLimitSetUpWrongly
try 'redis stands still' 'kill -STOP $redis' '' RateLimitCallsUnanswered
try 'redis stands still, and callers leave' 'kill -STOP $redis; every 0.1 get -m 0.03 "$at/deny?[1-9]"' '' RateLimitCallersLeave
try 'redis is slow' 'every 0.03 stop 0.07 $redis' '' RateLimitCallsSlow
try 'redis stands still, and the gateway starts' 'kill -STOP $redis; every 0 again' serve RateLimitSaturated
try '1,024 requests wait' 'for _ in 1 2 3 4; do every 1 get -m 30 "$at/wait?[1-300]" & done; wait' '' RateLimitWaitersNearLimit
try 'callers ask for too much' 'every 0.1 get "$at/tight?[1-9]"' '' RateLimitDeniesMost
try 'a limit is switched off' 'switch off' 'switch on' RateLimitSwitchedOff

[ -z "${DRAW:-}" ] || observability/draw.py "$prom" "$SECONDS" "$DRAW"
echo 'the highest value of each series of each panel, which is never below 0'
PROM=$prom python3 - <<'EOF'
import json, os, sys, urllib.parse, urllib.request
wrong = 0
def ask(expr):
    query = urllib.parse.urlencode({"query": expr.replace("$__rate_interval", "10s").replace("$limiter", ".*")})
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['PROM']}/api/v1/query?{query}") as answer:
        series = json.load(answer)["data"]["result"]
    return {"/".join(one["metric"].values()): float(one["value"][1]) for one in series}
for panel in json.load(open("observability/dashboard.json"))["panels"]:
    for target in panel.get("targets", []):
        shown = ask(f"max_over_time(({target['expr']})[30m:1s])")
        print(f"  {panel['title']}, {target['legendFormat']}, {panel['fieldConfig']['defaults']['unit']}:",
              ", ".join(f"{name} {value:.3g}" for name, value in shown.items() if value) or "NOTHING")
        lowest = ask(f"min_over_time(({target['expr']})[30m:1s]) < 0")
        if lowest:
            print("    BELOW 0:", lowest)
        wrong += bool(lowest) or not any(shown.values())
sys.exit(wrong > 0)
EOF
