package blocklog

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// For example, testing.T.FailNow calls runtime.Goexit.
func TestGoexitInTheSourceCountsAsItsFailure(t *testing.T) {
	for _, in := range []string{"Recent", "Follow", "block of Follow", "Page"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var once sync.Once
				reach := func(where string) {
					if where == in {
						once.Do(runtime.Goexit)
					}
				}
				c := newChain(3)
				real := c.source()
				src := real
				src.Recent = func(ctx context.Context, n int) ([]int, error) {
					reach("Recent")
					return real.Recent(ctx, n)
				}
				src.Follow = func(ctx context.Context, after string) iter.Seq2[int, error] {
					reach("Follow")
					return func(yield func(int, error) bool) {
						for n, err := range real.Follow(ctx, after) {
							if reach("block of Follow"); !yield(n, err) {
								return
							}
						}
					}
				}
				src.Page = func(ctx context.Context, after string, n int) ([]int, error) {
					reach("Page")
					return real.Page(ctx, after, n)
				}
				logger, text := logged()
				l := New(src, Options[int]{Logger: logger})
				defer shut(t, l)
				r := resume(t, l, cursorOf(1), 1)
				_, _ = read(t, r) // requests the page
				time.Sleep(time.Minute)
				c.grow(2)
				expectAll(t, r, 2, 3, 4, 5)
				if !strings.Contains(text.String(), "runtime.Goexit was called") {
					t.Errorf("the log does not report it: %s", text)
				}
			})
		})
	}
}
