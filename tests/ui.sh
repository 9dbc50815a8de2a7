#!/usr/bin/env bash
# Compiles each program of tests/ui/src/bin, which must fail. Where a line ends with `//~ text`, the
# compiler must report an error there, and say that text. So it holds for each version of the compiler.
set -euo pipefail
cd "$(dirname "$0")/ui"

failed=0
say() {
  echo "tests/ui.sh: $*" >&2
  failed=1
}
for file in src/bin/*.rs; do
  name=$(basename "$file" .rs)
  if errors=$(CARGO_TARGET_DIR=../../target/ui cargo check --quiet --bin "$name" 2>&1); then
    say "$name compiles"
  fi
  errors=$(grep -v '//~ ' <<<"$errors" || true) # without the lines that it quotes
  grep -q '//~ ' "$file" || say "$name expects nothing"
  while IFS=: read -r line text; do
    grep -qF -- "--> $file:$line:" <<<"$errors" && grep -qF -- "${text#*//~ }" <<<"$errors" \
      || say "line $line of $name does not fail with: ${text#*//~ }"
  done < <(grep -n '//~ ' "$file")
done
exit $failed
