#!/usr/bin/env bash
# Checks all of a release, and stops before it publishes: `./release.sh`. The last line says which
# command publishes. It takes about twenty minutes, and needs what `./check.sh` needs, the nightly
# toolchain, that of the lowest supported Rust, and `cargo deny`. `--quick` leaves out `./check.sh`
# and what only a version that is about to be published must have: a heading in the changelog, and
# no change that is not committed.
#
# The crates are checked as their users get them: unpacked from their packages, without the
# workspace.
set -euo pipefail
cd "$(dirname "$0")"

begun=$SECONDS
say() {
  printf '\n== %s (after %d s)\n' "$*" $((SECONDS - begun))
}
fail() {
  echo "release.sh: $*" >&2
  exit 1
}
field() {
  sed -n "s/^$1 = \"\(.*\)\"/\1/p" Cargo.toml | head -1
}

# In the order of their dependencies.
packages="redis-once tower-sluice tower-sluice-redisson tower-sluice-policies tower-sluice-guide"
version=$(field version) lowest=$(field rust-version)
MAX_KIB=350

say "what it needs"
rustup run nightly rustc --version >/dev/null || fail "rustup toolchain install nightly"
rustup run "$lowest" rustc --version >/dev/null || fail "rustup toolchain install $lowest"
cargo deny --version >/dev/null 2>&1 || fail "cargo install --locked cargo-deny"
allow_dirty=--allow-dirty
if [ "${1:-}" != --quick ]; then
  allow_dirty=
  [ -z "$(git status --porcelain)" ] || fail "the work tree has changes"
  grep -q "^## \[\?$version" CHANGELOG.md || fail "CHANGELOG.md has no heading of $version"
  ./check.sh
fi

say "licences, advisories and sources of dependencies"
cargo deny --all-features --workspace check

say "the packages"
target=$PWD/target/release-check
rm -rf "$target/package"
mkdir -p "$target"
# A lock file is for programs.
CARGO_TARGET_DIR=$target cargo package --exclude-lockfile $(printf -- '-p %s ' $packages) $allow_dirty 2>&1 | tee "$target/log"
# The tests of a package stay in the repository.
if grep '^warning' "$target/log" | grep -qv '^warning: ignoring test'; then fail "cargo package warns"; fi
for package in $packages; do
  kib=$(($(stat -c %s "$target/package/$package-$version.crate") / 1024))
  echo "$package: $kib KiB compressed"
  [ "$kib" -le "$MAX_KIB" ] || fail "$package has $kib KiB, more than $MAX_KIB"
done

# They lie in the folder of another workspace, and use each other as they were packed.
for package in $packages; do
  manifest=$target/package/$package-$version/Cargo.toml
  printf '\n[workspace]\n\n[patch.crates-io]\n' >>"$manifest"
  for used in $packages; do
    if grep -q "^\[.*dependencies\.$used\]" "$manifest"; then
      printf '%s = { path = "../%s-%s" }\n' "$used" "$used" "$version" >>"$manifest"
    fi
  done
  # What it uses may use the client, too.
  if grep -q '^tower-sluice = { path' "$manifest" && ! grep -q '^redis-once = { path' "$manifest"; then
    printf 'redis-once = { path = "../redis-once-%s" }\n' "$version" >>"$manifest"
  fi
done
export CARGO_TARGET_DIR=$target CARGO_PROFILE_DEV_DEBUG=0 RUSTFLAGS="-D warnings"

for package in $packages; do
  cd "$target/package/$package-$version"

  say "$package: its documentation runs"
  # What the blocks of the guide need is in the repository alone.
  [ "$package" = tower-sluice-guide ] || cargo test --quiet --all-features --doc

  say "$package: each feature alone, and all pairs"
  features=$(cargo metadata --no-deps --format-version 1 \
    | sed 's/.*"features":{\([^}]*\)}.*/\1/' | grep -o '"[a-z0-9]*":\[' | tr -d '":[' | grep -v default || true)
  cargo check --quiet --no-default-features
  for one in $features; do
    for other in $features; do
      if [[ ! $one > $other ]]; then
        cargo check --quiet --no-default-features --features "$one,$other" || fail "features $one,$other"
      fi
    done
  done
  echo "features: $(wc -w <<<"$features")"

  say "$package: Rust $lowest"
  cargo "+$lowest" check --quiet --all-features

  say "$package: the lowest versions that Cargo.toml allows"
  cp Cargo.lock Cargo.lock.newest
  cargo +nightly update --quiet -Z direct-minimal-versions
  cargo check --quiet --all-features
  mv Cargo.lock.newest Cargo.lock

  say "$package: documentation as docs.rs builds it"
  RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo +nightly doc --quiet --all-features --no-deps
  RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-default-features --no-deps

  say "$package: the public interface since the last version"
  if cargo info "$package" --registry crates-io >/dev/null 2>&1; then
    cargo semver-checks --all-features
  else
    echo "$package is not published yet: nothing to compare with"
  fi
done

say "all is well: cargo publish --exclude-lockfile -p redis-once -p tower-sluice -p tower-sluice-redisson -p tower-sluice-policies -p tower-sluice-guide"
