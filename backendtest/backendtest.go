// Package backendtest checks a [chaingql.Backend] against every rule of its
// contract, and makes chains of blocks for tests.
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

// A Harness is a Backend under test and what a test can do to its source. Only
// Backend is required, together with Append or Blocks; a nil func says that the
// source cannot do it, and the rules that need it are left out. The funcs may
// be called while the Backend is in use, SetBalance and Append concurrently, and
// SetBalance for several accounts at the same time.
type Harness struct {
	Backend chaingql.Backend

	// Append commits blocks in the order given. What it has taken, the
	// Backend's next Blocks finds. Where there is an Append, the source must
	// be empty when it is opened.
	Append func(blocks []chaingql.Block) error
	// Blocks is all that the source holds, ascending by cursor, where there
	// is no Append, at least 30 blocks and better a few hundred, of several
	// shards. It must not change during a test.
	Blocks []chaingql.Block
	// Cursor makes the n-th cursor of a source that numbers its blocks by
	// itself, such as [chaingql.SeqCursor]. It must ascend with n, which
	// counts from 1 and leaves some numbers out. Nil: the blocks that Append
	// gets have cursors made by [chaingql.ChainOrder].
	Cursor func(n uint64) chaingql.Cursor
	// Foreign is a cursor that is not one of the Backend's own. "": "a foreign cursor!".
	Foreign chaingql.Cursor

	// SetBalance gives an account a balance, of which it keeps a copy.
	SetBalance func(addr chaingql.Address, nano *big.Int) error
	// Balances has accounts that the source knows when it is opened.
	Balances map[chaingql.Address]*big.Int

	// Prune drops all blocks below a cursor, which may be past the newest block: that
	// one is kept. It is called while pages are read and Follows run, by one goroutine
	// at a time.
	Prune func(before chaingql.Cursor) error
	// Reopen opens the source again, as a program does that was restarted: the Backend
	// that it returns has nothing of what the first one knows by heart. It is closed
	// with the test.
	Reopen func() (chaingql.Backend, error)
	// Interrupt makes every Follow that is running fail, as a lost connection
	// does; the next one must do well again.
	Interrupt func()
	// Stall makes the source say nothing, as a network does that drops
	// packets, until resume is called.
	Stall func() (resume func())

	// Patience is how long the kit waits for what must come. Default 10 s.
	Patience time.Duration
}

// Prompt is how long a Backend may take to return once its context is done.
const Prompt = 2 * time.Second

const (
	fewest          = 30
	defaultPatience = 10 * time.Second
	defaultForeign  = "a foreign cursor!"
)

// A rule is one sentence of the contract.
type rule struct {
	name  string
	needs []string // fields of Harness
	check func(*trial)
}

var rules = []rule{
	{"balances come back exactly", needs("SetBalance"), balancesComeBackExactly},
	{"a balance is the caller's own", needs("SetBalance"), balanceIsTheCallersOwn},
	{"accounts of all workchains are told apart", needs("SetBalance"), workchainsAreToldApart},
	{"recorded balances come back exactly", needs("Balances"), recordedBalancesComeBack},
	{"an unknown account is ErrNotFound", nil, unknownAccountIsNotFound},
	{"Balances says what Balance does", needs("SetBalance"), balancesTogether},
	{"Balances takes 100 addresses", nil, manyBalancesTogether},
	{"balances hold while they are written", needs("SetBalance"), balancesHoldWhileWritten},

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
	{"a block that Follow gave is in Blocks", needs("Append"), followedBlocksAreStored},
	{"a Follow that is read slowly drops nothing", needs("Append"), slowFollowDropsNothing},
	{"a cursor past the newest block waits", needs("Append"), cursorPastTheNewestWaits},
	{"a Follow that is left ends", nil, followThatIsLeftEnds},
	{"an interrupted Follow ends with one error and can be resumed", needs("Interrupt"), interruptedFollowCanBeResumed},
	{"a Follow that pruning overtakes does not skip", needs("Prune"), overtakenFollowDoesNotSkip},

	{"a call whose context is done fails", nil, doneContextFails},
	{"a call returns when its context is done", nil, callReturnsWithItsContext},
	{"a call to a stalled source returns when its context is done", needs("Stall"), stalledCallReturnsWithItsContext},
	{"a Follow ends when its context is done", nil, followEndsWithItsContext},

	{"pages and Follows hold while blocks are appended", needs("Append"), allHoldsUnderLoad},
	{"pages and Follows hold while blocks are pruned", needs("Append", "Prune"), allHoldsWhilePruned},
}

func needs(fields ...string) []string { return fields }

// Run checks a Backend against every rule of [chaingql.Backend] that its
// source can be put through, each in a subtest with a source of its own. It
// logs one line on the rules that it left out.
//
// Every call of open returns a new source, opened with the subtest that uses
// it and closed by its t.Cleanup. Run is best used under the race detector.
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

// fault says what is wrong with the harness itself.
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

// lacks names what a rule needs and the source cannot do.
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
