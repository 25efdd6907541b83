package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// few is the maximum number of 8 kB buffers that PostgreSQL may touch to read a page of 10 blocks: one for
// each row, and those on the path in the index. A scan of a whole index would touch hundreds.
const few = 60

// fewForOne is the maximum number of buffers for the lookup of a single block.
const fewForOne = 15

// The test counts the buffers that each statement touches. No statement may read rows that are not in its page,
// whether the blocks that it selects are frequent or rare, and regardless of the planner's statistics.
func TestEveryPageUsesAnIndex(t *testing.T) {
	t.Parallel()
	for _, statistics := range []string{"none", "of an empty table", "of the first blocks", "current"} {
		t.Run(statistics, func(t *testing.T) { testPagePlans(t, statistics) })
	}
}

func testPagePlans(t *testing.T, statistics string) {
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	w := writer(t, b)
	all := backendtest.Chain(30_000, 1)
	analyze := "ANALYZE " + quote(schema) + ".blocks"
	s.admin(t, "ALTER TABLE "+quote(schema)+".blocks SET (autovacuum_enabled = off)")
	switch statistics {
	case "of an empty table":
		s.admin(t, analyze)
	case "of the first blocks":
		if err := w.Append(t.Context(), all[:100]...); err != nil {
			t.Fatal(err)
		}
		s.admin(t, analyze)
	}
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if statistics == "current" {
		s.admin(t, analyze)
	}
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())

	if _, err := conn.Exec(t.Context(), "SET jit_above_cost = 0"); err != nil { // JIT would compile every statement
		t.Fatal(err)
	}
	master, base, nowhere := int32(-1), int32(0), int32(7)
	first := all[0].Shard // this shard has few blocks, because it splits early
	split, deep := all[5000].Shard, uint64(1)
	mid, high := all[4000].Cursor, all[7000].Cursor
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		byHash, bySeqNo, byTime := b.LookupSQL()
		newest := all[len(all)-1]
		for sql, args := range map[string][]any{
			byHash:  {fmt.Sprintf(`\x%x`, newest.Hash)},
			bySeqNo: {newest.Workchain, int64(newest.Shard), int64(newest.SeqNo)},
			byTime:  {newest.Time.Format(time.RFC3339Nano)},
		} {
			if plan := explain(t, conn, sql, args); buffers(plan) > fewForOne || strings.Contains(plan, "JIT:") {
				t.Errorf("%s: the plan touches more than %d buffers or uses JIT:\n%s\n%s", mode, fewForOne, sql, plan)
			}
		}
		for _, cursors := range []chaingql.BlocksQuery{{}, {After: mid}, {Before: mid}, {After: mid, Before: high}} {
			for _, workchain := range []*int32{nil, &master, &base, &nowhere} {
				for _, shard := range []*uint64{nil, &first, &split, &deep} {
					for _, last := range []bool{false, true} {
						q := cursors
						q.Workchain, q.Shard, q.First = workchain, shard, 10
						if last {
							q.First, q.Last = 0, 10
						}
						sql, args := b.PageSQL(q)
						if plan := explain(t, conn, sql, args); buffers(plan) > few || strings.Contains(plan, "JIT:") {
							t.Fatalf("%s: the plan touches more than %d buffers or uses JIT: arguments %v\n%s\n%s",
								mode, few, args, sql, plan)
						}
					}
				}
			}
		}
	}
}

// The test counts the rows that PostgreSQL reads for one page. It turns index scans off for its connections, so
// that the planner would prefer bitmap scans, as it may in a large table without statistics.
func TestPageReadsFewRowsWithoutStatistics(t *testing.T) {
	s := sharedServer(t)
	all := backendtest.Chain(30_000, 1)
	base, shard := int32(0), all[29_999].Shard
	schema := newSchema()
	w := writer(t, open(t, s.dsn("postgres"), &postgres.Options{Schema: schema}))
	s.admin(t, "ALTER TABLE "+quote(schema)+".blocks SET (autovacuum_enabled = off)")
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	for _, poll := range []time.Duration{0, time.Hour} {
		for _, q := range []chaingql.BlocksQuery{{}, {Workchain: &base}, {Workchain: &base, Shard: &shard},
			{Shard: &shard}} {
			q.Last, q.Before = 50, all[29_000].Cursor
			name := fmt.Sprintf("counted%d", schemas.Add(1))
			dsn := s.dsn("postgres") + " options='-cenable_indexscan=off' application_name=" + name
			before := rowsRead(t, s, schema, "blocks")
			b := open(t, dsn, &postgres.Options{Schema: schema, PollInterval: poll})
			page, err := b.Blocks(t.Context(), q)
			if err != nil || len(page) != 50 {
				t.Fatalf("got %d blocks and error %v, want 50 blocks", len(page), err)
			}
			b.Close()
			s.admin(t, untilClosed(name))
			if n := rowsRead(t, s, schema, "blocks") - before; n < 50 || n > 200 {
				t.Errorf("PostgreSQL read %d rows for a page of 50 blocks, want 50 to 200: %+v", n, q)
			}
		}
	}
}

