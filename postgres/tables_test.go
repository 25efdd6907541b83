package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
)

func TestTablesRejectInvalidRows(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	for _, row := range []string{
		"'', -1, 1, 1, sha256(''), now()",
		"'n', -1, 1, 1, sha256(''), now()",
		"'0A', -1, 1, 1, sha256(''), now()",
		"'0ä', -1, 1, 1, sha256(''), now()",
		"repeat('0', 65), -1, 1, 1, sha256(''), now()",
		"'00', -1, 1, 1, sha256(''), 'infinity'",
		"'00', -1, 1, -1, sha256(''), now()",
		"'00', -1, 1, 4294967296, sha256(''), now()",
		"'00', -1, 1, 1, '', now()",
	} {
		s.admin(t, `DO $$ BEGIN
			INSERT INTO `+quote(schema)+`.blocks VALUES (`+row+`);
			RAISE 'the table accepted an invalid row';
		EXCEPTION WHEN check_violation THEN END $$`)
	}
}

// TestCursorsCompareBytewiseInAnyCollation uses a collation that ignores punctuation and compares digits
// as numbers.
func TestCursorsCompareBytewiseInAnyCollation(t *testing.T) {
	s := sharedServer(t)
	if s.version(t) < 150000 {
		testkit.Missing(t, "PostgreSQL 15, which this collation needs,")
	}
	database := fmt.Sprintf("sorted%d", schemas.Add(1))
	s.admin(t, "CREATE DATABASE "+database+" TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ka-shifted-kn'")
	b := open(t, s.dsn(database), nil)
	w := writer(t, b)
	all := at("0", "0-1", "0-10", "0-9", "00", "01", "010", "02", "09", "0a", "0m", "1", "10", "2")
	for i := range all {
		if err := w.Append(t.Context(), all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Prune(t.Context(), "0-9"); err != nil {
		t.Fatal(err)
	}
	all = all[3:]
	zero := int32(0)
	none := uint64(0)
	for _, q := range []chaingql.BlocksQuery{{}, {Workchain: &zero}, {Shard: &none}, {Workchain: &zero, Shard: &none}} {
		for i := range all {
			for j := i + 1; j < len(all); j++ {
				q.After, q.Before, q.First, q.Last = all[i].Cursor, all[j].Cursor, 100, 0
				got, err := b.Blocks(t.Context(), q)
				if want := chaingql.PageOf(all, q); err != nil || !slices.Equal(cursorsOf(got), cursorsOf(want)) {
					t.Fatalf("between %q and %q: got %v and error %v, want %v", q.After, q.Before, cursorsOf(got), err,
						cursorsOf(want))
				}
				q.First, q.Last = 0, 2
				got, err = b.Blocks(t.Context(), q)
				if want := chaingql.PageOf(all, q); err != nil || !slices.Equal(cursorsOf(got), cursorsOf(want)) {
					t.Fatalf("last before %q: got %v and error %v, want %v", q.Before, cursorsOf(got), err,
						cursorsOf(want))
				}
			}
		}
	}
}
