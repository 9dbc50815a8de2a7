#!/usr/bin/env bash
# Builds the guide as a book: target/guide/book/start.html. Needs mdBook (`cargo install mdbook`).
set -euo pipefail
cd "$(dirname "$0")"
mdbook build
# Pages link to these: they lie beside the guide, and not in it.
cp ../compare.svg ../growth.svg ../peers.svg ../../target/guide/
echo "built target/guide/book"
