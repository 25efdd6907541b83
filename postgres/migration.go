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

// Migrations run in the order of their names, each once, and are never changed
// once they were released.
//
//go:embed migrations/*.sql
var scripts embed.FS

var migrations = func() []string {
	names, err := fs.Glob(scripts, "migrations/*.sql")
	if err != nil {
		panic(err) // of the pattern
	}
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := scripts.ReadFile(name)
		if err != nil {
			panic(err) // of the binary
		}
		texts[i] = string(text)
	}
	return texts
}

// migrate brings the tables up to this package's version, or, where it may not,
// sees that they are.
func (b *Backend) migrate(ctx context.Context, may bool) error {
	what := fmt.Sprintf("migrate schema %q", b.opts.Schema)
	scripts := migrations()
	version, err := b.version(ctx, b.pool)
	switch {
	case err != nil:
		return failed(what, err)
	case version == len(scripts):
		return nil
	case version > len(scripts):
		return fmt.Errorf("postgres: the tables in schema %q have version %d, and this package knows %d: a newer one made them", b.opts.Schema, version, len(scripts))
	case !may && version == 0:
		return fmt.Errorf("postgres: there are no tables in schema %q, and making them is turned off (or the server is a read-only replica)", b.opts.Schema)
	case !may:
		return fmt.Errorf("postgres: the tables in schema %q have version %d, %d is needed, and migrations are turned off (or the server is a read-only replica)", b.opts.Schema, version, len(scripts))
	}
	err = pgx.BeginTxFunc(ctx, b.pool, writing(b.opts.WriteTimeout), func(tx pgx.Tx) error { return b.runMigrations(ctx, tx, scripts) })
	if err != nil {
		return failed(what, err)
	}
	return nil
}

func (b *Backend) runMigrations(ctx context.Context, tx pgx.Tx, scripts []string) error {
	schema := pgx.Identifier{b.opts.Schema}.Sanitize()
	if _, err := tx.Exec(ctx, lockSQL, b.key("migrate")); err != nil {
		return err
	}
	version, err := b.version(ctx, tx)
	if err != nil {
		return err
	}
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", b.opts.Schema).Scan(&there); err != nil {
		return err
	}
	if !there { // IF NOT EXISTS would ask for the right to create it all the same
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

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version is the number of the last migration that ran, 0 where none did. It
// asks the catalog's tables, as to_regclass remembers what was not there before
// the lock was waited for.
func (b *Backend) version(ctx context.Context, db querier) (version int, err error) {
	var there bool
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'chaingql_state')",
		b.opts.Schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = db.QueryRow(ctx, "SELECT version FROM "+b.tables.state).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoState
	}
	return version, err
}

const lockSQL = "SELECT pg_advisory_xact_lock($1)"

// key is an advisory lock's, of this schema alone.
func (b *Backend) key(purpose string) int64 {
	sum := sha256.Sum256([]byte("chaingql " + purpose + ": " + b.opts.Schema))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
