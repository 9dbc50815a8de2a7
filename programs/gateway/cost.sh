#!/usr/bin/env bash
# Measures the processor time of a request through nginx, haproxy and the gateway, all before one
# upstream: user and system time of all their threads, from /proc, over a fixed number of requests.
#
# Needs nginx, haproxy, wrk and redis-server. Everything listens on 127.0.0.1 on free ports.
#
# GATEWAY="a b"    compares these programs. Default: builds this one.
# ROUNDS=3         measures each in turn, so many times.
# REQUESTS=100000  of one measurement.
# CONNECTIONS=32   that wrk keeps open.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in nginx haproxy wrk redis-server; do
  command -v "$tool" >/dev/null || { echo "cost.sh: $tool is needed" >&2; exit 1; }
done
rounds=${ROUNDS:-3} requests=${REQUESTS:-100000} connections=${CONNECTIONS:-32}
if [ -z "${GATEWAY:-}" ]; then
  cargo build --quiet --release -p gateway
  GATEWAY=${CARGO_TARGET_DIR:-target}/release/gateway
fi
read -ra gateways <<<"$GATEWAY"

folder=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=$((20000 + RANDOM % 10000))
# Sets `port` to one that nobody listens on.
next_port() {
  port=$((port + 1))
  while is_open "$port"; do port=$((port + 1)); done
}
# Runs a program in the background, and waits until its port is open. Its log has the given name.
start() {
  local log=$folder/$1.log port=$2
  shift 2
  "$@" >"$log" 2>&1 &
  pids+=($!)
  for _ in $(seq 200); do
    is_open "$port" && return
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.05
  done
  echo "cost.sh: $1 does not start: $(tail -3 "$log")" >&2
  exit 1
}
# Starts an nginx with this text in its block `http`, on as many workers.
start_nginx() {
  local name=$1 workers=$2 text=$3 own=$folder/$1
  mkdir -p "$own"
  cat >"$own.conf" <<EOF
daemon off;
worker_processes $workers;
pid $own/pid;
error_log $folder/$name.log crit;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path $own/body; proxy_temp_path $own/proxy; fastcgi_temp_path $own/fastcgi;
  uwsgi_temp_path $own/uwsgi; scgi_temp_path $own/scgi;
  $text
}
EOF
  start "$name" "$port" nginx -p "$own" -c "$own.conf" -e "$folder/$name.log"
}

names=() ports=() of_pid=() statuses=()
# Adds what was started last, under a name, to what is measured; with the status that it answers.
measured() {
  names+=("$1") ports+=("$port") of_pid+=("${pids[-1]}") statuses+=("$2")
}

next_port
upstream=$port
start_nginx upstream 1 "server { listen 127.0.0.1:$port; return 200 'hello'; }"
next_port
redis=$port
start redis "$port" redis-server --bind 127.0.0.1 --port "$port" --dir "$folder" --save '' \
  --appendonly no

forward="
  upstream up { server 127.0.0.1:$upstream; keepalive 256; keepalive_requests 1000000000; }
  proxy_http_version 1.1;
  proxy_set_header connection '';
  proxy_set_header host \$host;
  proxy_set_header x-forwarded-for \$proxy_add_x_forwarded_for;
  proxy_set_header x-forwarded-host \$host;
  proxy_set_header x-forwarded-proto http;"
