package natschain_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
)

// TestRunningHostDoesNotMistakeStrayMessagesForChain lets a running host read a stream for the first time when it ends
// with many stray messages that name each other, as another program publishes them.
func TestRunningHostDoesNotMistakeStrayMessagesForChain(t *testing.T) {
	all := numbered(1001, 1500)
	for _, row := range []struct {
		name   string
		before []chaingql.Block // the chain that the host knows
	}{
		{"opened before the first block", nil},
		{"opened before the stream was replaced", numbered(2001, 2010)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), t.Context()
			host := open(t, s.ClientURL(), nil)
			if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, row.before...); err != nil {
				t.Fatal(err)
			}
			q := chaingql.BlocksQuery{Last: 5}
			if _, err := host.Blocks(ctx, q); err != nil {
				t.Fatal(err)
			}
			replaceStream(t, s.ClientURL(), all)
			publishRun(t, s.ClientURL(), "0999", numbered(5001, 6100))
			page, err := host.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrChainReplaced) {
				page, err = host.Blocks(ctx, q)
			}
			if want := all[len(all)-5:]; err != nil || !slices.Equal(page, want) {
				t.Errorf("got %v and error %v, want %v", cursorsOf(page), err, cursorsOf(want))
			}
		})
	}
}
