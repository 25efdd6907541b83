package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// at returns blocks with the given cursors. Their times have nanosecond precision.
func at(cursors ...chaingql.Cursor) []chaingql.Block {
	blocks := make([]chaingql.Block, len(cursors))
	for i, c := range cursors {
		blocks[i] = chaingql.Block{Cursor: c, Time: time.Unix(1_700_000_000, 123_456_789).UTC()}
	}
	return blocks
}

func TestAppendStoresAllBlocksOrNone(t *testing.T) {
	s := sharedServer(t)
	other := at("05")
	other[0].SeqNo++
	later := at("05")
	later[0].Time = later[0].Time.Add(time.Microsecond)
	for _, row := range []struct {
		name   string
		blocks []chaingql.Block
		want   string // stored cursors afterward
		err    error
		text   string // part of the error; "" means that Append must succeed
	}{
		{"no blocks", nil, "03 05", nil, ""},
		{"new blocks", at("06", "07m"), "03 05 06 07m", nil, ""},
		{"the newest block again", at("05"), "03 05", nil, ""},
		{"all stored blocks again, and new ones", at("03", "05", "06"), "03 05 06", nil, ""},
		{"a pruned block, and a new one", at("01", "06"), "03 05 06", nil, ""},
		{"a different block", append(other, at("06")...), "03 05", postgres.ErrConflict, `cursor "05" has block`},
		{"a stored block with a different time", later, "03 05", postgres.ErrConflict, `cursor "05" has block`},
		{"a new block before the newest one", at("04", "06"), "03 05", postgres.ErrConflict,
			`cursor "04" is not stored`},
		{"blocks out of order", at("07", "06"), "03 05", nil, `cursor "06", which is not after "07"`},
		{"the same block twice", at("06", "06"), "03 05", nil, `which is not after "06"`},
		{"an empty cursor", at("06", ""), "03 05", chaingql.ErrBadCursor, "block 2 of 2"},
		{"an invalid character in a cursor", at("06z"), "03 05", chaingql.ErrBadCursor, "block 1 of 1"},
		{"the longest cursor", at(chaingql.Cursor(strings.Repeat("a", 64))), "03 05 " + strings.Repeat("a", 64), nil,
			""},
		{"an overlong cursor", at(chaingql.Cursor(strings.Repeat("a", 65))), "03 05", chaingql.ErrBadCursor,
			"block 1 of 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := open(t, s.dsn("postgres"), nil)
			w := writer(t, b)
			if err := errors.Join(w.Append(t.Context(), at("01", "03", "05")...),
				w.Prune(t.Context(), "03")); err != nil {
				t.Fatal(err)
			}
			err := w.Append(t.Context(), row.blocks...)
			if (err == nil) != (row.text == "") || err != nil && !strings.Contains(err.Error(), row.text) ||
				row.err != nil && !errors.Is(err, row.err) {
				t.Errorf("Append returned error %v, want one that wraps %v and contains %q", err, row.err, row.text)
			}
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
			if got := strings.Trim(fmt.Sprint(cursorsOf(page)), "[]"); err != nil || got != row.want {
				t.Errorf("stored blocks: got %s and error %v, want %s", got, err, row.want)
			}
		})
	}
}

// The test deletes the newest blocks, as if a replica had taken over before it received them.
func TestAppendRejectsBlocksAfterLostBlocks(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w, all := writer(t, b), backendtest.Chain(20, 1)
	if err := errors.Join(w.Append(t.Context(), all[:10]...), w.Prune(t.Context(), all[3].Cursor)); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SET session_replication_role = replica"); err != nil { // without triggers
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "DELETE FROM "+pgx.Identifier{opts.Schema,
		"blocks"}.Sanitize()+" WHERE cursor >= $1", string(all[8].Cursor)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int{10, 8, 9, 10} { // from 8 and 9, the batch also contains lost blocks
		if err := writer(t, b).Append(t.Context(), all[from:12]...); !errors.Is(err, postgres.ErrConflict) {
			t.Errorf("Append from block %d returned error %v, want ErrConflict", from, err)
		}
	}
	if err := errors.Join(w.Append(t.Context(), all[7:10]...), w.Append(t.Context(), all[10:]...)); err != nil {
		t.Errorf("Append from the newest remaining block: %v", err)
	}
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 20})
	if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[3:])) {
		t.Errorf("stored blocks: %s; error %v", difference(cursorsOf(page), cursorsOf(all[3:])), err)
	}
}

func TestWriterRefillsLostBlocksInSeveralCalls(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w, other, all := writer(t, b), writer(t, b), backendtest.Chain(20, 1)
	if err := errors.Join(w.Append(t.Context(), all[:18]...), other.Append(t.Context(), all[18:19]...)); err != nil {
		t.Fatal(err)
	}
	s.admin(t, "BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM "+quote(opts.Schema)+
		".blocks WHERE cursor >= '"+string(all[10].Cursor)+"'; COMMIT")
	for from := 9; from < 15; from += 2 { // the first call begins with the newest remaining block
		if err := w.Append(t.Context(), all[from:from+2]...); err != nil {
			t.Fatalf("Append of blocks %d and %d: %v", from, from+1, err)
		}
	}
	if err := other.Append(t.Context(), all[19]); !errors.Is(err, postgres.ErrConflict) {
		t.Errorf("Append of another Writer, which would leave a gap, returned error %v, want ErrConflict", err)
	}
	if err := errors.Join(w.Append(t.Context(), all[15:19]...), other.Append(t.Context(), all[19])); err != nil {
		t.Errorf("Append after all lost blocks were stored again: %v", err)
	}
}