next_port
start_nginx nginx auto "$forward
  server { listen 127.0.0.1:$port; location / { proxy_pass http://up; } }"
measured "nginx" 200
next_port
cat >"$folder/haproxy.cfg" <<EOF
global
  maxconn 4096
defaults
  mode http
  option forwardfor
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen proxy
  bind 127.0.0.1:$port
  server up 127.0.0.1:$upstream
EOF
start haproxy "$port" haproxy -db -f "$folder/haproxy.cfg"
measured "haproxy" 200

limited() {
  printf '[[policy]]\nname = "api"\nlimit = %d\nperiod = "%s"\nkey = "header:x-api-key"\n' "$@"
}
echo 'allow_empty = true' >"$folder/plain.toml"
limited 1000000 1s >"$folder/limited.toml"
limited 1 1d >"$folder/refusing.toml"
start_gateway() {
  local binary=$1 name=$2 policies=$3
  next_port
  local listen=$port
  next_port
  local admin=$port
  port=$listen
  shift 3
  start "$(basename "$binary")-${name// /-}" "$listen" env "$@" LISTEN="127.0.0.1:$listen" \
    ADMIN="127.0.0.1:$admin" UPSTREAM="http://127.0.0.1:$upstream" \
    POLICIES="$folder/$policies.toml" "$binary"
}
each_gateway() {
  local binary shown
  for binary in "${gateways[@]}"; do
    start_gateway "$binary" "$1" "$3" "${@:4}"
    shown=gateway
    [ "${#gateways[@]}" -gt 1 ] && shown=$(basename "$binary")
    measured "$shown, $1" "$2"
    port=$((port + 1))
  done
}
each_gateway "without a limit" 200 plain
next_port
start_nginx nginx-limit auto "$forward
  limit_req_zone \$http_x_api_key zone=api:1m rate=1000000r/s;
  server {
    listen 127.0.0.1:$port;
    location / { limit_req zone=api burst=1000000 nodelay; proxy_pass http://up; }
  }"
measured "nginx, limit_req" 200
each_gateway "limit in memory" 200 limited
each_gateway "limit in Redis" 200 limited REDIS_URL="redis://127.0.0.1:$redis"
next_port
start_nginx nginx-refusing auto "$forward
  limit_req_zone \$http_x_api_key zone=api:1m rate=1r/m;
  limit_req_status 429;
  server {
    listen 127.0.0.1:$port;
    location / { limit_req zone=api; proxy_pass http://up; }
  }"
measured "nginx, refused by limit_req" 429
each_gateway "refused in memory" 429 refusing

# wrk sends so many requests, and says how many were answered and how many of them were refused. Its
# main thread sleeps until the end or a signal, and a signal may reach another thread.
cat >"$folder/count.lua" <<'EOF'
local sent, text = 0, nil
function init(args)
  most = tonumber(args[1])
  text = wrk.format()
end
function request()
  sent = sent + 1
  if sent == most then
    wrk.thread:stop()
    io.popen("while kill -INT $PPID 2>/dev/null; do sleep 0.05; done &"):close()
  end
  return text
end
function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format("counted %d %d %d", summary.requests, errors.status, failed))
end
EOF
# The ticks of a process and of its children.
ticks() {
  local pid used=0
  for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
    used=$((used + $(sed 's/.*) //' "/proc/$pid/stat" | awk '{print $12 + $13}')))
  done
  echo "$used"
}
ask() {
  wrk -t 1 -c "$connections" -d 300s -H 'x-api-key: alice' -s "$folder/count.lua" \
    "http://127.0.0.1:$1/" -- "$requests" | sed -n 's/^counted //p'
}
tick=$(getconf CLK_TCK)
# Prints the microseconds of a request.
measure() {
  local before after answered refused failed wrong
  before=$(ticks "${of_pid[$1]}")
  read -r answered refused failed < <(ask "${ports[$1]}")
  after=$(ticks "${of_pid[$1]}")
  if [ "${statuses[$1]}" = 200 ]; then
    wrong=$((refused + failed))
  else
    wrong=$((answered - refused + failed))
  fi
  # A machine that is overloaded misses a deadline of Redis now and then.
  if [ "$wrong" -gt 0 ]; then
    echo "cost.sh: ${names[$1]}: of $answered answers, $wrong are not ${statuses[$1]}" >&2
    [ $((wrong * 100)) -lt "$answered" ] || return 1
  fi
  awk -v t=$((after - before)) -v hz="$tick" -v n="$answered" 'BEGIN {printf "%.1f", t / hz / n * 1e6}'
}

figures=()
for at in "${!names[@]}"; do
  figures+=("")
  # Also takes the one request that is admitted before the others are refused.
  wrk -t 1 -c "$connections" -d 1s -H 'x-api-key: alice' "http://127.0.0.1:${ports[$at]}/" >/dev/null
done
for round in $(seq "$rounds"); do
  for at in "${!names[@]}"; do
    figure=$(measure "$at")
    figures[at]+=" $figure"
    echo "round $round: ${names[$at]}: $figure us" >&2
  done
done
echo "Microseconds of processor time of a request: the median of $rounds rounds of $requests" \
  "requests over $connections connections, and all rounds. $(nproc) cores."
echo
echo "| | median | rounds |"
echo "|---|---|---|"
for at in "${!names[@]}"; do
  median=$(tr ' ' '\n' <<<"${figures[$at]# }" | sort -n | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}')
  echo "| ${names[$at]} | $median |${figures[$at]} |"
done
