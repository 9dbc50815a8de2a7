#!/usr/bin/env bash
# One limiter for Java and Rust: Redisson and this crate on one real Redis, in both directions.
# Prints one line of figures, and fails when a promise is broken.
#
#   REDISSON_VERSION  the version of Redisson; unless set, the newest
#   INTEROP_SECONDS   how long both hammer one limiter; unless set, 10
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

need() {
  command -v "$1" >/dev/null || {
    echo "interop: $1 is needed: $2" >&2
    exit 1
  }
}
need java "a JDK of version 17 or later, such as your system's package openjdk-17-jdk"
need javac "a JDK of version 17 or later, not only its runtime: such as your system's package openjdk-17-jdk"
need mvn "Maven 3, such as your system's package maven"
need "${REDIS_SERVER:-redis-server}" "./check.sh installs redis-server"
need cargo "Rust, from rustup"

# What is built goes where cargo builds.
cd "$here/../.."
build=${CARGO_TARGET_DIR:-$PWD/target}/interop
mkdir -p "$build"
options=(-q -B -f "$here/pom.xml")
if [ -n "${REDISSON_VERSION:-}" ]; then options+=("-Dredisson.version=$REDISSON_VERSION"); fi
mvn "${options[@]}" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath "-Dmdep.outputFile=$build/classpath" || {
  echo "interop: Maven could not get Redisson; does it reach a repository?" >&2
  exit 1
}
mkdir -p "$build/kinds"
javac --release 17 -nowarn -cp "$(cat "$build/classpath")" -d "$build/kinds" "$here/src/main/java/Interop.java"

INTEROP_CLASSPATH="$build/kinds:$(cat "$build/classpath")" \
  exec cargo test -p tests --release --quiet --test redisson_interop -- --nocapture
