package memchain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

func TestChainPassesAllBackendRules(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Harness {
		c, chains := memchain.New(), 0
		replace := func() error {
			chains++
			c.Replace(fmt.Sprint("epoch", chains))
			return nil
		}
		_ = replace() // the first chain has an epoch, too
		return backendtest.Harness{
			Backend:    c,
			Replace:    replace,
			Append:     func(blocks []chaingql.Block) error { return c.Append(blocks...) },
			SetBalance: func(a chaingql.Address, nano *big.Int) error { c.SetBalance(a, nano); return nil },
			Prune:      func(before chaingql.Cursor) error { c.Prune(before); return nil },
			Interrupt:  func() { c.Interrupt(nil) },
		}
	})
}

// at returns blocks with these cursors and no other fields.
func at(cursors ...chaingql.Cursor) []chaingql.Block {
	blocks := make([]chaingql.Block, len(cursors))
	for i, c := range cursors {
		blocks[i] = chaingql.Block{Cursor: c}
	}
	return blocks
}

// cursors returns the cursors of a page, separated by spaces.
func cursors(t *testing.T, c *memchain.Chain, q chaingql.BlocksQuery) string {
	t.Helper()
	page, err := c.Blocks(t.Context(), q)
	if err != nil {
		t.Fatalf("Blocks failed: %v", err)
	}
	return list(page)
}

// list returns the cursors of blocks, separated by spaces.
func list(blocks []chaingql.Block) string {
	var all []string
	for _, b := range blocks {
		all = append(all, string(b.Cursor))
	}
	return strings.Join(all, " ")
}

