#!/bin/sh
# Makes each change of mutations.txt in a copy of the repository, one at a
# time, and reports whether the tests notice, and what they say first. The arguments
# are those of go test, which runs in the module IN.
#
#	test/chaos/mutate.sh                                # does chaos notice?
#	IN=. test/chaos/mutate.sh . ./internal/blocklog     # do these?
set -eu
cd "$(dirname "$0")/../.."
test $# -gt 0 || set -- . -run TestChaosLosesNothing
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 tar cf - | tar xf - -C "$copy"
while IFS='	' read -r file old new what; do
	cp "$copy/$file" "$copy/before"
	OLD=$old NEW=$new perl -0pi -e '
		s/\\n/\n/g, s/\\t/\t/g for my ($old, $new) = @ENV{"OLD", "NEW"};
		my $n = s/\Q$old\E/$new/g;
		die "$ARGV has $n times: $old\n" if $n != 1' "$copy/$file"
	if (cd "$copy/${IN:-test/chaos}" && go test -count=1 -failfast -vet=off "$@") >"$copy/log" 2>&1; then
		verdict=missed
	elif grep -q 'build failed' "$copy/log"; then
		verdict='does not compile'
	else
		verdict=caught
	fi
	printf '%s\t%s\t%s\n' "$verdict" "$file" "$what"
	test "$verdict" = missed || grep '_test.go:[0-9]*: ..' "$copy/log" | grep -v 'seed=\|simulated\|heap grown' |
		cut -c1-160 | head -3
	mv "$copy/before" "$copy/$file"
done <"${MUTATIONS:-test/chaos/mutations.txt}"
