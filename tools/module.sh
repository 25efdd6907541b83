#!/usr/bin/env bash
# Checks a module: its go.mod, vet, staticcheck and the tests. Prints everything when it is done, so that two modules
# can be checked at the same time.
#
#	STATICCHECK=PROGRAM tools/module.sh MODULE [TEST FLAG...]
set -uo pipefail
cd "$(dirname "$0")/.."
output=$(mktemp)
trap 'rm -f "$output"' EXIT
(
  set -e
  cd "$1"
  go mod tidy -diff
  go vet ./...
  "$STATICCHECK" ./...
  go test "${@:2}" ./...
) >"$output" 2>&1
status=$?
echo "$1"
cat "$output"
exit $status
