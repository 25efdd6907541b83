package blocklog

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHangingFollowIsRestartedIfNewerBlocksExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		src := c.source()
		var hang atomic.Bool
		hang.Store(true)
		src.Follow = func(ctx context.Context, after string) iter.Seq2[int, error] {
			if !hang.Load() {
				return c.follow(ctx, after)
			}
			return func(yield func(int, error) bool) {
				<-ctx.Done()
				yield(0, ctx.Err())
			}
		}
		logger, text := logged()
		l := New(src, Options[int]{Logger: logger})
		defer shut(t, l)
		r := join(t, l, 1)
		time.Sleep(10 * DefaultSilence)
		synctest.Wait() // a probe may be running
		if s := l.Stats(); s.Restarts != 0 || c.probes < 5 || c.probes > 10 {
			t.Errorf("got %d restarts and %d probes without a new block, want 0 and 5 to 10", s.Restarts, c.probes)
		}
		if n := strings.Count(text.String(), "is silent"); n != 1 {
			t.Errorf("the silence was logged %d times, want once:\n%s", n, text)
		}
		c.grow(2)
		time.Sleep(2 * DefaultSilence)
		hang.Store(false)
		time.Sleep(2 * DefaultSilence)
		expect(t, r, 6, 7)
		if !strings.Contains(text.String(), errHangs.Error()) || l.Stats().Restarts < 2 {
			t.Errorf("got %d restarts, want at least 2, and the reason in the log:\n%s", l.Stats().Restarts, text)
		}
	})
}

// If the machine sleeps, a connection that hangs may not be noticed before the blocks after its position are pruned.
func TestHangingFollowIsRestartedIfNewerBlocksWerePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		src := c.source()
		hang := true
		src.Follow = func(ctx context.Context, after string) iter.Seq2[int, error] {
			if !hang {
				return c.follow(ctx, after)
			}
			hang = false
			return func(yield func(int, error) bool) {
				<-ctx.Done()
				yield(0, ctx.Err())
			}
		}
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		lost := join(t, l, 1)
		time.Sleep(time.Second)
		c.set(func() { c.newest, c.oldest = 100, 90 })
		time.Sleep(2 * DefaultSilence)
		expect(t, lost) // requests the blocks after 5
		synctest.Wait()
		if got, err := read(t, lost); !errors.Is(err, errGone) || got != nil {
			t.Errorf("read blocks %v and error %v, want errGone", got, err)
		}
		lost.Close()
		fresh := join(t, l, 1)
		c.grow(1)
		synctest.Wait()
		expect(t, fresh, 101)
	})
}

func TestBlockDuringSilenceProbePreventsRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		l := open(t, c, Options[int]{})
		r := join(t, l, 1)
		synctest.Wait()
		for n := 6; n < 10; n++ {
			time.Sleep(DefaultSilence)
			c.grow(1)
			synctest.Wait()
			expect(t, r, n)
			time.Sleep(2 * hangTimeout)
		}
		if s := l.Stats(); s.Restarts != 0 {
			t.Errorf("got %d restarts, want 0", s.Restarts)
		}
	})
}

// On a test chain, blocks may be rarer than Options.Silence, and Follow may poll slowly.
func TestSlowFollowIsNotRestartedOnAQuietChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		src := c.source()
		src.Follow = func(ctx context.Context, after string) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for ctx.Err() == nil {
					blocks, err := c.page(ctx, after, 100)
					if err != nil {
						yield(0, err)
						return
					}
					for _, b := range blocks {
						if !yield(b, nil) {
							return
						}
						after = src.Cursor(b)
					}
					select {
					case <-ctx.Done():
					case <-time.After(4700 * time.Millisecond):
					}
				}
			}
		}
		l := New(src, Options[int]{Logger: quiet})
		defer shut(t, l)
		r := join(t, l, 1)
		for n := 6; n < 100; n++ {
			time.Sleep(DefaultSilence - hangTimeout + time.Duration(n)*50*time.Millisecond)
			c.grow(1)
			time.Sleep(hangTimeout)
			expect(t, r, n)
		}
		if s := l.Stats(); s.Restarts != 0 {
			t.Errorf("got %d restarts, want 0", s.Restarts)
		}
	})
}

func TestCloseWaitsForHangingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		src := c.source()
		src.Page = func(ctx context.Context, _ string, _ int) ([]int, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			panic("late")
		}
		l := New(src, Options[int]{Logger: quiet})
		l.Start()
		time.Sleep(DefaultSilence + time.Second)
		begun := time.Now()
		shut(t, l)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Close took %v, want 1s, until the call of Page returned", took)
		}
	})
}
