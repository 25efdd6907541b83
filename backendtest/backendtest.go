// Package backendtest checks a [chaingql.Backend] against every rule of its
// contract, and generates chains of blocks for tests.
//
//	func TestBackend(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Harness {
//			c := memchain.New()
//			return backendtest.Harness{
//				Backend: c,
//				Append:  func(blocks []chaingql.Block) error { return c.Append(blocks...) },
//			}
//		})
//	}
package backendtest

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// A Harness holds a Backend under test and functions that change its source. Set Backend,
// and either Append or Blocks. All other fields are optional: [Run] skips each rule that
// needs a field that is not set.
//
// Run calls the functions while it uses the Backend. It may call SetBalance concurrently
// with Append, and concurrently with another SetBalance for a different account.
type Harness struct {
	// Backend is the Backend under test.
	Backend chaingql.Backend

	// Append commits blocks in the given order. When Append returns, Backend.Blocks must
	// find the new blocks. If Append is set, the source must be empty when it is opened.
	Append func(blocks []chaingql.Block) error
	// Blocks holds all blocks of the source, ascending by cursor. It is used only if Append
	// is nil. It must have at least 30 blocks, from several shards; a few hundred are
	// better. The source must not change during a test.
	Blocks []chaingql.Block
	// Cursor returns the cursor for the number n, like [chaingql.SeqCursor]. Set it if the
	// source does not use the cursors of [chaingql.ChainOrder]: the blocks that Run passes
	// to Append then have cursors made by this function. A greater n must yield a greater
	// cursor. n is at least 1, and Run does not use every number.
	Cursor func(n uint64) chaingql.Cursor
	// Foreign is a cursor that the Backend must reject. Default: "a foreign cursor!".
	Foreign chaingql.Cursor

	// SetBalance sets the balance of an account. It must copy nano.
	SetBalance func(addr chaingql.Address, nano *big.Int) error
	// Balances holds the balances of some accounts that exist when the source is opened.
	Balances map[chaingql.Address]*big.Int

	// Prune drops all blocks with a cursor less than before. It must keep the newest
	// block of the chain even if the cursor of that block is less than before. Run calls
	// Prune while Blocks and Follow are running, but from only one goroutine at a time.
	Prune func(before chaingql.Cursor) error
	// Reopen opens the source again, like a restarted program: the Backend that it
	// returns must not use anything that the first Backend has cached. Reopen must
	// arrange that the new Backend is closed when the test ends.
	Reopen func() (chaingql.Backend, error)
	// Interrupt makes every running Follow fail, like a lost connection. Calls of Follow
	// that start later must work.
	Interrupt func()
	// Stall makes the source stop responding, like a network that drops all packets. The
	// source must respond again after resume is called.
	Stall func() (resume func())

	// Patience is the maximum time that a rule waits for an expected result. Default: 10 s.
	Patience time.Duration
}

// Prompt is the maximum time in which a call must return after its context is done.
const Prompt = 2 * time.Second

const (
	minBlocks       = 30
	defaultPatience = 10 * time.Second
	defaultForeign  = "a foreign cursor!"
)

// A rule checks one requirement of the contract of [chaingql.Backend].
type rule struct {
	name  string
	needs []string // names of the Harness fields that must be set
	check func(*trial)
}

