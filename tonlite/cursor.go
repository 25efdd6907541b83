package tonlite

import (
	"math/bits"
	"strconv"

	"github.com/chaingql/chaingql"
)

// A place is a parsed cursor. The cursor must have the form that chaingql.ChainOrder returns.
type place struct {
	master uint32 // seq_no of the masterchain block, or of the one that commits to the shard block
	last   bool   // whether this is the masterchain block, which comes after its shard blocks
}

func parseCursor(c chaingql.Cursor) (p place, err error) {
	rest := string(c)
	master, ok := readOrdered(&rest, 32)
	if !ok {
		return p, chaingql.ErrBadCursor
	}
	p.master = uint32(master)
	if rest == "m" {
		p.last = true
		return p, nil
	}
	sign := int64(1)
	if rest != "" && rest[0] == '-' {
		rest, sign = rest[1:], -1
	}
	workchain, ok1 := readOrdered(&rest, 32)
	seqNo, ok2 := readOrdered(&rest, 32)
	shard, ok3 := readOrdered(&rest, 64)
	if !ok1 || !ok2 || !ok3 || rest != "" ||
		chaingql.ChainOrder(int32(sign*int64(workchain)), bits.Reverse64(shard), uint32(seqNo), p.master) != c {
		return p, chaingql.ErrBadCursor
	}
	return p, nil
}

// readOrdered removes a number of at most size bits from the beginning of s and returns it. The
// number consists of one hexadecimal digit, which is the number of digits that follow minus one,
// and these digits.
func readOrdered(s *string, size int) (n uint64, ok bool) {
	if *s == "" {
		return 0, false
	}
	length, err := strconv.ParseUint((*s)[:1], 16, 8)
	if err != nil || len(*s) < int(length)+2 {
		return 0, false
	}
	digits := (*s)[1 : length+2]
	*s = (*s)[length+2:]
	n, err = strconv.ParseUint(digits, 16, size)
	return n, err == nil && strconv.FormatUint(n, 16) == digits
}
