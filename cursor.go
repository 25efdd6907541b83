package chaingql

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"github.com/chaingql/chaingql/internal/blocklog"
)

// checkCursors returns an error if a block's cursor has characters that JSON, event ids or headers would change.
func checkCursors(blocks ...Block) error {
	for i := range blocks {
		if !printable(blocks[i].Cursor) {
			return fmt.Errorf("chaingql: Backend returned cursor %.80q: it must be printable ASCII without spaces",
				blocks[i].Cursor)
		}
	}
	return nil
}

func printable(c Cursor) bool {
	for i := range len(c) {
		if c[i] <= ' ' || c[i] > '~' {
			return false
		}
	}
	return true
}

// checked wraps follow so that it ends with an error at the first cursor that is not printable.
func checked(follow iter.Seq2[Block, error]) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for b, err := range follow {
			if err == nil {
				err = checkCursors(b)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// masterchain is the workchain whose blocks determine the order of the blocks in all other workchains.
const masterchain = -1

// ChainOrder returns the cursor that the networks themselves use for a block, its chain_order. masterSeqNo is the
// sequence number of the masterchain block that first refers to the block; it is ignored for masterchain blocks.
func ChainOrder(workchain int32, shard uint64, seqNo, masterSeqNo uint32) Cursor {
	dst := make([]byte, 0, 48)
	if workchain == masterchain {
		dst = appendOrdered(dst, uint64(seqNo))
		return Cursor(append(dst, 'm'))
	}
	dst = appendOrdered(dst, uint64(masterSeqNo))
	if workchain < 0 {
		dst = append(dst, '-')
		dst = appendOrdered(dst, uint64(-int64(workchain)))
	} else {
		dst = appendOrdered(dst, uint64(workchain))
	}
	dst = appendOrdered(dst, uint64(seqNo))
	dst = appendOrdered(dst, bits.Reverse64(shard))
	return Cursor(dst)
}

// SeqCursor returns the cursor of block number n, for a source that numbers all its blocks. The cursors sort like the
// numbers.
func SeqCursor(n uint64) Cursor {
	return Cursor(appendOrdered(make([]byte, 0, 17), n))
}

// appendOrdered appends one hex digit for the length of n in hex, and then n in hex, so that the texts sort like the
// numbers.
func appendOrdered(dst []byte, n uint64) []byte {
	digits := (bits.Len64(n|1) + 3) / 4
	dst = strconv.AppendUint(dst, uint64(digits-1), 16)
	return strconv.AppendUint(dst, n, 16)
}

// After a STREAM_GAP, the cursors that the Handler creates for a stream have a suffix with the stream's mark, so that
// the Handler reports each gap to the client only once.
//
//	2323m!5.k3v9q0tma1b2c3d
//	^     ^ ^       ^ checksum of everything before it
//	|     | id of the Handler
//	|     mark in base 36
//	the Backend's cursor
//
// "!" is the lowest printable byte, so cursors compare in the same order with and without a suffix. A Handler ignores
// the marks of other Handlers, and queries ignore all marks. The checksum distinguishes a suffix from a "!" in a
// Backend's own cursor.
const (
	markSign    = "!"
	handlerSize = 8
	sumSize     = 7
)

var markText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// marked returns cursor with a suffix for mark, or cursor itself if mark is 0.
func (h *Handler) marked(cursor string, mark blocklog.Mark) string {
	if mark == 0 {
		return cursor
	}
	cursor += markSign + strconv.FormatUint(uint64(mark), 36) + "." + h.id
	return cursor + sumOf(cursor)
}

// unmarked splits a cursor into the Backend's cursor, the mark, and the id of the Handler that created the mark. If
// there is no valid suffix, plain is cursor, mark is 0 and handler is "".
func unmarked(cursor string) (plain string, mark blocklog.Mark, handler string) {
	i := strings.LastIndex(cursor, markSign)
	if i < 0 || len(cursor) < i+handlerSize+sumSize+3 {
		return cursor, 0, ""
	}
	text, sum := cursor[:len(cursor)-sumSize], cursor[len(cursor)-sumSize:]
	number, handler, ok := strings.Cut(text[i+1:], ".")
	n, err := strconv.ParseUint(number, 36, 64)
	if !ok || err != nil || len(handler) != handlerSize || sum != sumOf(text) {
		return cursor, 0, ""
	}
	return cursor[:i], blocklog.Mark(n), handler
}

// resumeAt splits a client's cursor into the Backend's cursor and the mark. mark is 0 if another Handler created it.
func (h *Handler) resumeAt(cursor string) (plain string, mark blocklog.Mark) {
	plain, mark, handler := unmarked(cursor)
	if handler != h.id {
		mark = 0
	}
	return plain, mark
}

// plainCursor returns a cursor without its suffix.
func plainCursor(cursor string) Cursor {
	plain, _, _ := unmarked(cursor)
	return Cursor(plain)
}

func sumOf(text string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text))
	return markText.EncodeToString(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}
