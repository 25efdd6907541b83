#!/usr/bin/env bash
# Builds, vets and tests the core and each MODULE with the oldest Go that its go.mod allows. With -build it only
# builds the packages that users import. The go command downloads the toolchains.
#
#	tools/oldest.sh [-build] MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
build=
if [ "${1-}" = -build ]; then build=1; shift; fi
api=$PWD/api
for module in core "$@"; do
  (
    [ "$module" = core ] || cd "$module"
    version=$(sed -n 's/^go //p' go.mod)
    [[ $version = *.*.* ]] || version=$version.0
    export GOTOOLCHAIN=go$version
    echo "$module: $(go version)"
    if [ "$build" ]; then
      sed -n 's/^package //p' "$api/$module.txt" | xargs go build
    else
      go build ./...
      go vet ./...
      go test ./...
    fi
  )
done
