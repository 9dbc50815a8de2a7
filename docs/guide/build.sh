#!/usr/bin/env bash
# Builds the guide as a book, target/guide/book/start.html, and checks the links of the built pages.
# Needs mdBook: `cargo install mdbook`.
set -euo pipefail
cd "$(dirname "$0")"
mdbook build
# Pages link to these: they lie beside the guide, and not in it.
cp ../away.svg ../charge.svg ../compare.svg ../growth.svg ../peers.svg ../../target/guide/

cd ../../target/guide/book
links=0 dead=0
for page in *.html; do
  # These repeat the others.
  case $page in 404.html | print.html | toc.html) continue ;; esac
  while read -r link; do
    links=$((links + 1))
    file=${link%%#*} heading=
    case $link in *'#'*) heading=${link#*#} ;; esac
    [ -e "${file:-$page}" ] && grep -qF "id=\"$heading\"" "${file:-$page}" && continue
    [ -z "$heading" ] && [ -e "$file" ] && continue
    echo "$page: $link leads nowhere" >&2
    dead=$((dead + 1))
  done < <(grep -oE '(href|src)="[^"]*"' "$page" | cut -d'"' -f2 | grep -vE '^(https?:|data:|$)' | sort -u)
done
[ "$dead" -eq 0 ] || exit 1
echo "built target/guide/book, and checked $links links"
