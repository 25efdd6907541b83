package chaingql

import (
	"encoding/base32"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"strconv"
	"strings"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// valid reports whether clients can receive the cursor and send it back.
func (c Cursor) valid() bool {
	if len(c) > MaxCursor { // before the loop: a client may send a long text with many aliases
		return false
	}
	for i := range len(c) {
		if c[i] <= ' ' || c[i] > '~' {
			return false
		}
	}
	return true
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

// The cursors that the Handler creates consist of the Backend's cursor and a suffix. The suffix has the chain's epoch,
// if there is one. After a STREAM_GAP it also has the gaps that were reported to the client (see
// [blocklog.ReportedGaps]), so that the Handler reports each gap only once.
//
//	2323m~mk2p9q!5.k3v9q0tma1b2c3d
//	^    ^      ^ ^        ^ checksum of everything before it
//	|    |      | id of the chain in this process
//	|    |      reported gaps in base 36
//	|    epoch
//	the Backend's cursor
//
// A cursor with an epoch compares as higher than the same cursor without one. The epoch does not change the order of
// two different cursors, unless one is a prefix of the other. Reported gaps do not change the order of two different
// cursors of one epoch, because "!" is the lowest byte. A process ignores the reported gaps of other processes, and
// queries ignore all of them. The checksum distinguishes them from a "!" in a Backend's own cursor.
const (
	epochSign = "~"
	gapsSign  = "!"
	idSize    = 8
	sumSize   = 7
)

// maxClientCursor is the maximum length of a cursor with its suffix. A number of 64 bits has up to 13 digits.
const maxClientCursor = MaxCursor + len(epochSign) + maxEpoch + len(gapsSign) + 13 + len(".") + idSize + sumSize

var sumEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// cursor returns a cursor of the Backend with the suffix that clients receive: the epoch and the reported gaps, if
// there are any. The cursor "" has no epoch.
func (c *chain) cursor(cursor string, gaps blocklog.ReportedGaps) string {
	if cursor != "" {
		cursor += c.suffix
	}
	if gaps == 0 {
		return cursor
	}
	cursor += gapsSign + strconv.FormatUint(uint64(gaps), 36) + "." + c.id
	return cursor + sumOf(cursor)
}

// parse splits a client's cursor into the Backend's cursor and the reported gaps. gaps is 0 if another process created
// the cursor. parse returns an error if the cursor is invalid or belongs to another epoch.
func (c *chain) parse(cursor string) (plain string, gaps blocklog.ReportedGaps, err *plan.Error) {
	if len(cursor) > maxClientCursor { // before it is searched: a client may send a long text with many aliases
		return "", 0, invalidCursor()
	}
	plain, gaps, id := cutGaps(cursor)
	if id != c.id {
		gaps = 0
	}
	epoch, foreign := "", false
	if c.suffix != "" {
		plain, epoch, foreign = strings.Cut(plain, epochSign)
		foreign = foreign && epoch != c.epoch()
	}
	switch {
	case foreign && validEpoch(epoch):
		return "", 0, epochChanged()
	case foreign, !Cursor(plain).valid():
		return "", 0, invalidCursor()
	}
	return plain, gaps, nil
}

func invalidCursor() *plan.Error { return &plan.Error{Message: "Invalid cursor", Code: plan.CodeInput} }

// parseBounds replaces the client's cursors in q with the Backend's cursors.
func (c *chain) parseBounds(q *pageQuery) error {
	for _, cursor := range []*Cursor{&q.after, &q.before} {
		plain, _, err := c.parse(string(*cursor))
		if err != nil {
			return err
		}
		*cursor = Cursor(plain)
	}
	return nil
}

// cutGaps splits a cursor into the part before the reported gaps, the reported gaps, and the id of the chain that
// created it. If it has no valid reported gaps, plain is cursor, gaps is 0 and id is "".
func cutGaps(cursor string) (plain string, gaps blocklog.ReportedGaps, id string) {
	i := strings.LastIndex(cursor, gapsSign)
	if i < 0 || len(cursor) < i+idSize+sumSize+3 {
		return cursor, 0, ""
	}
	text, sum := cursor[:len(cursor)-sumSize], cursor[len(cursor)-sumSize:]
	number, id, ok := strings.Cut(text[i+1:], ".")
	n, err := strconv.ParseUint(number, 36, 64)
	if !ok || err != nil || number[0] == '0' || len(id) != idSize || sum != sumOf(text) {
		return cursor, 0, ""
	}
	return cursor[:i], blocklog.ReportedGaps(n), id
}

func sumOf(text string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text))
	return sumEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}
