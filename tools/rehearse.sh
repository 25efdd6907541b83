#!/usr/bin/env bash
# Rehearses a release: what would users get if the tracked files, as they are now, were tagged? Tags a copy of
# the repository, and uses it from empty modules that know nothing of this checkout: go get downloads the core
# and each MODULE, a program imports all their packages, and the README's program answers its request. The go
# command makes the zips from the tags, as a module proxy does.
#
#	tools/rehearse.sh MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
core=$(go list -m)
version=v$(sed -n 's/^const Version = "\(.*\)"$/\1/p' options.go)
checkout=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The copy has one commit, because a checkout may have no history.
mkdir "$tmp/repo"
changed=$(git stash create)
git archive "${changed:-HEAD}" | tar -x -C "$tmp/repo"
repo() { git -C "$tmp/repo" -c user.name=rehearsal -c user.email=rehearsal@localhost "$@"; }
repo init -q
repo add -A -f
repo commit -q -m "$version"
repo tag "$version"
for module in "$@"; do repo tag "$module/$version"; done

go test -c -o "$tmp/readme.test" .

# The address of the repository leads to the copy. Other modules come from the module cache or the proxy; lint
# has checked their sums. With -trimpath, the build cache works although each run has a module cache of its own.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$tmp/repo.insteadOf" GIT_CONFIG_VALUE_0="https://$core"
export GOPRIVATE="$core" GOSUMDB=off GOWORK=off GOFLAGS="-trimpath -modcacherw"
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE="$tmp/cache"

for module in core "$@"; do
  path=$core/$module
  mkdir -p "$tmp/user/$module" && cd "$tmp/user/$module"
  {
    echo "package main"
    sed -n 's/^package \(.*\)/import _ "\1"/p' "$checkout/api/$module.txt"
    echo "func main() {}"
  } >main.go
  { go mod init example && go get "${path%/core}@$version"; } >log 2>&1 || { cat log; exit 1; }
  go build -o program .
  ./program
  echo "${path%/core}@$version: the packages compile"
done

cd "$checkout"
README_VERSION=$version "$tmp/readme.test" -test.run TestReadmeProgramServes
