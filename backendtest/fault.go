package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"
)

// pageFault describes how page differs from the page that q selects from stored, or
// returns "" if it does not differ. The description continues a sentence about the call.
func pageFault(stored []chaingql.Block, q chaingql.BlocksQuery, page []chaingql.Block) string {
	for i, b := range page {
		at := func(format string, args ...any) string {
			return fmt.Sprintf("returned cursor %q", b.Cursor) + fmt.Sprintf(format, args...)
		}
		switch {
		case b.Cursor == "":
			return "returned a block without a cursor"
		case cursorFault(b.Cursor) != "":
			return at("%s", cursorFault(b.Cursor))
		case i > 0 && b.Cursor == page[i-1].Cursor:
			return at(" twice")
		case i > 0 && b.Cursor < page[i-1].Cursor:
			return at(" after %q: blocks must ascend, for First and for Last", page[i-1].Cursor)
		case q.Workchain != nil && b.Workchain != *q.Workchain:
			return at(" in workchain %d: a page must have only blocks of the requested workchain", b.Workchain)
		case q.Shard != nil && b.Shard != *q.Shard:
			return at(" in shard %016x: a page must have only blocks of the requested shard, "+
				"not of its parents or children", b.Shard)
		case q.After != "" && b.Cursor == q.After:
			return at(", which is equal to After: the cursors of a page must be greater than After")
		case b.Cursor < q.After:
			return at(", which is less than After")
		case q.Before != "" && b.Cursor == q.Before:
			return at(", which is equal to Before: the cursors of a page must be less than Before")
		case q.Before != "" && b.Cursor > q.Before:
			return at(", which is greater than Before")
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
		return fmt.Sprintf("returned %d blocks, but the query requested at most %d", len(page), n)
	}
	want := chaingql.PageOf(stored, q)
	for _, b := range want {
		if _, found := slices.BinarySearchFunc(page, b.Cursor, byCursor); !found {
			end := "lowest"
			if q.Last > 0 {
				end = "highest"
			}
			return fmt.Sprintf("omitted cursor %q and returned %d blocks: "+
				"it must return the %d matching blocks with the %s cursors", b.Cursor, len(page), len(want), end)
		}
	}
	return ""
}

// ascending compares the cursors of two blocks.
func ascending(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) }

// byCursor compares the cursor of b with c, for a binary search.
func byCursor(b chaingql.Block, c chaingql.Cursor) int { return cmp.Compare(b.Cursor, c) }

// cursorFault describes why c cannot be a cursor, or returns "" if it can. The description continues a sentence that
// ends with the cursor.
func cursorFault(c chaingql.Cursor) string {
	switch {
	case strings.ContainsFunc(string(c), func(r rune) bool { return r <= ' ' || r > '~' }):
		return ": a cursor must be printable ASCII without spaces, so that clients can send it back"
	case len(c) > chaingql.MaxCursor:
		return fmt.Sprintf(": a cursor must have at most %d bytes", chaingql.MaxCursor)
	}
	return ""
}

// blockFault describes the first field of got that differs from want, the stored block,
// or returns "" if no field differs.
func blockFault(got, want chaingql.Block) string {
	switch {
	case got.Workchain != want.Workchain:
		return fmt.Sprintf("with workchain %d, but the stored block has %d", got.Workchain, want.Workchain)
	case got.Shard != want.Shard:
		return fmt.Sprintf("with shard %016x, but the stored block has %016x", got.Shard, want.Shard)
	case got.SeqNo != want.SeqNo:
		return fmt.Sprintf("with seq_no %d, but the stored block has %d", got.SeqNo, want.SeqNo)
	case got.Hash != want.Hash:
		return fmt.Sprintf("with hash %v, but the stored block has %v", got.Hash, want.Hash)
	case got.Time.Unix() != want.Time.Unix():
		return fmt.Sprintf("with time %v, but the stored block has %v", got.Time, want.Time)
	}
	return ""
}

// describe returns q as a call of Blocks, for messages.
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
