package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
)

// A Backend that polls receives values as text, which pgx reads only in PostgreSQL's default formats. A role, a
// database or the DSN may set others.
func TestPollingBackendDoesNotDependOnOutputSettings(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema(), PollInterval: 5 * time.Millisecond}
	blocks := backendtest.Chain(30, 1)
	if err := writer(t, open(t, s.dsn("postgres"), opts)).Append(t.Context(), blocks...); err != nil {
		t.Fatal(err)
	}
	master := blocks[slices.IndexFunc(blocks, func(b chaingql.Block) bool { return b.Workchain == -1 })]
	for _, setting := range []string{
		"DateStyle='SQL, DMY'", "DateStyle=German", "DateStyle='Postgres, MDY'", "bytea_output=escape",
	} {
		t.Run(setting, func(t *testing.T) {
			b := open(t, s.dsn("postgres")+" "+setting, opts)
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: len(blocks)})
			if err != nil || !slices.Equal(page, blocks) {
				t.Errorf("Blocks returned %v and error %v, want %v", page, err, blocks)
			}
			if got, err := b.MasterBlockByTime(t.Context(), master.Time); err != nil || got != master {
				t.Errorf("MasterBlockByTime returned %v and error %v, want %v", got, err, master)
			}
			if got, err := b.BlockByHash(t.Context(), master.Hash); err != nil || got != master {
				t.Errorf("BlockByHash returned %v and error %v, want %v", got, err, master)
			}
			other := blocks[29]
			other.Hash[0]++
			err = writer(t, b).Append(t.Context(), other)
			both := fmt.Sprintf("has block %v, not %v", blocks[29].Hash, other.Hash)
			if !errors.Is(err, postgres.ErrConflict) || !strings.Contains(err.Error(), both) {
				t.Errorf("Append of another block returned %v, want ErrConflict with %q", err, both)
			}
			read(t, b, "").expect(t, blocks...)
		})
	}
}
