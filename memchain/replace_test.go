package memchain_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestReplaceEndsFollowAndStartsAnEmptyChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memchain.New()
		if c.Epoch() != "" {
			t.Errorf("a new chain has the epoch %q", c.Epoch())
		}
		c.Replace("one")
		if err := c.Append(at("01", "02", "03")...); err != nil {
			t.Fatal(err)
		}
		c.Prune("02")
		var got []chaingql.Block
		var end error
		go func() {
			for b, err := range c.Follow(t.Context(), "01") {
				if end = err; err == nil {
					got = append(got, b)
				}
			}
		}()
		synctest.Wait()
		late := c.Follow(t.Context(), "02") // called before, read after
		c.Replace("two")
		if err := c.Append(at("01", "04")...); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if list(got) != "02 03" || !errors.Is(end, chaingql.ErrChainReplaced) {
			t.Errorf("Follow yielded %q and ended with %v", list(got), end)
		}
		for b, err := range late {
			if !errors.Is(err, chaingql.ErrChainReplaced) {
				t.Errorf("Follow of the old chain yielded %v, %v", b, err)
			}
		}
		if got := cursors(t, c, chaingql.BlocksQuery{First: 9}); got != "01 04" || c.Epoch() != "two" {
			t.Errorf("the new chain has the blocks %q and the epoch %q", got, c.Epoch())
		}
	})
}

func TestReplaceRejectsInvalidEpochs(t *testing.T) {
	c := memchain.New()
	c.Replace("same")
	for _, epoch := range []string{"", "same", "a~b", "a b", "ü", "012345678901234567890123456789012"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Replace accepted the epoch %q", epoch)
				}
			}()
			c.Replace(epoch)
		}()
	}
}
