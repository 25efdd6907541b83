package natschain_test

import (
	"context"
	"testing"

	"github.com/chaingql/chaingql"
)

// TestLongPagesSkipStrayMessages reads pages of more than 200 blocks of a workchain that contains two
// stray messages: one with a plausible cursor, and one with a cursor below the page.
func TestLongPagesSkipStrayMessages(t *testing.T) {
	all := uneven(20_000)
	for i := range all { // leaves an unused cursor between adjacent blocks
		all[i].Cursor = chaingql.SeqCursor(uint64(2 * i))
	}
	s := newBroker(t)
	w := writer(t, open(t, s.ClientURL(), nil))
	js, ctx := raw(t, s.ClientURL()), context.Background()
	stray := func(cursor chaingql.Cursor) {
		t.Helper()
		b := all[1]
		b.Workchain, b.Shard, b.Cursor = 0, 1<<59, cursor
		text := payloadOf(&b)
		text = append(text[:len(text)-1], `,"prev":"01"}`...)
		if _, err := js.Publish(ctx, subjectOf(&b), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(ctx, all[:1500]...); err != nil {
		t.Fatal(err)
	}
	stray(chaingql.SeqCursor(2*1500 - 1))
	if err := w.Append(ctx, all[1500:2000]...); err != nil {
		t.Fatal(err)
	}
	stray(chaingql.SeqCursor(7))
	if err := w.Append(ctx, all[2000:3000]...); err != nil {
		t.Fatal(err)
	}
	base, old, late := int32(0), all[100].Cursor, all[2900].Cursor
	expectPages(t, open(t, s.ClientURL(), nil), all[:3000], []chaingql.BlocksQuery{
		{First: 1000, Workchain: &base, After: all[1400].Cursor}, {Last: 1000, Workchain: &base, Before: late},
		{First: 1000, Workchain: &base, After: all[1490].Cursor},
		{First: 1000, Workchain: &base, After: all[1999].Cursor},
		{Last: 1000, Workchain: &base, After: all[1999].Cursor}, {Last: 1000, Workchain: &base, After: old},
		{First: 900, Workchain: &base, After: old, Before: all[1600].Cursor},
	})
	if err := w.Append(ctx, all[3000:]...); err != nil { // more messages than Open examines
		t.Fatal(err)
	}
	expectPages(t, open(t, s.ClientURL(), nil), all, []chaingql.BlocksQuery{
		{First: 1000, Workchain: &base, After: all[1999].Cursor},
		{Last: 1000, Workchain: &base, After: all[1999].Cursor},
		{First: 1000, Workchain: &base, After: all[1900].Cursor, Before: all[2900].Cursor},
	})
}
