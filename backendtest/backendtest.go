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
	"os"
	"slices"
	"strconv"
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
	// returns must not use anything that the first Backend has cached. Append and
	// SetBalance must change its source, too. Reopen must arrange that the new Backend is
	// closed when the test ends.
	Reopen func() (chaingql.Backend, error)
	// Replace starts a new chain, like an indexer that starts from the beginning. When it
	// returns, the source has no blocks, and Append adds blocks to the new chain. The Backend
	// must be a [chaingql.Epocher]. Run calls Replace while Blocks, Follow and lookups are
	// running. They may fail with any error until Replace returns.
	Replace func() error
	// Interrupt makes every running Follow fail, like a lost connection. Calls of Follow
	// that start later must work, and other calls must succeed again within Patience.
	Interrupt func()
	// Stall makes the source stop responding, like a network that drops all packets. The
	// source must respond again after resume is called, and calls must succeed again within
	// Patience.
	Stall func() (resume func())

	// Patience is the maximum time that a rule waits for an expected result. If a rule makes
	// many calls in a row and they take longer, it makes fewer of them. Default: 10 s.
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
	basis []string // names of the rules on which this rule depends; if one of them fails, this rule is skipped
}

// The names of the rules on which other rules depend. If such a rule fails, the rules that depend on it are skipped.
const (
	balanceBasis = "Balance returns the exact value that was set"
	pageBasis    = "a page has exactly the blocks that the query selects"
	lookupBasis  = "BlockByHash and BlockBySeqNo find exactly the stored blocks"
	endBasis     = "Follow ends when its context is done"
	followBasis  = "Follow yields the stored blocks and then waits"
)

// on makes rules depend on the rule named basis.
func on(basis string, rules ...rule) []rule {
	for i := range rules {
		rules[i].basis = append(rules[i].basis, basis)
	}
	return rules
}

// needs names the Harness fields that a rule needs.
func needs(fields ...string) []string { return fields }