// untilClosed returns a statement that waits until no connection has the given application name.
func untilClosed(name string) string {
	return `DO $$ BEGIN
		WHILE EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '` + name + `') LOOP
			PERFORM pg_sleep(0.002), pg_stat_clear_snapshot();
		END LOOP;
	END $$`
}

// rowsRead returns the number of rows that PostgreSQL has read from a table and from its indexes.
func rowsRead(t *testing.T, s *server, schema, table string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	err = conn.QueryRow(t.Context(),
		"SELECT seq_tup_read + (SELECT sum(idx_tup_read) FROM pg_stat_all_indexes i WHERE i.relid = t.relid)"+
			" FROM pg_stat_all_tables t WHERE schemaname = $1 AND relname = $2", schema, table).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Another connection holds a snapshot, so that pruned rows cannot be vacuumed.
func TestPagesAndLookupsSkipPrunedIndexEntries(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	w := writer(t, b)
	all := backendtest.Chain(30_000, 1)
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(),
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM "+quote(schema)+".blocks LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Prune(t.Context(), all[25_000].Cursor); err != nil {
		t.Fatal(err)
	}
	reader, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(t.Context())
	base, shard := all[29_999].Workchain, all[29_999].Shard
	for _, q := range []chaingql.BlocksQuery{
		{First: 10}, {First: 10, Workchain: &base}, {First: 10, Workchain: &base, Shard: &shard},
		{First: 10, Shard: &shard}, {Last: 10, Before: all[25_010].Cursor, Shard: &shard},
	} {
		sql, args := b.PageSQL(q)
		if plan := explain(t, reader, sql, args); buffers(plan) > few {
			t.Errorf("the plan touches more than %d buffers: %s\n%s", few, sql, plan)
		}
	}
	byHash, bySeqNo, byTime := b.LookupSQL()
	gone := all[0]
	for sql, args := range map[string][]any{
		byHash:  {fmt.Sprintf(`\x%x`, gone.Hash)},
		bySeqNo: {gone.Workchain, int64(gone.Shard), int64(gone.SeqNo)},
		byTime:  {time.Unix(0, 0).Format(time.RFC3339Nano)},
	} {
		if plan := explain(t, reader, sql, args); buffers(plan) > fewForOne {
			t.Errorf("the plan touches more than %d buffers: %s\n%s", fewForOne, sql, plan)
		}
	}
}

var touched = regexp.MustCompile(`Buffers: shared((?: [a-z]+=[0-9]+)+)`)

// buffers returns the number of buffers that PostgreSQL touched, according to the output of EXPLAIN.
func buffers(plan string) (n int) {
	for _, part := range strings.Fields(touched.FindStringSubmatch(plan)[1]) {
		name, value, _ := strings.Cut(part, "=")
		if count, err := strconv.Atoi(value); err == nil && name != "dirtied" && name != "written" {
			n += count
		}
	}
	return n
}

// explain runs a statement in the plan mode of the connection and returns the output of EXPLAIN ANALYZE.
func explain(t *testing.T, conn *pgx.Conn, sql string, args []any) (plan string) {
	t.Helper()
	var values []string
	for _, arg := range args {
		values = append(values, fmt.Sprintf("'%v'", arg))
	}
	execute := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE page"
	if values != nil {
		execute += "(" + strings.Join(values, ",") + ")"
	}
	if _, err := conn.Exec(t.Context(), "PREPARE page AS "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), postgres.SettingsSQL); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if _, err := conn.Exec(t.Context(), "DEALLOCATE page"); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
