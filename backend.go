package chaingql

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"math/big"
	"time"
)

// Errors of a [Backend] that change the response to the client. The Handler matches them with errors.Is, so a Backend
// may wrap them together with its own cause.
var (
	// ErrNotFound is returned by Balance for an account that has never been on the chain. The client receives a balance
	// of zero, not an error.
	ErrNotFound = errors.New("chaingql: account not found")

	// ErrCursorTooOld is returned by Blocks and Follow if a block after the given cursor was pruned. The client
	// receives CURSOR_TOO_OLD with the oldest cursor that is still stored.
	ErrCursorTooOld = errors.New("chaingql: cursor is older than the retained history")

	// ErrUnavailable is returned by any method if the database or the node cannot be reached or does not answer in
	// time, or if the Backend refuses a call because too many are in progress. The client receives SERVICE_UNAVAILABLE
	// with an id, over HTTP with status 503, and may repeat the query. The query makes no further call: all its fields
	// that need one receive this error.
	ErrUnavailable = errors.New("chaingql: backend unavailable")

	// ErrBadCursor is returned by Blocks and Follow for a cursor that is not one of the Backend's own. The client
	// receives BAD_USER_INPUT.
	ErrBadCursor = errors.New("chaingql: not a cursor of this chain")

	// ErrChainReplaced is returned by Blocks and Follow if the chain was replaced since they were called. Every
	// subscription to blocks ends, and the clients receive EPOCH_CHANGED without a cursor. See [Epocher].
	ErrChainReplaced = errors.New("chaingql: the chain was replaced by a new one")

	// ErrBlockNotFound is returned by the methods of [HashIndex], [SeqNoIndex] and [TimeIndex] if no such block is
	// stored, because it never existed, is not committed yet, or was pruned. The client receives null, not an error.
	ErrBlockNotFound = errors.New("chaingql: block not found")

	// ErrLookupNotSupported is returned by these methods if the Backend cannot know whether the block is stored, for
	// example because its index is not complete yet. The client receives LOOKUP_NOT_SUPPORTED, as it does without the
	// interface.
	ErrLookupNotSupported = errors.New("chaingql: block lookup not supported")
)

// MaxPage is the largest value of BlocksQuery.First and BlocksQuery.Last that a Backend must support.
const MaxPage = 1000

// MaxCursor is the maximum length of a [Cursor] in bytes.
const MaxCursor = 192

// A Backend provides one chain: its balances, its stored blocks, and its new blocks as they are committed. All projects
// see the same chain. To serve several chains, create one [Handler] for each. Package backendtest checks every rule
// below.
//
// All methods must be safe for concurrent use. When the context is done, a method must return an error within two
// seconds. It must never return a part of the result without an error. Set a deadline on every network call, because
// client libraries for databases and lite servers are known to hang on lost connections.
//
// If a method returns any error other than the ones named here, the client receives "Internal server error". The text
// of the error appears only in the log.
type Backend interface {
	// Balance returns the balance of an account in nano-units, never negative. The caller owns the value and may modify
	// it. If the account has never been on the chain, Balance returns ErrNotFound.
	//
	// Before Follow yields a masterchain block, Balance should reflect it, because GET responses with balances are
	// cached until the next masterchain block.
	//
	// ctx has the values that the Authorizer added. The balance may depend on the project, but not on other
	// credentials, because a cached response is confirmed (status 304) to every client of the project.
	Balance(ctx context.Context, addr Address) (*big.Int, error)

	// Blocks returns one page of the stored blocks that match q, in ascending order of their cursors. The caller owns
	// the slice. If the page has fewer blocks than requested, there are no more. An empty page is not an error, even if
	// the chain has no blocks yet. If q.After is "", the page starts with the oldest stored block, even if older blocks
	// were pruned. Blocks returns ErrCursorTooOld if a block after q.After was pruned, and ErrBadCursor if q.After or
	// q.Before is not a cursor of this chain.
	//
	// A page must show the chain at one moment. Read it in the same transaction as the position of the last pruned
	// block. Otherwise, a block that is pruned between the two reads would be missing without an error.
	Blocks(ctx context.Context, q BlocksQuery) ([]Block, error)

	// Follow yields every block after the given cursor, of all workchains and shards, in ascending order of their
	// cursors and without skipping any: first the stored blocks, then each new block as it is committed. At the
	// transition, the newest stored block may be yielded twice in a row. Before Follow yields a block, Blocks must
	// already return that block for every query that selects it. If the consumer is slow, Follow drops nothing, but it
	// may end with an error. While the consumer is busy with a block, no other call may wait for it.
	//
	// When ctx is done or the source fails, Follow yields one non-nil error and ends. The error is ErrCursorTooOld if a
	// block after the given cursor, or after the last yielded block, was pruned. For the given cursor "", the error is
	// ErrCursorTooOld if any block was pruned. The error is ErrBadCursor if the given cursor is not a cursor of this
	// chain.
	//
	// The Handler runs one Follow at a time for all subscribers, with its own context. After an error it calls Follow
	// again with the cursor of the last block. If Follow yields nothing for Options.StallTimeout although Blocks has a
	// newer block, the Handler cancels Follow and calls it again.
	Follow(ctx context.Context, after Cursor) iter.Seq2[Block, error]
}

