#!/usr/bin/env bash
# The layer in frameworks that are too large for the check: hyper, reqwest, kube, apalis,
# lambda_http, tonic with reflection, and clients in Python. It builds a package of its own, and
# installs grpcio into a virtual environment beside it.
set -euo pipefail
cd "$(dirname "$0")/frameworks"

environment=target/python
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet grpcio grpcio-status
PYTHON="$PWD/$environment/bin/python" cargo test --quiet "$@" -- --nocapture
