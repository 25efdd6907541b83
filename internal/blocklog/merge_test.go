package blocklog

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The last block of the lower half is missing, which the number of the merged shard does not show.
func TestBlockMissingBeforeAMergeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2}, Place{0, right, 3})
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		r := enter(t, l, of())
		f.without([]int{5}, Place{0, left, 3}, base(4), base(5))
		synctest.Wait()
		has(t, r, 5, 6, 7)
		if s := l.Stats(); s.Holes != 1 || s.Healed != 1 || s.Gaps != 0 || len(f.asked) != 1 {
			t.Errorf("stats %+v, asked %q", s, f.asked)
		}
	})
}

func TestMergeThatLacksNothingIsNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		l := openForest(t, f, Options[piece]{Events: Events[piece]{Gap: func(int32, string, bool, int) { t.Error("a gap was told") }}})
		synctest.Wait()
		r := enter(t, l, of())
		f.grow(base(3), base(4))
		synctest.Wait()
		has(t, r, 4, 5)
		if s := l.Stats(); s.Holes != 0 || !l.Window().Live {
			t.Errorf("stats %+v, %+v", s, l.Window())
		}
	})
}

// The check is for the best; the stream goes on without it.
func TestMergeThatCannotBeCheckedIsTakenAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		f.grow(base(1), Place{0, left, 2}, Place{0, right, 2})
		f.between = func(context.Context) ([]piece, error) { return nil, errDown }
		logger, text := logged()
		l := openForest(t, f, Options[piece]{Logger: logger})
		synctest.Wait()
		r := enter(t, l, of())
		f.grow(base(3), base(4))
		time.Sleep(healPatience)
		synctest.Wait()
		has(t, r, 4, 5)
		if s := l.Stats(); s.Holes != 0 || s.Gaps != 0 || !strings.Contains(text.String(), "level=WARN msg=\"blocks before a merge were not checked\"") {
			t.Errorf("stats %+v, log %s", s, text.String())
		}
	})
}
