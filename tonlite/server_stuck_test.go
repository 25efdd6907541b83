package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// A server that is stuck at an old block does not lag: no result may wait for its blocks.
func TestStuckServerDoesNotHideTheEndOfTheHistory(t *testing.T) {
	for _, stuckAt := range []uint32{50, 200} {
		inBubble(t, func(t *testing.T, m *memoryNetwork) {
			chain := generate(320)
			s, stuck := m.start(chain), m.start(chain)
			s.Advance(300)
			s.Forget(220)
			stuck.Advance(stuckAt)
			b := m.open(s.Config(stuck), nil)
			time.Sleep(2 * time.Minute) // stuck has announced no block for this time
			stuck.Forget(stuckAt)
			for _, q := range []chaingql.BlocksQuery{{First: 5, After: cursor(100)}, {First: 5}, {Last: 500}} {
				page, err := b.Blocks(t.Context(), q)
				if q.After != "" && !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("%+v returned error %v, want ErrCursorTooOld", q, err)
				}
				if q.After == "" && (err != nil || len(page) == 0) {
					t.Errorf("%+v returned %d blocks and error %v", q, len(page), err)
				}
			}
		})
	}
}

// A server that receives new blocks, but is a hundred of them behind, does not lag either.
func TestServerFarBehindDoesNotHideTheEndOfTheHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(320)
		s, behind := m.start(chain), m.start(chain)
		s.Advance(300)
		s.Forget(220)
		behind.Advance(200)
		behind.Forget(200)
		b := m.open(s.Config(behind), nil)
		b.Prefer(0)
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 5, After: cursor(210)})
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("a page after an old block returned error %v, want ErrCursorTooOld", err)
		}
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 50, Before: cursor(223)})
		if err != nil || len(page) == 0 {
			t.Errorf("the oldest page has %d blocks and error %v", len(page), err)
		}
	})
}

// Servers in the configuration that never respond do not hide it either, not even those that a call prefers.
func TestDeadServersDoNotHideTheEndOfTheHistory(t *testing.T) {
	for _, dead := range []int{1, 4, 12} {
		for _, preferred := range []uint32{0, 1} {
			t.Run(fmt.Sprintf("%d dead, server %d preferred", dead, preferred), func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *memoryNetwork) {
					chain := generate(320)
					s := m.start(chain)
					s.Forget(220)
					var others []*liteservertest.Server
					for i := range dead {
						others = append(others, m.start(chain))
						others[i].Stall()
					}
					b := m.open(s.Config(others...), nil)
					for i := range 3 {
						b.Prefer(preferred)
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
						_, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 3, After: cursor(100)})
						cancel()
						if !errors.Is(err, chaingql.ErrCursorTooOld) {
							t.Errorf("page %d after an old block returned error %v, want ErrCursorTooOld", i, err)
						}
						time.Sleep(20 * time.Second)
					}
				})
			})
		}
	}
}

// A server that fails may have blocks that others do not have, so it may hide the end of the history, but only for a
// minute. It works otherwise.
func TestFailingServerHidesTheEndOfTheHistoryForAMinute(t *testing.T) {
	for name, fail := range map[string]func(s *liteservertest.Server){
		"rejects lookups": func(s *liteservertest.Server) { s.Reject("lookupBlock") },
		"invents blocks and rejects their proof": func(s *liteservertest.Server) {
			s.SetLie(liteservertest.FalseClaims)
			s.Reject("getBlockProof")
		},
		"invents blocks and claims to lag": func(s *liteservertest.Server) {
			s.SetLie(liteservertest.FalseClaims)
			s.LagShards(230)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				failing, honest := m.start(chain), m.start(chain)
				for _, s := range []*liteservertest.Server{failing, honest} {
					s.Advance(300)
					s.Forget(220)
				}
				b := m.open(failing.Config(honest), &tonlite.Options{Cache: 8})
				fail(failing)
				for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(5 * time.Second) {
					b.Prefer(0)
					if err := b.Ping(t.Context()); err != nil {
						t.Error(err)
					}
					after := time.Since(begin)
					early := after < 70*time.Second
					_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3, After: cursor(100)})
					if !errors.Is(err, chaingql.ErrCursorTooOld) && !early {
						t.Errorf("after %v: an old page returned error %v, want ErrCursorTooOld", after, err)
					}
					q := chaingql.BlocksQuery{Last: 50, Before: cursor(223)}
					page, err := b.Blocks(t.Context(), q)
					q.After = cursor(220)
					if !early && (err != nil || !slices.Equal(page, chaingql.PageOf(chain.Blocks(), q))) {
						t.Errorf("after %v: the oldest page has %d blocks and error %v", after, len(page), err)
					}
				}
			})
		})
	}
}

