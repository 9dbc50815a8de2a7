#!/usr/bin/env bash
# The layer in frameworks that are too large for the check: hyper, reqwest, kube, apalis,
# lambda_http, tonic with reflection, and clients in Python and of connect-go. It builds a package of
# its own, and installs grpcio into a virtual environment beside it. Needs Go.
set -euo pipefail
cd "$(dirname "$0")/frameworks"

environment=target/python
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet grpcio grpcio-status
(cd connect && go build -o ../target/connect-client .)
export PYTHON="$PWD/$environment/bin/python" CONNECT_CLIENT="$PWD/target/connect-client"
cargo test --quiet "$@" -- --nocapture