func TestFailedAppendDoesNotChangeChain(t *testing.T) {
	long := chaingql.Cursor(strings.Repeat("a", 64))
	for _, row := range []struct {
		name   string
		blocks []chaingql.Block
		want   string // a substring of the error; "" if Append must succeed
	}{
		{"no blocks", nil, ""},
		{"ascending cursors", at("06", "07m"), ""},
		{"the longest cursor", at(long), ""},
		{"a cursor that is too long", at("06", long+"0"), "block 2 of 2 has cursor"},
		{"the newest again", at("05"), `block 1 of 1 has cursor "05", which is not greater than the previous cursor`},
		{"descending cursors", at("06", "04"), `block 2 of 2 has cursor "04", which is not greater than`},
		{"a duplicate cursor", at("06", "06"), `block 2 of 2 has cursor "06", which is not greater than`},
		{"an empty cursor", at("06", ""), `block 2 of 2 has cursor ""`},
		{
			"an invalid character", at("06", "07", "08z"),
			`block 3 of 3 has cursor "08z": chaingql: not a cursor of this chain`,
		},
		{"an upper-case digit", at("0A"), `has cursor "0A"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := memchain.New()
			if err := c.Append(at("05")...); err != nil {
				t.Fatal(err)
			}
			err := c.Append(row.blocks...)
			got := cursors(t, c, chaingql.BlocksQuery{First: 10})
			if row.want == "" {
				if want := strings.TrimSpace("05 " + list(row.blocks)); err != nil || got != want {
					t.Errorf("Append returned error %v, then the chain has %s, want no error and %s", err, got, want)
				}
			} else if err == nil || got != "05" ||
				!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Append returned error %v, then the chain has %s, want an error with %q and only 05",
					err, got, row.want)
			}
		})
	}
}

func TestAppendDoesNotKeepSlice(t *testing.T) {
	c := memchain.New()
	blocks := at("01", "02")
	if err := c.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	blocks[0].Cursor = "09"
	if got := cursors(t, c, chaingql.BlocksQuery{First: 10}); got != "01 02" {
		t.Errorf("the chain has blocks %s after the appended slice was modified, want 01 02", got)
	}
}

func TestSetBalancePanicsOnInvalidBalance(t *testing.T) {
	for _, nano := range []*big.Int{nil, big.NewInt(-1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SetBalance with balance %v did not panic", nano)
				}
			}()
			memchain.New().SetBalance(chaingql.Address{}, nano)
		}()
	}
}

func TestCursorBeforeNewestPrunedBlockIsTooOld(t *testing.T) {
	for _, row := range []struct {
		name          string
		prune         []chaingql.Cursor // arguments of successive calls of Prune
		kept          string            // cursors of the remaining blocks
		tooOld, valid []chaingql.Cursor
	}{
		{"no block pruned", []chaingql.Cursor{"", "02"}, "02 04 06 08", nil, []chaingql.Cursor{"01", "02", "09"}},
		{
			"pruned before a block", []chaingql.Cursor{"06"}, "06 08",
			[]chaingql.Cursor{"01", "02", "03"}, []chaingql.Cursor{"04", "05", "06", "08", "09"},
		},
		{
			"pruned before a cursor between two blocks", []chaingql.Cursor{"05"}, "06 08",
			[]chaingql.Cursor{"02", "03"}, []chaingql.Cursor{"04", "05", "06"},
		},
		{
			"pruned three times", []chaingql.Cursor{"03", "07", "05"}, "08",
			[]chaingql.Cursor{"02", "04", "05"}, []chaingql.Cursor{"06", "07", "08"},
		},
		{
			"all blocks except the newest pruned", []chaingql.Cursor{"0f", "f"}, "08",
			[]chaingql.Cursor{"02", "04", "05"}, []chaingql.Cursor{"06", "08", "09"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := memchain.New()
			if err := c.Append(at("02", "04", "06", "08")...); err != nil {
				t.Fatal(err)
			}
			for _, before := range row.prune {
				c.Prune(before)
			}
			if got := cursors(t, c, chaingql.BlocksQuery{First: 10}); got != row.kept {
				t.Errorf("the chain has blocks %q, want %q", got, row.kept)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for _, after := range row.tooOld {
				_, err := c.Blocks(t.Context(), chaingql.BlocksQuery{First: 1, After: after})
				if !errors.Is(err, chaingql.ErrCursorTooOld) {
					t.Errorf("Blocks after %q returned error %v, want ErrCursorTooOld", after, err)
				}
				for b, err := range c.Follow(ctx, after) {
					if !errors.Is(err, chaingql.ErrCursorTooOld) {
						t.Errorf("Follow after %q yielded cursor %q and error %v, want ErrCursorTooOld",
							after, b.Cursor, err)
						break
					}
				}
			}
			for _, after := range row.valid {
				if _, err := c.Blocks(t.Context(), chaingql.BlocksQuery{First: 1, After: after}); err != nil {
					t.Errorf("Blocks after %q failed: %v", after, err)
				}
			}
			if err := c.Append(at("08")...); err == nil {
				t.Error("Append of the newest block a second time succeeded, want an error")
			}
			if err := c.Append(at("0a")...); err != nil {
				t.Errorf("Append of a new block failed: %v", err)
			}
		})
	}
}

// read calls Follow in a goroutine and records its results. yielded returns the cursors and
// errors so far, separated by spaces.
func read(ctx context.Context, c *memchain.Chain, after chaingql.Cursor) (yielded func() string) {
	var mu sync.Mutex
	var all []string
	go func() {
		for b, err := range c.Follow(ctx, after) {
			mu.Lock()
			if err != nil {
				all = append(all, err.Error()+".")
			} else {
				all = append(all, string(b.Cursor))
			}
			mu.Unlock()
		}
	}()
	return func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

func TestFollowYieldsNewBlocksWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := memchain.New()
		yielded := read(ctx, c, "")
		began := time.Now()
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() {}, ""},
			{func() { _ = c.Append(at("01")...) }, "01"},
			{func() { _ = c.Append(at("02", "03")...) }, "01 02 03"},
			{func() { c.Prune("03") }, "01 02 03"},
			{func() { _ = c.Append(at("04")...) }, "01 02 03 04"},
			{cancel, "01 02 03 04 context canceled."},
		} {
			step.do()
			if got := yielded(); got != step.want {
				t.Errorf("Follow yielded %q, want %q", got, step.want)
			}
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("Follow took %v of the fake clock's time, want 0", passed)
		}
	})
}

func TestFollowFromFutureCursorContinuesAfterPruning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := memchain.New()
		yielded := read(ctx, c, "04")
		synctest.Wait()
		_ = c.Append(at("02", "04")...)
		c.Prune("0f") // drops block 02, which is before the cursor of the Follow
		_ = c.Append(at("05")...)
		if got := yielded(); got != "05" {
			t.Errorf("Follow yielded %q, want only block 05", got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestInterruptEndsOnlyRunningFollowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := memchain.New()
		_ = c.Append(at("01")...)
		first, second := read(ctx, c, ""), read(ctx, c, "01")
		synctest.Wait()
		c.Interrupt(errors.New("wire cut"))
		third := read(ctx, c, "")
		if a, b, d := first(), second(), third(); a != "01 wire cut." || b != "wire cut." || d != "01" {
			t.Errorf("the interrupted Follow calls yielded %q and %q, want the error of Interrupt at the end", a, b)
			t.Errorf("a Follow call after Interrupt yielded %q, want 01", d)
		}
		c.Interrupt(nil)
		if got := third(); got != "01 memchain: Follow was interrupted by Chain.Interrupt." {
			t.Errorf("after Interrupt(nil), Follow has yielded %q, want the default error", got)
		}
		cancel()
	})
}

func TestFollowEndsIfItsNextBlockIsPruned(t *testing.T) {
	c := memchain.New()
	_ = c.Append(at("01", "02")...)
	var got []string
	for b, err := range c.Follow(t.Context(), "") {
		if err != nil {
			got = append(got, err.Error())
			break
		}
		got = append(got, string(b.Cursor))
		if b.Cursor == "02" { // blocks are appended and pruned before the reader continues
			_ = c.Append(at("03", "04")...)
			c.Prune("04")
		}
	}
	if want := "01 02 " + chaingql.ErrCursorTooOld.Error(); strings.Join(got, " ") != want {
		t.Errorf("Follow yielded %q, want %q", got, want)
	}
}

func TestAppendIsPossibleInsideLoopOverFollow(t *testing.T) {
	c := memchain.New()
	_ = c.Append(at("01")...)
	n := 0
	for b, err := range c.Follow(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
		if err := c.Append(at(b.Cursor + "0")...); err != nil { // would deadlock if Follow held a lock during yield
			t.Fatal(err)
		}
	}
}
