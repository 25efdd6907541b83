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

// A Harness holds a Backend under test and functions that change its source. Backend
// is required, and either Append or Blocks. If another field is nil, the rules that
// need it are skipped. The functions may be called while the Backend is in use.
// SetBalance may run concurrently with Append, and with itself for other accounts.
type Harness struct {
	// Backend is the Backend under test.
	Backend chaingql.Backend

	// Append commits blocks in the given order. When it returns, Blocks of the Backend
	// must find them. If Append is set, the source must be empty when it is opened.
	Append func(blocks []chaingql.Block) error
	// Blocks holds all blocks of the source if Append is nil, ascending by cursor. There
	// must be at least 30 blocks, of several shards; a few hundred are better. The source
	// must not change during a test.
	Blocks []chaingql.Block
	// Cursor returns the n-th cursor of a source that numbers its blocks itself, as
	// [chaingql.SeqCursor] does. It must ascend with n, which starts at 1 and skips some
	// numbers. If it is nil, blocks passed to Append have cursors of [chaingql.ChainOrder].
	Cursor func(n uint64) chaingql.Cursor
	// Foreign is a cursor that the Backend must reject. Default: "a foreign cursor!".
	Foreign chaingql.Cursor

	// SetBalance sets the balance of an account. It must copy nano.
	SetBalance func(addr chaingql.Address, nano *big.Int) error
	// Balances holds the balances of accounts that exist when the source is opened.
	Balances map[chaingql.Address]*big.Int

	// Prune drops all blocks below a cursor, but never the newest block, even if the
	// cursor is past it. It is called while pages are read and Follows run, by one
	// goroutine at a time.
	Prune func(before chaingql.Cursor) error
	// Reopen opens the source again, like a restarted program: the Backend that it
	// returns must not use state that the first one has cached. It must be closed when
	// the test ends.
	Reopen func() (chaingql.Backend, error)
	// Interrupt makes every running Follow fail, like a lost connection. Later Follows
	// must work.
	Interrupt func()
	// Stall makes the source stop responding, like a network that drops packets, until
	// resume is called.
	Stall func() (resume func())

	// Patience is the maximum time to wait for an expected result. Default: 10 s.
	Patience time.Duration
}

// Prompt is the maximum time in which a call must return after its context is done.
const Prompt = 2 * time.Second

const (
	fewest          = 30
	defaultPatience = 10 * time.Second
	defaultForeign  = "a foreign cursor!"
)

// A rule checks one sentence of the contract.
type rule struct {
	name  string
	needs []string // fields of Harness
	check func(*trial)
}