type subscriptionsKey struct{}

// ForSubscriptions reports whether the Handler calls Blocks with ctx for its subscriptions, and not for a query of one
// client. It reads such pages when it starts, when it checks whether blocks are missing before a new one, and for
// clients that resume. A Backend that refuses calls, or lets them wait, if clients make too many should not do so with
// these: live blocks of all subscribers may wait for them. The Handler makes about 20 of them at a time at most.
func ForSubscriptions(ctx context.Context) bool { return ctx.Value(subscriptionsKey{}) != nil }

// A BalanceBatcher is a [Backend] that can read several balances in one round trip. For a request with several
// addresses, the Handler then calls Balances once, instead of Balance for each address.
type BalanceBatcher interface {
	// Balances returns the balances of addrs in nano-units, in the order of addrs. The caller owns the values. The
	// balance of an account that has never been on the chain is nil. addrs contains no duplicates. Balances must
	// support at least 100 addresses. An error applies to all addresses. ctx is as for Balance: when it is done,
	// Balances must return an error within two seconds.
	Balances(ctx context.Context, addrs []Address) ([]*big.Int, error)
}

// A CallLimiter is a [Backend] that serves only few calls at a time, for example because it has a pool of connections.
// Further calls would wait in the Backend, behind all those of clients with many queries. In the Handler, the clients
// receive slots in turns.
type CallLimiter interface {
	// CallLimit returns the number of calls for queries that the Handler makes at a time, unless the host sets
	// Limits.InFlight to something else than its default. The number should be about three times what the Backend
	// serves at a time, because each slow kind of calls receives only a part of it (see Limits.InFlight). A number that
	// is not positive, or higher than the default of InFlight, has no effect. New calls it once.
	CallLimit() int
}

// An Epocher is a [Backend] that may replace its chain, for example because a test network or an indexer started from
// the beginning. A cursor of the old chain may then belong to another block of the new one. The Handler therefore
// appends "~" and the epoch to every cursor that it creates, and refuses a cursor of another epoch with EPOCH_CHANGED.
// It removes the suffix before it passes a cursor to the Backend. The Backend's own cursors must not contain "~".
type Epocher interface {
	// Epoch returns the epoch of the Backend's chain: 1 to 32 ASCII letters and digits. Create it randomly together
	// with the chain, and store it with the chain, so that all processes return the same epoch until the chain is
	// replaced. "" means that this chain has no epoch; then nothing is appended.
	//
	// Epoch must not perform I/O and must be fast, because it is called for every block and every request. It may
	// therefore still return the old epoch when the source already has a new chain. The calls of Blocks and Follow must
	// notice that, for example by reading the epoch in the same transaction as the blocks. A call that notices a new
	// chain first makes Epoch return the new epoch, and then returns ErrChainReplaced.
	//
	// Blocks and Follow return only blocks of the chain with the epoch that Epoch returned when they were called. If
	// that chain was replaced in the meantime, they return ErrChainReplaced, no matter which call noticed it.
	Epoch() string
}

