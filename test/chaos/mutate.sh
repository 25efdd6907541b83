#!/bin/sh
# Applies the mutations of mutations.txt to a copy of the repository, one at a time, and runs the
# tests. For each mutation, it reports whether the tests fail, and the first failure messages.
# Arguments are passed to go test, which runs in the module IN. TestEveryMutationCanBeApplied is
# skipped, because it fails with every mutation.
#
#	test/chaos/mutate.sh                                # runs the chaos test
#	IN=. test/chaos/mutate.sh . ./internal/blocklog     # runs tests of the core
set -eu
cd "$(dirname "$0")/../.."
test $# -gt 0 || set -- . -run 'TestChaosSubscribers|TestChaosStreamsNeverMix'
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 tar cf - | tar xf - -C "$copy"
while IFS='	' read -r file old new what; do
	cp "$copy/$file" "$copy/before"
	OLD=$old NEW=$new perl -0pi -e '
		s/\\n/\n/g, s/\\t/\t/g for my ($old, $new) = @ENV{"OLD", "NEW"};
		my $n = s/\Q$old\E/$new/g;
		die "$ARGV contains the old text $n times, want once: $old\n" if $n != 1' "$copy/$file"
	if (cd "$copy/${IN:-test/chaos}" &&
		go test -count=1 -failfast -vet=off -skip TestEveryMutationCanBeApplied "$@") >"$copy/log" 2>&1; then
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
