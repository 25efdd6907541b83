package backendtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"
)

// pageFault returns the rule that a page breaks, or "".
func pageFault(stored []chaingql.Block, q chaingql.BlocksQuery, page []chaingql.Block) string {
	byCursor := func(b chaingql.Block, c chaingql.Cursor) int { return strings.Compare(string(b.Cursor), string(c)) }
	for i, b := range page {
		at := func(format string, args ...any) string {
			return fmt.Sprintf("has cursor %q", b.Cursor) + fmt.Sprintf(format, args...)
		}
		switch {
		case b.Cursor == "":
			return "has a block without a cursor"
		case !printable(b.Cursor):
			return at(notPrintable)
		case i > 0 && b.Cursor == page[i-1].Cursor:
			return at(" twice")
		case i > 0 && b.Cursor < page[i-1].Cursor:
			return at(" after %q: blocks must ascend, whichever end was asked for", page[i-1].Cursor)
		case q.Workchain != nil && b.Workchain != *q.Workchain:
			return at(" of workchain %d: only the workchain asked for may come", b.Workchain)
		case q.Shard != nil && b.Shard != *q.Shard:
			return at(" of shard %016x: only the shard asked for may come, not those that it was split from or into", b.Shard)
		case q.After != "" && b.Cursor == q.After:
			return at(", which is After itself: a page begins past it")
		case b.Cursor < q.After:
			return at(", which is below After")
		case q.Before != "" && b.Cursor == q.Before:
			return at(", which is Before itself: a page ends short of it")
		case q.Before != "" && b.Cursor > q.Before:
			return at(", which is above Before")
		}
		j, found := slices.BinarySearchFunc(stored, b.Cursor, byCursor)
		if !found {
			return at(", which no stored block has")
		}
		if differs := blockFault(b, stored[j]); differs != "" {
			return at(" %s", differs)
		}
	}
	if n := q.First + q.Last; len(page) > n {
		return fmt.Sprintf("has %d blocks: at most %d were asked for", len(page), n)
	}
	want := chaingql.PageOf(stored, q)
	for _, b := range want {
		if _, found := slices.BinarySearchFunc(page, b.Cursor, byCursor); !found {
			end := "lowest"
			if q.Last > 0 {
				end = "highest"
			}
			return fmt.Sprintf("leaves out cursor %q and has %d blocks of %d: it must hold the %s that match", b.Cursor, len(page), len(want), end)
		}
	}
	return ""
}

const notPrintable = ": a cursor must be printable ASCII without spaces, or clients cannot send it back"

func printable(c chaingql.Cursor) bool {
	for i := range len(c) {
		if c[i] <= ' ' || c[i] > '~' {
			return false
		}
	}
	return true
}

// blockFault returns how a block differs from the stored one, or "".
func blockFault(got, want chaingql.Block) string {
	switch {
	case got.Workchain != want.Workchain:
		return fmt.Sprintf("with workchain %d, stored as %d", got.Workchain, want.Workchain)
	case got.Shard != want.Shard:
		return fmt.Sprintf("with shard %016x, stored as %016x", got.Shard, want.Shard)
	case got.SeqNo != want.SeqNo:
		return fmt.Sprintf("with seq_no %d, stored as %d", got.SeqNo, want.SeqNo)
	case got.Hash != want.Hash:
		return fmt.Sprintf("with hash %v, stored as %v", got.Hash, want.Hash)
	case got.Time.Unix() != want.Time.Unix():
		return fmt.Sprintf("with time %v, stored as %v", got.Time, want.Time)
	}
	return ""
}

func describe(q chaingql.BlocksQuery) string {
	var args []string
	add := func(format string, value any) { args = append(args, fmt.Sprintf(format, value)) }
	if q.Workchain != nil {
		add("Workchain %d", *q.Workchain)
	}
	if q.Shard != nil {
		add("Shard %016x", *q.Shard)
	}
	if q.After != "" {
		add("After %q", q.After)
	}
	if q.Before != "" {
		add("Before %q", q.Before)
	}
	if q.First > 0 {
		add("First %d", q.First)
	}
	if q.Last > 0 {
		add("Last %d", q.Last)
	}
	return "Blocks(" + strings.Join(args, ", ") + ")"
}
