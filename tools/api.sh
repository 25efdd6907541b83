#!/usr/bin/env bash
# Writes the exported API of the core and of the modules to FOLDER, one file for each module: the declarations
# that go doc prints, without comments.
#
#	tools/api.sh FOLDER MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "$1")
for module in . "${@:2}"; do
  name=${module/#./core}
  (
    cd "$module"
    packages=$(go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./... | grep -Ev '/(internal|examples)/')
    for package in $packages; do
      echo "package $package"
      go doc -all "$package" | awk '
        /^(CONSTANTS|VARIABLES|FUNCTIONS|TYPES)$/ { shown = 1; next }
        !shown || /^    / || /^\t*(\/\/)?$/ { next } # the text of a comment is indented with spaces
        /^\t*\/\/ / && !/Has unexported/ { next }
        { sub(/[ \t]+\/\/ .*/, ""); print }'
      echo
    done
  ) >"$folder/$name.txt"
done