// rules are in the order in which Run checks them. The basis of a rule comes before it.
var rules = slices.Concat(
	[]rule{
		{name: "Balance returns ErrNotFound for an unknown account", check: unknownAccountIsNotFound},
		{name: "Balance returns the exact values in Harness.Balances", needs: needs("Balances"),
			check: recordedBalanceIsExact},
		{name: "Balances accepts 100 addresses", check: batchOf100IsAccepted},
		{name: balanceBasis, needs: needs("SetBalance"), check: balanceIsExact},
	},
	on(balanceBasis, []rule{
		{name: "Balance returns a value that the caller owns", needs: needs("SetBalance"), check: callerOwnsBalance},
		{name: "equal account IDs in different workchains have separate balances", needs: needs("SetBalance"),
			check: workchainsAreSeparate},
		{name: "Balances returns the exact values in the order of the addresses", needs: needs("SetBalance"),
			check: batchIsExact},
		{name: "Balance is correct while balances are being set", needs: needs("SetBalance"),
			check: balanceIsCorrectDuringWrites},
		{name: "balances survive a restart", needs: needs("SetBalance", "Reopen"), check: balancesSurviveRestart},
	}...),

	[]rule{
		{name: "a call whose context is already done fails", check: doneContextFails},
		{name: "a call returns promptly when its context is done", check: callReturnsWithItsContext},
		{name: "a call to a stalled source returns when its context is done", needs: needs("Stall"),
			check: stalledCallReturnsWithItsContext},
		{name: endBasis, check: followEndsWithItsContext},
	},

	[]rule{
		{name: "Epoch changes only with the chain, and no cursor contains a ~", check: epochFitsCursors},
		{name: "a restart does not change the epoch", needs: needs("Reopen"), check: epochSurvivesRestart},
		{name: "Blocks returns no blocks and no error for an empty chain", needs: needs("Append"),
			check: emptyChainHasNoBlocks},
		{name: pageBasis, check: pageMatchesQuery},
	},
	on(pageBasis, []rule{
		{name: "pages of random queries are correct", check: randomPagesAreCorrect},
		{name: "First and Last may be up to 1,000", check: pagesGoUpToMaxPage},
		{name: "Blocks returns a page that the caller owns", check: callerOwnsPage},
		{name: "a cursor before a pruned block is too old", needs: needs("Prune"),
			check: cursorBeforePrunedBlockIsTooOld},
		{name: "the cursor of the newest pruned block is not too old", needs: needs("Prune"),
			check: newestPrunedIsNotTooOld},
		{name: "a page without After starts with the oldest stored block", needs: needs("Prune"),
			check: pageStartsWithOldestStored},
		{name: "pages of a rare workchain are correct after large prunes", needs: needs("Append", "Prune"),
			check: rareWorkchainSurvivesLargePrunes},
		{name: "the newest block is never pruned", needs: needs("Append", "Prune"), check: newestIsNeverPruned},
		{name: "ErrCursorTooOld is returned after a restart too", needs: needs("Prune", "Reopen"),
			check: prunedPositionSurvivesRestart},
	}...),

	[]rule{
		{name: lookupBasis, check: lookupsAreExact},
		{name: "MasterBlockByTime finds the first block at the time or later", check: timeLookupIsExact},
	},
	on(lookupBasis, []rule{
		{name: "BlockByHash, BlockBySeqNo and MasterBlockByTime do not find pruned blocks", needs: needs("Prune"),
			check: prunedBlocksAreNotFound},
		{name: "BlockByHash, BlockBySeqNo and MasterBlockByTime find the stored blocks after a restart",
			needs: needs("Reopen"), check: lookupsSurviveRestart},
	}...),

	on(endBasis, []rule{
		{name: "Blocks and Follow preserve every field of a block", needs: needs("Append"),
			check: blockFieldsArePreserved},
		{name: "Blocks and Follow reject a foreign cursor with ErrBadCursor", check: foreignCursorIsBad},
		{name: "the empty cursor is too old for Follow if any block was pruned", needs: needs("Prune"),
			check: followFromStartIsTooOld},
		{name: followBasis, check: followYieldsStoredBlocks},
	}...),
	on(followBasis, slices.Concat([]rule{
		{name: "Follow of an empty chain waits for the first block", needs: needs("Append"),
			check: followOfEmptyChainWaits},
		{name: "Follow skips no block between the stored and the new blocks", needs: needs("Append"),
			check: followSkipsNoNewBlock},
		{name: "concurrent calls of Follow do not affect each other", check: concurrentFollows},
		{name: "no call waits while the caller of a Follow is busy", check: noCallWaitsForFollow},
		{name: "Follow drops no block if its caller reads slowly", needs: needs("Append"),
			check: slowFollowDropsNothing},
		{name: "Follow from a cursor after the newest block waits", needs: needs("Append"),
			check: followFromFutureCursorWaits},
		{name: "Follow returns when its caller breaks out of the loop", check: followReturnsAfterBreak},
		{name: "an interrupted Follow yields one error and can be resumed", needs: needs("Interrupt"),
			check: interruptedFollowCanBeResumed},
		{name: "Follow does not silently skip pruned blocks", needs: needs("Prune"), check: overtakenFollowDoesNotSkip},
		{name: "Follow continues if blocks that it has yielded are pruned", needs: needs("Append", "Prune"),
			check: followIgnoresPruningBehindIt},
	},
		on(pageBasis, []rule{
			{name: "blocks survive a restart", needs: needs("Reopen"), check: blocksSurviveRestart},
			{name: "Follow ends with ErrChainReplaced if the chain was replaced", needs: needs("Append", "Replace"),
				check: followEndsWithItsChain},
			{name: "the first call after the chain was replaced returns ErrChainReplaced",
				needs: needs("Append", "Replace"), check: firstCallNoticesNewChain},
			{name: "no page and no Follow has blocks of two chains", needs: needs("Append", "Replace"),
				check: chainsAreNotMixed},
		}...),
		on(lookupBasis, []rule{
			{name: "BlockByHash, BlockBySeqNo and MasterBlockByTime find each block that Follow has yielded",
				needs: needs("Append"), check: followedBlocksAreFound},
			{name: "BlockByHash, BlockBySeqNo and MasterBlockByTime are correct while blocks are pruned",
				needs: needs("Append", "Prune"), check: lookupsAreCorrectDuringPrune},
		}...),
		on(pageBasis, []rule{
			{name: "Blocks returns each block that Follow has yielded", needs: needs("Append"),
				check: followedBlocksAreStored},
			{name: "Blocks and Follow are correct while blocks are appended", needs: needs("Append"),
				check: correctDuringAppend},
			{name: "Blocks and Follow are correct while blocks are pruned", needs: needs("Append", "Prune"),
				check: correctDuringPrune},
		}...),
	)...),
)

// Run checks a Backend against the rules of [chaingql.Backend]. Each rule is a subtest
// with a new source, whose failures are reported at the line that calls Run.
//
// Run skips each rule that needs a Harness field that is not set, and prints the skipped
// rules to standard error. If a rule fails, it also skips the rules that would fail for
// the same reason, and logs their names.
//
// Each call of open must create a new source and register its cleanup with t.Cleanup.
// Run the test with the race detector if possible.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	var skipped string
	try := make([]bool, len(rules))
	if !t.Run("the source opens", func(t *testing.T) {
		t.Helper()
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
		fmt.Fprintln(os.Stderr, skipped)
	}
	failed := map[string]bool{} // by name of a rule; also rules that were skipped because another one failed
	var unchecked []string
	for i, ru := range rules {
		switch {
		case !try[i]:
		case slices.ContainsFunc(ru.basis, func(name string) bool { return failed[name] }):
			failed[ru.name] = true
			unchecked = append(unchecked, strconv.Quote(ru.name))
		default:
			failed[ru.name] = !t.Run(ru.name, func(t *testing.T) {
				t.Helper()
				for _, failure := range ru.try(open(t)) {
					t.Error(failure)
				}
			})
		}
	}
	if unchecked != nil {
		t.Logf("backendtest: skipped %d rules that depend on a failed rule: %s",
			len(unchecked), strings.Join(unchecked, ", "))
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
		if c := h.Blocks[i].Cursor; cursorFault(c) != "" {
			return fmt.Sprintf("Harness.Blocks has cursor %q", c) + cursorFault(c)
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
		"Replace": h.Replace != nil,
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
