#!/usr/bin/env bash
# Proof that the worlds find faults: each patch of tests/planted/ is put into a copy of the
# repository, and the worlds of that copy have to fail. No other test finds these faults, except
# that a unit test finds the replaced master.
#
#   tests/planted.sh             all of them
#   tests/planted.sh NAME ...    those whose names contain one of the words
#
# Seeds go from SEED (0) on, SEEDS (3000) of them: one world of 2,500 finds the rarest fault. A
# fault that hangs a world counts as found. A patch that does not fit any more is mended in the
# copy: `git diff` there is the new one.
set -euo pipefail
cd "$(dirname "$0")/.."
COPY=$PWD/target/planted PATCHES=$PWD/tests/planted SEED=${SEED:-0} SEEDS=${SEEDS:-3000}
export CARGO_TARGET_DIR=$COPY/target CARGO_INCREMENTAL=1
[ -d "$COPY" ] || git clone --quiet --shared . "$COPY"
git -C "$COPY" fetch --quiet origin HEAD && git -C "$COPY" checkout --quiet --force FETCH_HEAD

# Builds the worlds of the copy, and prints their binary.
build() {
  # An assertion of the crate is no find of a world.
  (cd "$COPY" && cargo test --quiet -p tests --all-features --test simulation --no-run \
    --message-format json --config profile.dev.opt-level=1 \
    --config profile.dev.debug-assertions=false --config profile.dev.overflow-checks=false) |
    grep -o '"executable":"[^"]*simulation-[^"]*"' | tail -1 | cut -d '"' -f 4
}

# Prints the first violation of these worlds, with its seed.
violation() {
  local output status=0
  output=$(SEED=$SEED SEEDS=$SEEDS STOP=1 timeout "${SECONDS_EACH:-600}" \
    "$1" worlds_keep_every_promise --exact --nocapture 2>/dev/null) || status=$?
  grep -o '^violation seed=[0-9]* [a-z]*' <<<"$output" | sort -n -t = -k 2 | head -1 && return
  case $status in 0) ;; 124) echo hang ;; *) echo abort ;; esac
}

binary=$(build)
without=$(violation "$binary")
[ -z "$without" ] || { echo "without a fault: $without"; exit 1; }
all=0 found=0
for patch in "$PATCHES"/*.patch; do
  name=$(basename "$patch" .patch)
  [ $# = 0 ] || grep -q "$(printf '%s\n' "$@")" <<<"$name" || continue
  all=$((all + 1))
  git -C "$COPY" checkout --quiet --force .
  if ! git -C "$COPY" apply --recount -C1 "$patch"; then
    echo "planted name=$name fits=no"
  elif ! binary=$(build); then
    echo "planted name=$name built=no"
  elif why=$(violation "$binary") && [ -n "$why" ]; then
    found=$((found + 1))
    echo "planted name=$name found_by=$why"
  else
    echo "planted name=$name found_by=nobody seeds=$SEEDS"
  fi
done
echo "planted found=$found of=$all"
[ "$found" = "$all" ]