func TestAppendContinuesPrunedChain(t *testing.T) {
	b := open(t, sharedServer(t).dsn("postgres"), nil)
	w := writer(t, b)
	all := backendtest.Chain(300, 1)
	if err := errors.Join(w.Append(t.Context(), all[:200]...), w.Prune(t.Context(), all[250].Cursor)); err != nil {
		t.Fatal(err)
	}
	late := map[chaingql.Address]*big.Int{{}: big.NewInt(1)} // of an indexer that repeats old blocks
	if err := w.Commit(t.Context(), all[190:200], late); err != nil {
		t.Error(err)
	}
	if nano, err := b.Balance(t.Context(), chaingql.Address{}); !errors.Is(err, chaingql.ErrNotFound) {
		t.Errorf("balance committed with pruned blocks: got %v and error %v, want ErrNotFound", nano, err)
	}
	if err := w.Append(t.Context(), all[250:]...); err != nil {
		t.Fatal(err)
	}
	for _, err := range b.Follow(t.Context(), "") {
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Follow from the beginning yielded error %v, want ErrCursorTooOld", err)
		}
	}
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 100, After: all[199].Cursor})
	if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[250:])) {
		t.Errorf("stored blocks: %s; error %v", difference(cursorsOf(page), cursorsOf(all[250:])), err)
	}
}

func TestClosedConnectionsAreReplaced(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("closed%d", schemas.Add(1))
	// Over TCP, the client receives the last message of a terminated connection.
	b := open(t, s.tcp(s.port, "postgres", "postgres")+"&application_name="+name, nil)
	w := writer(t, b)
	for i, c := range []chaingql.Cursor{"01", "02", "03", "04"} {
		s.admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+name+"'",
			untilClosed(name))
		if i%2 == 0 {
			if err := w.Append(t.Context(), at(c)...); err != nil {
				t.Error(err)
			}
			continue
		}
		if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 5}); err != nil || len(page) != i {
			t.Errorf("got %d blocks and error %v, want %d blocks", len(page), err, i)
		}
		if err := w.Append(t.Context(), at(c)...); err != nil {
			t.Error(err)
		}
	}
}

func TestCommitSkipsBalancesOfStoredBlocks(t *testing.T) {
	b := open(t, sharedServer(t).dsn("postgres"), nil)
	w := writer(t, b)
	for _, step := range []struct {
		blocks []chaingql.Block
		nano   int64
		want   int64
	}{
		{at("01"), 1, 1},
		{at("02", "03"), 3, 3},
		{at("01"), 1, 3}, // of an indexer that repeats old blocks, or lags
		{at("02", "03"), 2, 3},
		{at("03", "04"), 4, 4},
		{nil, 2, 2},
	} {
		if err := w.Commit(t.Context(), step.blocks,
			map[chaingql.Address]*big.Int{{}: big.NewInt(step.nano)}); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Balance(t.Context(), chaingql.Address{}); err != nil || got.Int64() != step.want {
			t.Errorf("Commit of %v: got balance %v and error %v, want %d", cursorsOf(step.blocks), got, err, step.want)
		}
	}
}

func TestExtremeTimesAreRefusedAndFoundNowhere(t *testing.T) {
	b := open(t, sharedServer(t).dsn("postgres"), nil)
	w, blocks := writer(t, b), backendtest.Chain(2, 1)
	for _, unix := range []int64{math.MinInt64, -1 << 40, 1 << 40, 1 << 62, math.MaxInt64} {
		later := slices.Clone(blocks)
		later[1].Time = time.Unix(unix, 0)
		if err := w.Append(t.Context(), later...); err == nil {
			t.Errorf("Append accepted a block with the Unix time %d", unix)
		}
	}
	if err := w.Append(t.Context(), backendtest.Chain(20, 1)...); err != nil {
		t.Fatal(err)
	}
	for _, unix := range []int64{1 << 40, 1 << 62, math.MaxInt64} {
		got, err := b.MasterBlockByTime(t.Context(), time.Unix(unix, 0))
		if !errors.Is(err, chaingql.ErrBlockNotFound) {
			t.Errorf("MasterBlockByTime at time %d returned %v and error %v, want ErrBlockNotFound", unix, got, err)
		}
	}
	for _, unix := range []int64{math.MinInt64, -1 << 62, -1 << 40} {
		if _, err := b.MasterBlockByTime(t.Context(), time.Unix(unix, 0)); err != nil {
			t.Errorf("MasterBlockByTime at Unix time %d failed: %v", unix, err)
		}
	}
}
