#!/usr/bin/env bash
# Counts the instructions of one pure step of each algorithm with callgrind: the number
# is the same in every run, so that a regression shows. Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "instructions.sh: valgrind is needed" >&2; exit 1; }

binary=$(cargo bench --quiet --bench steps --no-run --message-format=json |
  sed -n 's/.*"executable":"\([^"]*steps-[^"]*\)".*/\1/p' | tail -1)
few=10000 many=110000

count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" "$1" "$2" 2>&1 | sed -n 's/.*Collected : //p'
}

for script in scripts/*.lua; do
  name=$(basename "$script" .lua)
  grep -q '^--@ state ' "$script" || continue
  echo "instructions step=$name count=$((($(count "$name" $many) - $(count "$name" $few)) / (many - few)))"
done
