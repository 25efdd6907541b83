package chaingql

import (
	"math/bits"
	"strconv"
)

func printable(c Cursor) bool {
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
