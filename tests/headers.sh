#!/usr/bin/env bash
# Lets Python's parser of structured fields, http_sf, read 10,000 random answers. Fetches it from
# the package index into a folder that it deletes afterwards. Needs python3 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "http_sf==1.5.0"

ANSWERS="$folder/answers" cargo test -p tests --quiet --test layer -- --ignored --exact headers::answers::write_answers
"$folder/venv/bin/python" tests/layer/headers/read.py "$folder/answers"