// Honest servers may keep masterchain blocks longer than the shard blocks to which these commit.
func TestServerThatRejectsShardBlocksHidesTheEndOfTheHistoryForMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(320)
		failing, honest := m.start(chain), m.start(chain)
		failing.ForgetShards(220)
		honest.ForgetShards(220)
		b := m.open(failing.Config(honest), &tonlite.Options{Cache: 8})
		failing.Reject("getBlockHeader")
		for begin := time.Now(); time.Since(begin) < 4*time.Minute; time.Sleep(5 * time.Second) {
			b.Prefer(0)
			after := time.Since(begin)
			_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3, After: cursor(100)})
			if !errors.Is(err, chaingql.ErrCursorTooOld) && after > 3*time.Minute {
				t.Errorf("after %v: an old page returned error %v, want ErrCursorTooOld", after, err)
			}
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3})
			if (err != nil || len(page) != 3) && after > 3*time.Minute {
				t.Errorf("after %v: the first page has %d blocks and error %v", after, len(page), err)
			}
		}
	})
}

// TestServerThatHangsAfterItNamedBlocksHidesTheEndOfTheHistoryForAMinute uses calls that have too little time left for
// the server's timeout if it names an old block just in time. It works otherwise.
func TestServerThatHangsAfterItNamedBlocksHidesTheEndOfTheHistoryForAMinute(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 2300 * time.Millisecond} {
		t.Run(fmt.Sprintf("after %v", late), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				liar, one, two := m.start(chain), m.start(chain), m.start(chain)
				for _, s := range []*liteservertest.Server{liar, one, two} {
					s.Forget(220)
				}
				b := m.open(liar.Config(one, two), nil)
				following(t, b, cursor(319))
				liar.SetLie(liteservertest.FalseClaims)
				liar.Delay(late)
				liar.DelayData(time.Hour)
				for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(3 * time.Second) {
					b.Prefer(0)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
					if err := b.Ping(ctx); err != nil {
						t.Error(err)
					}
					cancel()
					after := time.Since(begin)
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
					_, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 3, After: cursor(100)})
					cancel()
					if !errors.Is(err, chaingql.ErrCursorTooOld) && after > 70*time.Second {
						t.Errorf("after %v: an old page returned error %v, want ErrCursorTooOld", after, err)
					}
				}
			})
		})
	}
}

// TestServerThatHangsNowAndThenHidesTheEndOfTheHistoryForMinutes uses a server that has two old blocks and proves them,
// or that hangs for less than a minute and then denies that it has old blocks for longer than that.
func TestServerThatHangsNowAndThenHidesTheEndOfTheHistoryForMinutes(t *testing.T) {
	for name, keepsTwo := range map[string]bool{"proves two blocks": true, "hangs in turn": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				chain := generate(320)
				hanging, one, two := m.start(chain), m.start(chain), m.start(chain)
				one.Forget(220)
				two.Forget(220)
				if hanging.Lose(3, 219); !keepsTwo {
					hanging.Forget(220)
				}
				b := m.open(hanging.Config(one, two), &tonlite.Options{Logger: slog.New(slog.DiscardHandler)})
				b.Prefer(1)
				following(t, b, cursor(319))
				for begin := time.Now(); time.Since(begin) < 7*time.Minute; time.Sleep(10 * time.Second) {
					after := time.Since(begin)
					if hanging.DelayMissing(6 * time.Second); !keepsTwo && after%(2*time.Minute) > 55*time.Second {
						hanging.DelayMissing(0)
					}
					for _, q := range []chaingql.BlocksQuery{
						{First: 10}, {First: 10, After: cursor(100)}, {Last: 50, Before: cursor(223)},
					} {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
						_, err := b.Blocks(ctx, q)
						cancel()
						time.Sleep(time.Second) // a server that just failed may have the block that another query needs
						if after > 4*time.Minute && errors.Is(err, chaingql.ErrUnavailable) {
							t.Errorf("after %v: %+v returned error %v", after, q, err)
						}
					}
				}
			})
		})
	}
}

