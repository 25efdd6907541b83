package chaingql

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"math/big"
	"time"
)

// Errors of a [Backend] that have a meaning for the Handler. It matches them with errors.Is, so a Backend may wrap them
// with its own cause.
var (
	// ErrNotFound is returned by Balance for an account that has never been on the chain. The client receives a balance
	// of zero, not an error.
	ErrNotFound = errors.New("chaingql: account not found")

	// ErrCursorTooOld is returned by Blocks and Follow if a block after the given cursor was pruned. The client
	// receives CURSOR_TOO_OLD with the oldest cursor that is still stored.
	ErrCursorTooOld = errors.New("chaingql: cursor is older than the history kept")

	// ErrBadCursor is returned by Blocks and Follow for a cursor that is not one of the Backend's own. The client
	// receives BAD_USER_INPUT.
	ErrBadCursor = errors.New("chaingql: not a cursor of this chain")
)

// MaxPage is the largest BlocksQuery.First or Last that a Backend must support.
const MaxPage = 1000

// A Backend provides one chain: its balances, its stored blocks, and its new blocks as they are committed. It is the
// same chain for every project; mount one [Handler] per chain. Package backendtest checks every rule below.
//
// All methods are called concurrently. When the context is done, each must return promptly (within two seconds) with an
// error. Set a deadline of your own on every network call: clients of databases and lite servers are known to hang on
// lost connections.
//
// Clients receive other errors than the ones named here as "Internal server error". Their text goes only to the log.
type Backend interface {
	// Balance returns the balance of an account in nano-units, never negative. The caller owns the value and may modify
	// it. If the account has never been on the chain, it returns ErrNotFound. Before Follow yields a masterchain block,
	// Balance should reflect it: responses to GET are cached until the next one. ctx is the caller's, with the values
	// that the Authorizer added. The balance may depend on the project, but not on other credentials: a cached response
	// is confirmed to every client of the project.
	Balance(ctx context.Context, addr Address) (*big.Int, error)

	// Blocks returns one page of the stored blocks that match q, always ascending by cursor, in a slice that the caller
	// owns. Fewer blocks than requested mean that there are no more. No blocks are not an error, even if the chain has
	// none yet. If q.After is "", the page starts with the oldest stored block, whether older ones were pruned or not.
	// Blocks returns ErrCursorTooOld if a block after q.After was pruned, and ErrBadCursor if q.After or q.Before is
	// foreign.
	//
	// A page must show the chain at one moment. Read it in the same transaction as the position of the last pruned
	// block: otherwise a block that is pruned between the two reads is missing without an error.
	Blocks(ctx context.Context, q BlocksQuery) ([]Block, error)

	// Follow yields every block after the given cursor, of all workchains and shards, ascending by cursor and without
	// skipping one: first the stored blocks, then each new block as it is committed. At the transition, the newest
	// stored block may be yielded twice in a row. Blocks must have a block before Follow yields it. If the consumer
	// is slow, Follow drops nothing, but it may end with an error.
	//
	// When ctx is done or the source fails, Follow yields one non-nil error and ends. It yields ErrCursorTooOld if a
	// block after the cursor, or after the last block it yielded, was pruned; for the cursor "", if any block was
	// pruned. It yields ErrBadCursor if the cursor is foreign.
	//
	// The Handler runs one Follow at a time for all subscribers, with its own context. After an error it starts
	// Follow again from its last cursor. If Follow yields nothing for Options.StallTimeout although Blocks has a
	// newer block, the Handler cancels it and starts it again.
	Follow(ctx context.Context, after Cursor) iter.Seq2[Block, error]
}

// A BalanceBatcher is a [Backend] that can look up several balances in one round trip. The Handler then makes one
// call of Balances for a request with several addresses, instead of one call of Balance for each.
type BalanceBatcher interface {
	// Balances returns the balances of addrs, in the same order, in nano-units and owned by the caller. The balance
	// of an account that has never been on the chain is nil. addrs has no duplicates, and at least 100 addresses must
	// be supported. An error applies to all of them. ctx is the caller's, as for Balance; when it is done, Balances
	// must return promptly.
	Balances(ctx context.Context, addrs []Address) ([]*big.Int, error)
}

// A BlocksQuery requests one page of blocks. Exactly one of First and Last is positive, and at most [MaxPage].
type BlocksQuery struct {
	// Workchain selects one workchain. nil selects all, in cursor order.
	Workchain *int32
	// Shard selects exactly this shard, without its parents and children. nil selects all.
	Shard *uint64
	// After selects the blocks after this cursor. "" selects from the oldest stored block.
	After Cursor
	// Before selects the blocks before this cursor. "" selects up to the newest block.
	Before Cursor
	// First requests at most this many blocks from the beginning of the selection.
	First int
	// Last requests at most this many blocks from the end of the selection, in ascending order too.
	Last int
}

// Matches reports whether q selects b, ignoring First and Last.
func (q BlocksQuery) Matches(b Block) bool {
	return (q.Workchain == nil || *q.Workchain == b.Workchain) &&
		(q.Shard == nil || *q.Shard == b.Shard) &&
		b.Cursor > q.After && (q.Before == "" || b.Cursor < q.Before)
}

// A Block has the fields of a block that the API serves.
type Block struct {
	// Workchain is -1 for the masterchain and 0 for the base workchain.
	Workchain int32
	// Shard is the prefix of the shard with its terminating bit; 0x8000000000000000 if the workchain is not split.
	Shard uint64
	// SeqNo numbers the blocks of one shard without gaps. A shard that was split off continues from its parent, a
	// merged one from the higher of the two. SeqNo is not unique in a workchain. If a number is skipped, the Handler
	// assumes that Follow dropped a block and reads it from Blocks. If Blocks lacks it too, affected subscriptions
	// end with STREAM_GAP.
	SeqNo uint32
	// Hash is the representation hash of the block's root cell.
	Hash Hash
	// Time is the time at which the block was generated. Clients see whole seconds.
	Time time.Time
	// Cursor is the position of the block in the total order of all blocks. It is never empty.
	Cursor Cursor
}

// A Cursor is the position of a block in the total order of all blocks of a chain. Cursors compare as strings, byte by
// byte ("9" is after "10"). Only the Backend knows their structure; [ChainOrder] and [SeqCursor] create suitable ones.
//
// A cursor consists of printable ASCII characters without spaces, from '!' to '~': JSON, event ids and headers would
// change others. The Handler refuses any other cursor: from a client as foreign, from a Backend as an internal error.
//
// "" is before the oldest block that ever existed. A cursor after the newest block is valid: Follow waits there. A
// cursor is too old ([ErrCursorTooOld]) if a block after it was pruned. The cursor of the newest pruned block itself
// is not: no block after it is gone. A Backend that prunes must therefore remember that cursor, also after a restart.
// It must never prune the newest block, however old: the Handler continues from it after a restart.
//
// A source must commit its blocks in cursor order: a block that appears before a cursor that was already read is never
// delivered.
type Cursor string

// A Hash identifies a block.
type Hash [32]byte

// String returns the hash in 64 lower-case hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func (h *Hash) append(dst []byte) []byte { return appendID(dst, (*[32]byte)(h)) }
