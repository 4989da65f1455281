#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for FUZZTIME each.
set -euo pipefail
cd "$(dirname "$0")/.."

# Lines of "package target": the names that go test -list prints come before
# the "ok package" line they belong to.
targets=$(go test -list '^Fuzz' ./... | awk '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')
[ -n "$targets" ] || { echo "no fuzz targets" >&2; exit 1; }

while read -r package target; do
	echo "== $package $target"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-10s}" "$package"
done <<<"$targets"