var rules = []rule{
	{"balances come back exactly", needs("SetBalance"), balancesComeBackExactly},
	{"a balance is the caller's own", needs("SetBalance"), balanceIsTheCallersOwn},
	{"accounts of different workchains have separate balances", needs("SetBalance"), workchainsAreToldApart},
	{"recorded balances come back exactly", needs("Balances"), recordedBalancesComeBack},
	{"an unknown account is ErrNotFound", nil, unknownAccountIsNotFound},
	{"Balances agrees with Balance", needs("SetBalance"), balancesTogether},
	{"Balances takes 100 addresses", nil, manyBalancesTogether},
	{"balances hold while they are written", needs("SetBalance"), balancesHoldWhileWritten},
	{"balances are remembered after a restart", needs("SetBalance", "Reopen"), balancesAreRememberedAfterRestart},

	{"an empty chain has no blocks and no error", needs("Append"), emptyChainHasNoBlocks},
	{"blocks come back exactly", needs("Append"), blocksComeBackExactly},
	{"a page is what was asked for", nil, pageIsWhatWasAskedFor},
	{"random pages are right", nil, randomPagesAreRight},
	{"First and Last go up to 1,000", nil, pagesGoUpToMaxPage},
	{"a page is the caller's own", nil, pageIsTheCallersOwn},
	{"a foreign cursor is ErrBadCursor", nil, foreignCursorIsBad},
	{"pruned history is ErrCursorTooOld", needs("Prune"), prunedHistoryIsTooOld},
	{"the newest pruned block's own cursor is not too old", needs("Prune"), newestPrunedIsNotTooOld},
	{"a page without After begins with the oldest block kept", needs("Prune"), pageBeginsWithTheOldestKept},
	{"a Follow from the start is too old once a block is pruned", needs("Prune"), followFromTheBeginningIsTooOld},
	{"the newest block is never pruned", needs("Append", "Prune"), newestIsNeverPruned},
	{"what was pruned is remembered after a restart", needs("Prune", "Reopen"), prunedIsRememberedAfterRestart},

	{"Follow yields the stored blocks and waits", nil, followYieldsStoredBlocks},
	{"Follow of an empty chain waits", needs("Append"), followOfEmptyChainWaits},
	{"Follow has no seam between stored and new blocks", needs("Append"), followHasNoSeam},
	{"several Follows do not mind each other", nil, severalFollows},
	{"a block that Follow yielded is in Blocks", needs("Append"), followedBlocksAreStored},
	{"a Follow that is read slowly drops nothing", needs("Append"), slowFollowDropsNothing},
	{"a cursor past the newest block waits", needs("Append"), cursorPastTheNewestWaits},
	{"a Follow ends when its caller breaks out of the loop", nil, followThatIsLeftEnds},
	{"an interrupted Follow ends with one error and can be resumed", needs("Interrupt"), interruptedFollowCanBeResumed},
	{"a Follow that pruning overtakes does not skip", needs("Prune"), overtakenFollowDoesNotSkip},
	{"a Follow that has read what is pruned goes on", needs("Append", "Prune"), followThatIsAheadGoesOn},

	{"a call whose context is done fails", nil, doneContextFails},
	{"a call returns when its context is done", nil, callReturnsWithItsContext},
	{"a call to a stalled source returns when its context is done", needs("Stall"), stalledCallReturnsWithItsContext},
	{"a Follow ends when its context is done", nil, followEndsWithItsContext},

	{"pages and Follows hold while blocks are appended", needs("Append"), allHoldsUnderLoad},
	{"pages and Follows hold while blocks are pruned", needs("Append", "Prune"), allHoldsWhilePruned},
}

func needs(fields ...string) []string { return fields }

// Run checks a Backend against the rules of [chaingql.Backend], each in a subtest
// with a source of its own. It skips rules that need a field which the Harness lacks,
// and logs them in one line.
//
// Each call of open must return a new source and register its cleanup with t.Cleanup.
// Run the test with the race detector if possible.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	var left string
	try := make([]bool, len(rules))
	if !t.Run("the source opens", func(t *testing.T) {
		h := open(t)
		if fault := h.fault(); fault != "" {
			t.Fatal(fault)
		}
		left = h.leavesOut()
		for i, ru := range rules {
			try[i] = h.lacks(ru) == ""
		}
	}) {
		return
	}
	if left != "" {
		t.Log(left)
	}
	for i, ru := range rules {
		if try[i] {
			t.Run(ru.name, func(t *testing.T) { ru.try(t, open(t)) })
		}
	}
}

// fault returns a message if the harness is invalid, and otherwise "".
func (h Harness) fault() string {
	switch {
	case h.Backend == nil:
		return "Harness has no Backend"
	case h.Append == nil && len(h.Blocks) < fewest:
		return fmt.Sprintf("Harness has no Append, and %d Blocks: at least %d are needed", len(h.Blocks), fewest)
	}
	for i := range h.Blocks {
		if c := h.Blocks[i].Cursor; !printable(c) {
			return fmt.Sprintf("Harness.Blocks has cursor %q", c) + notPrintable
		}
		if i > 0 && h.Blocks[i].Cursor <= h.Blocks[i-1].Cursor {
			return fmt.Sprintf("Harness.Blocks has cursor %q after %q: they must ascend", h.Blocks[i].Cursor, h.Blocks[i-1].Cursor)
		}
	}
	return ""
}

// lacks returns the first field that ru needs and h does not set, or "".
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

// leavesOut returns the log line about skipped rules, or "" if there are none.
func (h Harness) leavesOut() string {
	var left []string
	for _, ru := range rules {
		if field := h.lacks(ru); field != "" {
			left = append(left, fmt.Sprintf("%q (no Harness.%s)", ru.name, field))
		}
	}
	if left == nil {
		return ""
	}
	return fmt.Sprintf("backendtest: left out %d of %d rules: %s", len(left), len(rules), strings.Join(left, ", "))
}