var rules = []rule{
	{"Balance returns the exact value that was set", needs("SetBalance"), balanceIsExact},
	{"Balance returns a value that the caller owns", needs("SetBalance"), callerOwnsBalance},
	{"equal account IDs in different workchains have separate balances", needs("SetBalance"), workchainsAreSeparate},
	{"Balance returns the exact values in Harness.Balances", needs("Balances"), recordedBalanceIsExact},
	{"Balance returns ErrNotFound for an unknown account", nil, unknownAccountIsNotFound},
	{"Balances returns the exact values in the order of the addresses", needs("SetBalance"), batchIsExact},
	{"Balances accepts 100 addresses", nil, batchOf100IsAccepted},
	{"Balance is correct while balances are being set", needs("SetBalance"), balanceIsCorrectDuringWrites},
	{"balances survive a restart", needs("SetBalance", "Reopen"), balancesSurviveRestart},

	{"Blocks returns no blocks and no error for an empty chain", needs("Append"), emptyChainHasNoBlocks},
	{"Blocks and Follow preserve every field of a block", needs("Append"), blockFieldsArePreserved},
	{"a page has exactly the blocks that the query selects", nil, pageMatchesQuery},
	{"pages of random queries are correct", nil, randomPagesAreCorrect},
	{"First and Last may be up to 1,000", nil, pagesGoUpToMaxPage},
	{"Blocks returns a page that the caller owns", nil, callerOwnsPage},
	{"Blocks and Follow reject a foreign cursor with ErrBadCursor", nil, foreignCursorIsBad},
	{"a cursor before a pruned block is too old", needs("Prune"), cursorBeforePrunedBlockIsTooOld},
	{"the cursor of the newest pruned block is not too old", needs("Prune"), newestPrunedIsNotTooOld},
	{"a page without After starts with the oldest stored block", needs("Prune"), pageStartsWithOldestStored},
	{"the empty cursor is too old for Follow if any block was pruned", needs("Prune"), followFromStartIsTooOld},
	{"the newest block is never pruned", needs("Append", "Prune"), newestIsNeverPruned},
	{"ErrCursorTooOld is returned after a restart too", needs("Prune", "Reopen"), prunedPositionSurvivesRestart},

	{"Follow yields the stored blocks and then waits", nil, followYieldsStoredBlocks},
	{"Follow of an empty chain waits for the first block", needs("Append"), followOfEmptyChainWaits},
	{"Follow skips no block between the stored and the new blocks", needs("Append"), followSkipsNoNewBlock},
	{"concurrent calls of Follow do not affect each other", nil, concurrentFollows},
	{"Blocks returns each block that Follow has yielded", needs("Append"), followedBlocksAreStored},
	{"Follow drops no block if its caller reads slowly", needs("Append"), slowFollowDropsNothing},
	{"Follow from a cursor after the newest block waits", needs("Append"), followFromFutureCursorWaits},
	{"Follow returns when its caller breaks out of the loop", nil, followReturnsAfterBreak},
	{"an interrupted Follow yields one error and can be resumed", needs("Interrupt"), interruptedFollowCanBeResumed},
	{"Follow does not silently skip pruned blocks", needs("Prune"), overtakenFollowDoesNotSkip},
	{"Follow continues if blocks that it has yielded are pruned", needs("Append", "Prune"), followIgnoresPruningBehindIt},

	{"a call whose context is already done fails", nil, doneContextFails},
	{"a call returns promptly when its context is done", nil, callReturnsWithItsContext},
	{"a call to a stalled source returns when its context is done", needs("Stall"), stalledCallReturnsWithItsContext},
	{"Follow ends when its context is done", nil, followEndsWithItsContext},

	{"Blocks and Follow are correct while blocks are appended", needs("Append"), correctDuringAppend},
	{"Blocks and Follow are correct while blocks are pruned", needs("Append", "Prune"), correctDuringPrune},
}

func needs(fields ...string) []string { return fields }

// Run checks a Backend against the rules of [chaingql.Backend]. Each rule is a subtest
// with a new source. Run skips each rule that needs a Harness field that is not set, and
// logs the skipped rules in one line.
//
// Each call of open must create a new source and register its cleanup with t.Cleanup.
// Run the test with the race detector if possible.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	var skipped string
	try := make([]bool, len(rules))
	if !t.Run("the source opens", func(t *testing.T) {
		h := open(t)
		if fault := h.fault(); fault != "" {
			t.Fatal(fault)
		}
		skipped = h.skippedRules()
		for i, ru := range rules {
			try[i] = h.lacks(ru) == ""
		}
	}) {
		return
	}
	if skipped != "" {
		t.Log(skipped)
	}
	for i, ru := range rules {
		if try[i] {
			t.Run(ru.name, func(t *testing.T) { ru.try(t, open(t)) })
		}
	}
}

// fault returns a description of the problem if h is invalid, or "" if h is valid.
func (h Harness) fault() string {
	switch {
	case h.Backend == nil:
		return "Harness.Backend is nil"
	case h.Append == nil && len(h.Blocks) < minBlocks:
		return fmt.Sprintf("Harness.Append is nil and Harness.Blocks has %d blocks: it needs at least %d",
			len(h.Blocks), minBlocks)
	}
	for i := range h.Blocks {
		if c := h.Blocks[i].Cursor; !printable(c) {
			return fmt.Sprintf("Harness.Blocks has cursor %q", c) + notPrintable
		}
		if i > 0 && h.Blocks[i].Cursor <= h.Blocks[i-1].Cursor {
			return fmt.Sprintf("Harness.Blocks has cursor %q after %q: cursors must ascend",
				h.Blocks[i].Cursor, h.Blocks[i-1].Cursor)
		}
	}
	return ""
}

// lacks returns the name of the first field that ru needs and h does not set, or "" if h sets all of them.
func (h Harness) lacks(ru rule) string {
	has := map[string]bool{
		"Append": h.Append != nil, "SetBalance": h.SetBalance != nil, "Balances": len(h.Balances) > 0,
		"Prune": h.Prune != nil, "Reopen": h.Reopen != nil, "Interrupt": h.Interrupt != nil, "Stall": h.Stall != nil,
	}
	for _, field := range ru.needs {
		if !has[field] {
			return field
		}
	}
	return ""
}

// skippedRules returns the log line about the rules that h skips, or "" if it skips none.
func (h Harness) skippedRules() string {
	var skipped []string
	for _, ru := range rules {
		if field := h.lacks(ru); field != "" {
			skipped = append(skipped, fmt.Sprintf("%q (Harness.%s is not set)", ru.name, field))
		}
	}
	if skipped == nil {
		return ""
	}
	return fmt.Sprintf("backendtest: skipped %d of %d rules: %s", len(skipped), len(rules), strings.Join(skipped, ", "))
}
