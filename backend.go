package chaingql

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"math/big"
	"time"
)

// Errors that a [Backend] returns, and what the Handler makes of them. They
// are matched with errors.Is, so a Backend may wrap them with its own cause.
var (
	// ErrNotFound is returned by Balance for an account that the chain never
	// saw. The client gets a balance of zero, not an error.
	ErrNotFound = errors.New("chaingql: account not found")

	// ErrCursorTooOld is returned by Blocks and Follow if a block after the
	// given cursor was pruned. The client gets CURSOR_TOO_OLD with the oldest
	// cursor that is still there.
	ErrCursorTooOld = errors.New("chaingql: cursor is older than the history kept")

	// ErrBadCursor is returned by Blocks and Follow for a cursor that is not
	// one of the Backend's own. The client gets BAD_USER_INPUT.
	ErrBadCursor = errors.New("chaingql: not a cursor of this chain")
)

// MaxPage is the largest BlocksQuery.First or Last that a Backend must serve.
const MaxPage = 1000

// A Backend is one chain: its balances, its stored blocks, and its new blocks
// as they come. It is the same chain for every project, so mount one [Handler]
// per chain. Package backendtest checks every rule below.
//
// All methods are called concurrently. Each returns promptly (within two
// seconds) when its context is done, with an error. Put a deadline of your own
// on every network call: clients of databases and lite servers are known to
// hang on a connection that dropped.
//
// Errors other than the ones named here are answered to clients as "Internal
// server error"; their text goes to the log only.
type Backend interface {
	// Balance returns an account's balance in nano-units, never negative, as
	// a value that the caller owns: it may be modified. ErrNotFound says that
	// the chain never saw the account. It should know what a masterchain block
	// changed before Follow gives that block: answers to GET are kept until the
	// next. The context is the caller's, with what the Authorizer put there.
	Balance(ctx context.Context, addr Address) (*big.Int, error)

	// Blocks returns one page of the stored blocks that match q, ascending by
	// cursor whichever end was asked for, in a slice that the caller owns.
	// Fewer blocks than asked for means that there are no more; none is no
	// error, nor is a chain that has no blocks yet. ErrCursorTooOld says that a
	// block after q.After is gone, ErrBadCursor that q.After or q.Before is
	// foreign. If q.After is "", the page is read from the oldest block that is
	// kept, whatever was pruned. A page shows the chain at one moment: read it in
	// the same transaction as what was pruned, or a block that is pruned between
	// the two reads is missing without an error.
	Blocks(ctx context.Context, q BlocksQuery) ([]Block, error)

	// Follow yields every block after the given cursor, of all workchains and
	// shards: the stored ones first, then each new one as it is committed,
	// ascending by cursor, none skipped. Where stored and new blocks meet, the
	// newest block may come twice in a row. Follow ends when ctx is done or the
	// source fails: it then yields one non-nil error. ErrCursorTooOld means that
	// a block after the cursor, or after the last block yielded, was pruned; for
	// the cursor "", that any block was pruned. ErrBadCursor means that the cursor
	// is foreign. However slowly its blocks are taken, Follow drops none; it may
	// end with an error instead. Blocks must have a block before Follow yields it.
	//
	// The Handler runs one Follow at a time for all subscribers, on a context of
	// its own. After an error it starts Follow again from its last cursor. If
	// Follow yields nothing for Options.Silence although Blocks has a newer
	// block, the Handler cancels it and starts it again.
	Follow(ctx context.Context, after Cursor) iter.Seq2[Block, error]
}

// A BalanceBatcher is a [Backend] that can look up several balances in one
// round trip. A request that asks for more than one address then makes one
// call of Balances instead of one of Balance for each.
type BalanceBatcher interface {
	// Balances returns the balances of addrs, in their order, each as Balance
	// would: nano-units, the caller's own, and nil where the chain never saw
	// the account. No address is there twice. An error is the answer for all
	// of them. At least 100 addresses must do. Balances returns promptly when its
	// context, which is the caller's as in Balance, is done.
	Balances(ctx context.Context, addrs []Address) ([]*big.Int, error)
}

// BlocksQuery asks for one page of blocks. Exactly one of First and Last is
// positive, and at most [MaxPage].
type BlocksQuery struct {
	Workchain *int32  // nil: all workchains, mixed in cursor order
	Shard     *uint64 // nil: all shards; else that shard alone, compared whole
	After     Cursor  // blocks past this cursor; "": from the oldest that is kept
	Before    Cursor  // blocks short of this cursor; "": up to the newest
	First     int     // the lowest that many
	Last      int     // the highest that many
}

// Matches reports whether q selects b, leaving aside how many q asks for.
func (q BlocksQuery) Matches(b Block) bool {
	return (q.Workchain == nil || *q.Workchain == b.Workchain) &&
		(q.Shard == nil || *q.Shard == b.Shard) &&
		b.Cursor > q.After && (q.Before == "" || b.Cursor < q.Before)
}

// A Block is what the API tells of one block.
type Block struct {
	// Workchain is -1 for the masterchain, 0 for the base workchain.
	Workchain int32
	// Shard is the shard's prefix with its terminating bit, 0x8000000000000000
	// where the workchain is not split.
	Shard uint64
	// SeqNo counts the blocks of one shard, without a gap: a shard that was
	// split off goes on from its parent's, one that was merged from the higher
	// of the two. It is not unique in a workchain. The Handler takes a number
	// that was passed over for a block that Follow left out, asks Blocks for
	// it, and where that does not have it either ends the subscriptions that
	// it concerns with STREAM_GAP.
	SeqNo uint32
	// Hash is the representation hash of the block's root cell.
	Hash Hash
	// Time is when the block was generated. Clients see whole seconds.
	Time time.Time
	// Cursor is the block's place in the total order of all blocks. It is
	// never empty.
	Cursor Cursor
}

// A Cursor is a block's place in the total order of all blocks of a chain.
// Cursors compare as strings, byte by byte ("9" is after "10"), and are opaque
// to everyone but the Backend; [ChainOrder] and [SeqCursor] make good ones. A
// cursor consists of printable ASCII characters without spaces, from '!' to '~':
// JSON, event ids and headers would change others. The Handler refuses any other
// cursor, a client's as foreign and a Backend's as an internal error.
// A cursor past the newest block is good: reading on from it waits.
//
// "" is before the oldest block there ever was. A cursor is too old
// ([ErrCursorTooOld]) if a block after it was pruned. The newest pruned block's
// own cursor is not: nothing after it is gone. A Backend that prunes must
// therefore remember that cursor, also after a restart. It never prunes the newest
// block, however old that is: the Handler continues from it after a restart.
//
// A source must commit its blocks in cursor order: one that appears below a
// cursor which was already read is never seen.
type Cursor string

// A Hash identifies a block.
type Hash [32]byte

// String returns the hash in 64 lower-case hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func (h *Hash) append(dst []byte) []byte { return appendID(dst, (*[32]byte)(h)) }
