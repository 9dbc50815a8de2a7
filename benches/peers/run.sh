#!/usr/bin/env bash
# This crate beside its peers, over one redis-server: builds `benches/peers`, measures in
# interleaved rounds, and prints a line for each peer and number of tasks. Takes about 7 minutes
# after the build. Starts a server of its own on a free port, and ends it.
#
#   benches/peers/run.sh [options]
#
#   --rounds N      rounds of each number of tasks. Default: 5
#   --slot-ms N     how long a peer asks in a round, in ms. Default: 700
#   --tasks LIST    numbers of tasks. Default: 1,16,64,256,1024
#   --only LIST     names of peers, as the lines have them. Default: all
#   --cores-awake   two busy loops of idle priority run beside, so that no core sleeps
#   --draw          afterwards, writes results.txt and draws README.md, docs/peers.svg and its copy
#                   for rustdoc, docs/peers.url. A run with --cores-awake becomes the second part
#                   of results.txt
#   --only-draw     measures nothing and draws from results.txt
#
#   REDIS_CELL_MODULE  the path of libredis_cell.so, built as https://github.com/brandur/redis-cell
#                      says. Without it tower-redis-cell is left out
#   REDIS_CELL_VERSION the version of that file, which the page names
set -euo pipefail
cd "$(dirname "$0")/../.."
here=benches/peers

rounds=5 slot_ms=700 tasks=1,16,64,256,1024 only="" loops=0 draw=no measure=yes
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --slot-ms) slot_ms=$2; shift ;;
    --tasks) tasks=$2; shift ;;
    --only) only=$2; shift ;;
    --cores-awake) loops=2 ;;
    --draw) draw=yes ;;
    --only-draw) draw=yes measure=no ;;
    *) sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2; exit 2 ;;
  esac
  shift
done

say() { echo "$*" >&2; }
need() {
  command -v "$1" >/dev/null || { say "run.sh: $1 is needed: $2"; exit 1; }
}
need redis-server "./check.sh installs it"
need redis-benchmark "it comes with redis-server"
need cargo "Rust, from rustup"

# What is built and what the server writes goes where cargo builds.
target=${CARGO_TARGET_DIR:-$PWD/target}/peers
mkdir -p "$target"
work=$(mktemp -d "$target/run-XXXXXX")

started=()
finish() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The peers are built apart from the crate, with a Cargo.lock of their own. One of them names a
# newer Rust than it needs.
features=()
if ! printf '#include <openssl/ssl.h>\n' | cc -E - >/dev/null 2>&1; then
  features=(--no-default-features)
fi
say "building; the first time takes some minutes"
CARGO_TARGET_DIR=$target cargo build --quiet --release --locked --ignore-rust-version \
  --manifest-path "$here/Cargo.toml" "${features[@]}"
peers=$target/release/tower-sluice-peers

if [ "$measure" = yes ]; then
  module=() cell=no
  if [ -n "${REDIS_CELL_MODULE:-}" ]; then
    module=(--loadmodule "$(realpath "$REDIS_CELL_MODULE")") cell=yes
  fi
  # A free port: the server ends at once when the port is taken.
  server=""
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    port=$((20000 + RANDOM % 40000))
    redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$work" \
      --databases 64 --tcp-backlog 2048 "${module[@]}" >"$work/log" 2>&1 &
    process=$!
    for _ in $(seq 100); do
      if grep -q "Ready to accept connections" "$work/log"; then server=$process; break; fi
      kill -0 "$process" 2>/dev/null || break
      sleep 0.1
    done
    if [ -n "$server" ]; then break; fi
    kill "$process" 2>/dev/null || true
  done
  [ -n "$server" ] || { say "run.sh: redis-server does not start:"; cat "$work/log" >&2; exit 1; }
  started+=("$server")

  for _ in $(seq "$loops"); do
    chrt -i 0 bash -c 'while :; do :; done' &
    started+=($!)
  done

  cell_version=-
  if [ "$cell" = yes ]; then cell_version=${REDIS_CELL_VERSION:-unknown}; fi
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
  {
    echo "run rounds=$rounds slot_ms=$slot_ms beside=$loops cores=$(nproc) cpu=\"${cpu:-unknown}\"" \
      "redis=$(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')" \
      "rustc=\"$(rustc --version | cut -d' ' -f1,2)\" cell=$cell_version" \
      "commit=$(git describe --always --dirty 2>/dev/null || echo unknown)"
  } | tee "$work/lines"
  "$peers" measure port="$port" server="$server" cell="$cell" rounds="$rounds" \
    slot_ms="$slot_ms" tasks="$tasks" only="$only" >"$work/measured" &
  measuring=$!
  started+=("$measuring")
  tail --pid="$measuring" -n +1 -f "$work/measured" &
  wait "$measuring"
  cat "$work/measured" >>"$work/lines"
fi

if [ "$draw" = yes ]; then
  results=$here/results.txt
  if [ "$measure" = yes ] && [ "$loops" = 0 ]; then cp "$work/lines" "$results"; fi
  if [ "$measure" = yes ] && [ "$loops" != 0 ]; then
    # The second part is replaced.
    sed -i '2,$ { /^run /,$ d }' "$results"
    cat "$work/lines" >>"$results"
  fi
  "$peers" draw "$results" "$here/README.md" docs/peers.svg
  # rustdoc has no files of its own, so its picture is in the link.
  printf '[peers-picture]: data:image/svg+xml;base64,%s\n' "$(base64 <docs/peers.svg | tr -d '\n')" \
    >docs/peers.url
  say "drew $here/README.md, docs/peers.svg and docs/peers.url"
fi
