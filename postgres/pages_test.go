package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// few buffers of 8 kB hold a page of 10: a row in each, and the way there in the
// index. The indexes have some hundreds.
const few = 60

// dear is from which cost on PostgreSQL compiles a statement, for longer than
// these run.
const dear = 100_000

// TestEveryPageIsReadFromAnIndex looks at what each statement touches: none may
// walk over rows that it does not want, in the table or in the index, however
// rare what it wants is.
func TestEveryPageIsReadFromAnIndex(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	w := writer(t, b)
	all := backendtest.Chain(30_000, 1)
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	s.admin(t, "ANALYZE "+quote(schema)+".blocks")
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())

	master, base, nowhere := int32(-1), int32(0), int32(7)
	first := all[0].Shard // of the few blocks before the first split
	split, deep := all[5000].Shard, uint64(1)
	mid, high := all[4000].Cursor, all[7000].Cursor
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
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
						if plan := explain(t, conn, sql, args); buffers(plan) > few || cost(t, plan) >= dear {
							t.Fatalf("%s: %v\n%s\n%s", mode, args, sql, plan)
						}
					}
				}
			}
		}
	}
}

// TestPagesDoNotStepOverWhatWasPruned has a reader elsewhere whose snapshot keeps
// the remains from being cleared away.
func TestPagesDoNotStepOverWhatWasPruned(t *testing.T) {
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
	if _, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM "+quote(schema)+".blocks LIMIT 1"); err != nil {
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
	for _, q := range []chaingql.BlocksQuery{{First: 10}, {First: 10, Workchain: &base}, {First: 10, Workchain: &base, Shard: &shard}} {
		sql, args := b.PageSQL(q)
		if plan := explain(t, reader, sql, args); buffers(plan) > few {
			t.Errorf("%s\n%s", sql, plan)
		}
	}
}

var touched = regexp.MustCompile(`Buffers: shared((?: [a-z]+=[0-9]+)+)`)

// buffers is how many a plan's topmost node and those below it touched.
func buffers(plan string) (n int) {
	for _, part := range strings.Fields(touched.FindStringSubmatch(plan)[1]) {
		name, value, _ := strings.Cut(part, "=")
		if count, err := strconv.Atoi(value); err == nil && name != "dirtied" && name != "written" {
			n += count
		}
	}
	return n
}

// cost is what the planner expects.
func cost(t *testing.T, plan string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut(plan, "..")
	text, _, _ := strings.Cut(rest, " ")
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

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
	rows, err := conn.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
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