// A server that limits the rate of its clients has blocks that the other one does not have. A client reads them, and
// repeats each page that fails.
func TestServerThatFailsForSecondsKeepsItsHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(320)
		archive, other := m.start(chain), m.start(chain)
		other.Forget(220)
		b := m.open(archive.Config(other), &tonlite.Options{Cache: 8})
		at, pages := uint32(20), 0
		for i := range 300 {
			archive.Reject("lookupBlock", "getBlockProof")
			if i%50 > 45 { // for four of 50 seconds
				archive.Reject()
			}
			b.Prefer(0)
			if err := b.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 3, After: cursor(at)})
			switch {
			case errors.Is(err, chaingql.ErrCursorTooOld):
				t.Errorf("after %d seconds, the page after block %d returned error %v", i, at, err)
			case err == nil && len(page) == 3:
				at, pages = at+5, pages+1
			}
			time.Sleep(time.Second)
		}
		if pages != 24 {
			t.Errorf("read %d pages, want 24", pages)
		}
	})
}

// A server is set up anew: when it is back, it has only blocks that are newer than the next one. The other server
// is stuck.
func TestFollowEndsIfNoServerHasTheNextBlock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(700)
		s, stuck := m.start(chain), m.start(chain)
		s.Advance(300)
		s.Forget(200)
		stuck.Advance(250)
		b := m.open(s.Config(stuck), nil)
		b.Prefer(0)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, s.Stop)
		time.AfterFunc(4*time.Minute, func() {
			s.Advance(500)
			s.Forget(497)
			_ = s.Restart()
		})
		at, failed := cursor(299), error(nil)
		for !errors.Is(failed, chaingql.ErrCursorTooOld) && ctx.Err() == nil {
			for block, err := range b.Follow(ctx, at) { // a Handler calls it again, too
				if failed = err; err == nil {
					at = block.Cursor
				}
			}
			time.Sleep(time.Second)
		}
		if !errors.Is(failed, chaingql.ErrCursorTooOld) {
			t.Errorf("Follow ended with error %v, want ErrCursorTooOld", failed)
		}
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
		if err != nil || len(page) != 1 || page[0].Cursor != cursor(500) {
			t.Errorf("the newest block is %v with error %v, want block 500", page, err)
		}
	})
}

// The errors of servers that fail together quote each other.
func TestErrorsOfManyFailingServersStayShort(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		var all []*liteservertest.Server
		for range 10 {
			s := m.start(chain)
			s.Advance(30)
			all = append(all, s)
		}
		b := m.open(all[0].Config(all[1:]...), &tonlite.Options{})
		for _, s := range all {
			s.Reject("getBlockProof")
			time.AfterFunc(500*time.Millisecond, func() { s.Advance(31) })
		}
		var lengths []int
		for range 5 {
			for _, err := range b.Follow(t.Context(), cursor(29)) {
				if err != nil {
					lengths = append(lengths, len(err.Error()))
				}
			}
			time.Sleep(time.Second)
		}
		if len(lengths) == 0 || slices.Max(lengths) > 20_000 {
			t.Errorf("the errors have %v bytes, want at most 20,000", lengths)
		}
	})
}
