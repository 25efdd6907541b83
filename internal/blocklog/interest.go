package blocklog

import "github.com/chaingql/chaingql/internal/xsync"

// An Interest describes the blocks that a Reader needs.
type Interest[B any] struct {
	// Key identifies Eval and Concerns: Readers with equal keys must have functions that return equal results. Each
	// block is evaluated once for all of these Readers, with the Eval of the one that joined first.
	Key string

	// After is the cursor from which to resume. Any string is allowed. If the cursor is after the newest block, the
	// Reader waits for later blocks. If the source reports that it does not have the blocks after the cursor, the
	// Reader ends with a [*Lost].
	//
	// If After is nil, the Reader receives every block that arrives after Join. If the Log does not know its position
	// in the source, because it has just been started or the source has lost its history, such a Reader starts after
	// the newest block that the source returns next, or ends with ErrNoPosition.
	After *string

	// Reported is the value that a Reader returned together with the cursor After. It is zero if there is none.
	Reported ReportedGaps

	// Eval returns the payload of a block, or nil if the block does not match. It must be pure and safe for concurrent
	// use: it is called on goroutines of the Log for a new block, and by Next for an older one. Many Readers share the
	// payload and must not change it. If Eval panics on a new block, all Readers with its Key end with a [*Lost]; on an
	// older block, only the Reader whose Next evaluates the block ends.
	Eval func(B) []byte

	// SearchBlocks is the maximum number of blocks for which one call of Next calls Eval. Set it so that they take a
	// fraction of a millisecond. The maximum is 64, which is also the default.
	SearchBlocks int

	// Concerns reports whether a block in the workchain may match. If it returns false, the Reader does not end with
	// ErrGap because of a block that is missing there. Nil means that blocks in all workchains may match. Concerns must
	// be pure.
	Concerns func(workchain int32) bool

	// Wake, if not nil, is called when Next may return a block or the Reader has ended. It may also be called without
	// such a reason, before Join has returned, and once more shortly after the Reader was closed. No lock is held
	// during the call, so it may call Join and the methods of the Reader. It must not block, because that delays the
	// next block for all Readers. The Wake functions of different Readers may run concurrently.
	//
	// If After is set, blocks may be available from the start: call Next once without waiting for Wake.
	Wake xsync.Waker

	// Client, if not nil, is the connection of the Reader. The Log keeps few pages of stored blocks at once for one
	// Client, because it may never read them.
	Client *Client

	// Reader, if not nil, is the memory for the Reader that Join returns. The caller must not use it for another one.
	Reader *Reader[B]
}
