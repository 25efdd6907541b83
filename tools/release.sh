#!/usr/bin/env bash
# Tags a release, the core first and then each MODULE, and prints the command that pushes the tags. With -n it
# creates no tags, and lists all reasons why it would refuse.
#
#	tools/release.sh [-n] v0.1.0 MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
dry=
if [ "${1-}" = -n ]; then dry=1; shift; fi
[[ ${1-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "usage: tools/release.sh [-n] v0.1.0 MODULE..." >&2; exit 2; }
version=$1
modules=("${@:2}")
tags=("$version" "${modules[@]/%//$version}")

refuse() {
  echo "refused: $*" >&2
  [ "$dry" ] || exit 1
  refused=1
}
refused=

[ "$(git branch --show-current)" = main ] || refuse "the branch is not main"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed"
grep -qx "const Version = \"${version#v}\"" options.go || refuse "Version in options.go is not $version"
newest=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $newest = "## ${version#v} - "* ]] || refuse "CHANGELOG.md begins with \"$newest\", not with ${version#v}"
existing=$(git tag; git ls-remote --tags origin | sed 's#.*refs/tags/##')
for tag in "${tags[@]}"; do
  if grep -qxF "$tag" <<<"$existing"; then refuse "the tag $tag exists"; fi
done
if [ "$refused" ] || ! tools/rehearse.sh "${modules[@]}"; then refuse "the release was not rehearsed"; fi

for tag in "${tags[@]}"; do
  echo "git tag -a -m 'chaingql $tag' $tag"
  [ "$dry" ] || git tag -a -m "chaingql $tag" "$tag"
done
echo "Publish them with: git push --atomic origin main ${tags[*]}"
[ -z "$refused" ]
