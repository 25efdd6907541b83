package chaingql_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// reading consumes follow on a goroutine until it ends or yields the block with the cursor leaveAt. The returned
// function waits until the bubble is idle, and returns the cursors and errors so far.
func reading(follow iter.Seq2[chaingql.Block, error], leaveAt chaingql.Cursor) (output func() string) {
	var mu sync.Mutex
	var all []string
	say := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
	}
	go func() {
		for b, err := range follow {
			if err != nil {
				say("(" + err.Error() + ")")
				continue
			}
			say(string(b.Cursor))
			if b.Cursor == leaveAt {
				say("left")
				return
			}
		}
		say("end")
	}()
	return func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

func TestPollReadsPagesThenPollsAtTheInterval(t *testing.T) {
	for _, row := range []struct{ every, took time.Duration }{
		{0, time.Second}, {-1, time.Second}, {3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			all := blocksAt("02 04 06")
			var asked []chaingql.Cursor
			blocks := func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, q.After)
				return chaingql.PageOf(all, q), nil
			}
			output := reading(chaingql.Poll(ctx, blocks, "02", row.every), "")
			if got := output(); got != "04 06" {
				t.Errorf("the first page has the blocks %q", got)
			}
			mu.Lock()
			all = append(all, blocksAt("08")...)
			mu.Unlock()
			time.Sleep(row.took - 1)
			if got := output(); got != "04 06" {
				t.Errorf("before the interval has passed, Poll yielded %q", got)
			}
			time.Sleep(time.Nanosecond)
			if got := output(); got != "04 06 08" {
				t.Errorf("after the interval, Poll yielded %q", got)
			}
			cancel()
			if got := output(); got != "04 06 08 (context canceled) end" {
				t.Errorf("after the context was canceled, Poll yielded %q", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []chaingql.Cursor{"02", "06"}; !slices.Equal(asked, want) {
				t.Errorf("pages were read after %q, want %q", asked, want)
			}
		})
	}
}

func TestPollCatchesUpWithoutPausing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []chaingql.Block
		for i := range 2*chaingql.MaxPage + 5 {
			all = append(all, chaingql.Block{Cursor: chaingql.SeqCursor(uint64(i))})
		}
		blocks := func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			return chaingql.PageOf(all, q), nil
		}
		began, n := time.Now(), 0
		for b, err := range chaingql.Poll(t.Context(), blocks, "", time.Hour) {
			if err != nil || b.Cursor != all[n].Cursor {
				t.Fatalf("as block %d, Poll yielded %q with the error %v", n, b.Cursor, err)
			}
			if n++; n == len(all) {
				break
			}
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("Poll paused for %v between pages", passed)
		}
	})
}

func TestPollEndsWithOneError(t *testing.T) {
	broken := errors.New("no connection")
	for _, row := range []struct {
		name, want string
		blocks     func(cancel func()) ([]chaingql.Block, error)
		leaveAt    chaingql.Cursor
	}{
		{"failed source", "(no connection) end", func(func()) ([]chaingql.Block, error) {
			return blocksAt("04"), broken
		}, ""},
		{"canceled context", "(context canceled) end", func(cancel func()) ([]chaingql.Block, error) {
			cancel()
			return blocksAt("04"), nil
		}, ""},
		{"no error after a break", "04 left", func(func()) ([]chaingql.Block, error) {
			return blocksAt("04 06"), nil
		}, "04"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				blocks := func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) {
					return row.blocks(cancel)
				}
				if got := reading(chaingql.Poll(ctx, blocks, "", 0), row.leaveAt)(); got != row.want {
					t.Errorf("Poll yielded %q, want %q", got, row.want)
				}
			})
		})
	}
}

func TestFromChannelEndsWhenTheChannelCloses(t *testing.T) {
	broken := errors.New("no connection")
	for _, row := range []struct {
		name, want string
		cause      func() error
	}{
		{"with its cause", "02 04 (no connection) end", func() error { return broken }},
		{"without a cause", "02 04 (chaingql: the channel passed to FromChannel was closed) end", nil},
		{
			"with a cause that returns nil", "02 04 (chaingql: the channel passed to FromChannel was closed) end",
			func() error { return nil },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := make(chan chaingql.Block)
				output := reading(chaingql.FromChannel(t.Context(), blocks, row.cause), "")
				for _, b := range blocksAt("02 04") {
					blocks <- b
				}
				if got := output(); got != "02 04" {
					t.Errorf("before the channel was closed, FromChannel yielded %q", got)
				}
				close(blocks)
				if got := output(); got != row.want {
					t.Errorf("FromChannel yielded %q, want %q", got, row.want)
				}
			})
		})
	}
}

func TestFromChannelEndsWhenTheContextIsDoneOrTheConsumerBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		blocks := make(chan chaingql.Block, 4)
		for _, b := range blocksAt("02 04 06") {
			blocks <- b
		}
		if got := reading(chaingql.FromChannel(ctx, blocks, nil), "04")(); got != "02 04 left" {
			t.Errorf("with a consumer that breaks, FromChannel yielded %q", got)
		}
		output := reading(chaingql.FromChannel(ctx, blocks, nil), "")
		if got := output(); got != "06" {
			t.Errorf("to the second consumer, FromChannel yielded %q", got)
		}
		cancel()
		if got := output(); got != "06 (context canceled) end" {
			t.Errorf("after the context was canceled, FromChannel yielded %q", got)
		}
	})
}
