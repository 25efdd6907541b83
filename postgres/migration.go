package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

// scripts contains the migrations. They run in the order of their file names, each once.
// The statements of a released migration are never changed.
//
//go:embed migrations/*.sql
var scripts embed.FS

var migrations = func() []string {
	names, err := fs.Glob(scripts, "migrations/*.sql")
	if err != nil {
		panic(err) // the pattern is malformed
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := scripts.ReadFile(name)
		if err != nil {
			panic(err) // the file is embedded
		}
		texts[i] = string(text)
	}
	return texts
}

// migrate updates the tables to this package's version. If allowed is false, it changes
// nothing, and returns an error if the tables have another version.
func (b *Backend) migrate(ctx context.Context, allowed bool) error {
	what := fmt.Sprintf("migrate schema %q", b.opts.Schema)
	scripts := migrations()
	version, err := b.version(ctx, b.pool)
	switch {
	case err != nil:
		return failed(what, err)
	case version == len(scripts):
		return nil
	case version > len(scripts):
		return fmt.Errorf("postgres: the tables in schema %q have version %d, which is newer than this package's %d",
			b.opts.Schema, version, len(scripts))
	case !allowed && version == 0:
		return fmt.Errorf("postgres: there are no tables in schema %q, and %s", b.opts.Schema, noMigrations)
	case !allowed:
		return fmt.Errorf("postgres: the tables in schema %q have version %d, but version %d is needed, and %s",
			b.opts.Schema, version, len(scripts), noMigrations)
	}
	err = pgx.BeginTxFunc(ctx, b.pool, writing(b.opts.WriteTimeout), func(tx pgx.Tx) error {
		return b.runMigrations(ctx, tx, scripts)
	})
	if err != nil {
		return failed(what, err)
	}
	return nil
}

// checkIndexes returns an error if an index is invalid: CREATE INDEX CONCURRENTLY leaves such an index if it is
// interrupted. The migration would keep it because of its name, although no query can use it.
func (b *Backend) checkIndexes(ctx context.Context) error {
	var index string
	err := b.pool.QueryRow(ctx, "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"+
		" JOIN pg_class t ON t.oid = i.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace"+
		" WHERE n.nspname = $1 AND t.relname = 'blocks' AND NOT i.indisvalid AND c.relname = ANY($2)"+
		" ORDER BY 1 LIMIT 1", b.opts.Schema, indexes).Scan(&index)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return failed(fmt.Sprintf("check the indexes in schema %q", b.opts.Schema), err)
	}
	name := pgx.Identifier{b.opts.Schema, index}.Sanitize()
	return fmt.Errorf("postgres: the index %s is invalid, because CREATE INDEX CONCURRENTLY was interrupted or still"+
		" runs: if not, use REINDEX INDEX CONCURRENTLY %s, or DROP INDEX and create it again", name, name)
}

// indexes contains the names of the indexes that the migrations create.
var indexes = []string{"blocks_by_workchain", "blocks_by_shard", "blocks_by_hash", "blocks_by_seq_no", "blocks_by_time"}

const noMigrations = "migrations are turned off or the server is a read-only replica"

func (b *Backend) runMigrations(ctx context.Context, tx pgx.Tx, scripts []string) error {
	schema := pgx.Identifier{b.opts.Schema}.Sanitize()
	if _, err := tx.Exec(ctx, lockSQL, b.key("migrate")); err != nil {
		return err
	}
	version, err := b.version(ctx, tx)
	if err != nil {
		return err
	}
	var exists bool
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", b.opts.Schema).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists { // CREATE SCHEMA IF NOT EXISTS needs the permission even if the schema exists
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "SELECT set_config('search_path', $1, true)", schema); err != nil {
		return err
	}
	for ; version < len(scripts); version++ {
		if _, err := tx.Conn().PgConn().Exec(ctx, scripts[version]).ReadAll(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE "+b.tables.state+" SET version = $1", version+1); err != nil {
			return err
		}
	}
	return nil
}

// A querier is a connection pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version returns the number of the last migration that ran, or 0 if none has run. It reads
// the tables of the system catalog, because to_regclass could return a result that was
// cached before the lock was acquired.
func (b *Backend) version(ctx context.Context, db querier) (version int, err error) {
	var exists bool
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"+
		" WHERE n.nspname = $1 AND c.relname = 'chaingql_state')", b.opts.Schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	err = db.QueryRow(ctx, "SELECT version FROM "+b.tables.state).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoState
	}
	return version, err
}

const lockSQL = "SELECT pg_advisory_xact_lock($1)"

// key returns the key of this schema's advisory lock for a purpose.
func (b *Backend) key(purpose string) int64 {
	sum := sha256.Sum256([]byte("chaingql " + purpose + ": " + b.opts.Schema))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