// A HashIndex is a [Backend] that can find a block by its hash. Without it, the Handler finds by hash only the blocks
// in its window (see Options.WindowSize), and of these only the newest 16,384. For any other hash, the client receives
// LOOKUP_NOT_SUPPORTED.
//
// For this interface, [SeqNoIndex] and [TimeIndex]: the methods find exactly the blocks that Blocks returns at that
// moment, with equal fields. In particular, before Follow yields a block, they must find it, and they must not find a
// pruned block. ctx and ErrChainReplaced are as for Blocks: when ctx is done, a method must return an error within two
// seconds. A lookup must be fast however long the chain is, because clients choose the blocks: use an index, do not
// scan.
type HashIndex interface {
	// BlockByHash returns the block with this hash, in any workchain and shard. It returns ErrBlockNotFound if no such
	// block is stored.
	BlockByHash(ctx context.Context, hash Hash) (Block, error)
}

// A SeqNoIndex is a [Backend] that can find a block by its number. For the rules, see [HashIndex]. Without it, the
// Handler finds by number only the blocks in its window. For any other number, the client receives
// LOOKUP_NOT_SUPPORTED.
type SeqNoIndex interface {
	// BlockBySeqNo returns the block with this number in exactly this shard of the workchain, not in its parents and
	// children. It returns ErrBlockNotFound if no such block is stored.
	BlockBySeqNo(ctx context.Context, workchain int32, shard uint64, seqNo uint32) (Block, error)
}

// A TimeIndex is a [Backend] that can find a masterchain block by its time. For the rules, see [HashIndex]. Without it,
// the Handler searches with up to 24 calls of a [SeqNoIndex] and of Blocks for each end of a range of times.
type TimeIndex interface {
	// MasterBlockByTime returns the first stored block of workchain -1 whose Time is t or later. It returns
	// ErrBlockNotFound if all stored blocks of the masterchain are earlier. t has whole seconds. The times of the
	// masterchain's blocks never decrease.
	MasterBlockByTime(ctx context.Context, t time.Time) (Block, error)
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
	// Last requests at most this many blocks from the end of the selection. They are returned in ascending order too.
	Last int
}

// Matches reports whether q selects b, ignoring First and Last.
func (q BlocksQuery) Matches(b Block) bool {
	return q.selects(&b) && b.Cursor > q.After && (q.Before == "" || b.Cursor < q.Before)
}

// A Block holds the fields of a block that the API serves.
type Block struct {
	// Workchain is the number of the workchain: -1 is the masterchain and 0 is the base workchain.
	Workchain int32
	// Shard is the shard prefix followed by a terminating 1 bit. If the workchain is not split, it is
	// 0x8000000000000000.
	Shard uint64
	// SeqNo is the number of the block in its shard. The numbers of a shard have no gaps. After a split, both shards
	// continue from the number of their parent. After a merge, the new shard continues from the higher number of the
	// two. Blocks in different shards of a workchain may have the same SeqNo.
	//
	// If Follow skips a number, the Handler assumes that Follow dropped a block, and reads the block from Blocks. If
	// Blocks does not have it either, affected subscriptions end with STREAM_GAP.
	SeqNo uint32
	// Hash is the representation hash of the block's root cell.
	Hash Hash
	// Time is the time at which the block was generated. Clients receive it in whole seconds.
	Time time.Time
	// Cursor is the position of the block in the total order of all blocks. It is never empty.
	Cursor Cursor
}

// A Cursor is the position of a block in the total order of all blocks of a chain. Cursors compare as strings, byte by
// byte ("9" is after "10"). Only the Backend knows their structure; [ChainOrder] and [SeqCursor] create suitable ones.
//
// A cursor consists of printable ASCII characters without spaces, from '!' to '~', because JSON, event ids and headers
// would alter other characters. It has at most [MaxCursor] of them, because the end of a socket reports the cursors of
// all its subscriptions. The Handler rejects any other cursor: a client that sends one receives BAD_USER_INPUT, and a
// Backend that returns one causes an internal error.
//
// The cursor "" is before the first block that ever existed. A cursor after the newest block is valid: Follow waits for
// a block after it. A cursor is too old ([ErrCursorTooOld]) if a block after it was pruned. The cursor of the newest
// pruned block is not too old, because all blocks after that one are stored. A Backend that prunes must therefore
// remember that cursor, also across restarts. It must never prune the newest block, however old, because the Handler
// continues from that block after a restart.
//
// A Backend must make blocks visible in cursor order. If a block appears before a cursor that was already read, the
// block is never delivered.
type Cursor string

// A Hash is the representation hash of a block. It identifies the block.
type Hash [32]byte

// String returns the hash as 64 lower-case hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func (h *Hash) append(dst []byte) []byte { return appendID(dst, (*[32]byte)(h)) }
