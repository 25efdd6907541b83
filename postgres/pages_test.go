package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// TestEveryPageIsReadFromAnIndex looks at the plans: none may walk over rows
// that it does not want, however rare what it wants is.
func TestEveryPageIsReadFromAnIndex(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	w := writer(t, b)
	all := backendtest.Chain(8000, 1)
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
						plan := explain(t, conn, sql, args)
						for line := range strings.Lines(plan) {
							if rows, ok := strings.CutPrefix(strings.TrimSpace(line), "Rows Removed by Filter: "); ok && len(strings.TrimSpace(rows)) > 2 ||
								strings.Contains(line, "Seq Scan on blocks") {
								t.Fatalf("%s: %v\n%s\n%s", mode, args, sql, plan)
							}
						}
					}
				}
			}
		}
	}
}

func explain(t *testing.T, conn *pgx.Conn, sql string, args []any) (plan string) {
	t.Helper()
	var values []string
	for _, arg := range args {
		values = append(values, fmt.Sprintf("'%v'", arg))
	}
	execute := "EXPLAIN (ANALYZE, TIMING OFF) EXECUTE page"
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
