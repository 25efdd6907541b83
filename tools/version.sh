#!/usr/bin/env bash
# Prepares a release: writes VERSION into the constant, the requirements of the modules, the expected responses in
# tests and documents, and the heading of CHANGELOG.md. The result is a commit like any other.
#
#	tools/version.sh v0.2.0
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "usage: tools/version.sh v0.2.0" >&2; exit 2; }
old=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' options.go)
new=${1#v}
core=$(go list -m)

sed -i "s/^const Version = .*/const Version = \"$new\"/" options.go
git ls-files '*go.mod' | xargs sed -i -E "s#($core(/\S+)?) v$old\$#\1 v$new#"
git grep -lF "\"version\":\"$old\"" | xargs sed -i "s/\"version\":\"$old\"/\"version\":\"$new\"/g"
sed -i "0,/^## Unreleased\$/s//## $new - $(date -u +%F)/" CHANGELOG.md
git diff --stat
