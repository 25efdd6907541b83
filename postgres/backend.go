package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldest is the oldest PostgreSQL that will do, as server_version_num has it.
var oldest = 130000

// MaxCursor is how many bytes a cursor may have at most. They are those that
// [chaingql.ChainOrder] and [chaingql.SeqCursor] use: 0-9, a-f, m and -.
const MaxCursor = 64

// A Backend serves the chain that is kept in one schema of a database. Make one
// with [Open]; its methods may be called concurrently.
type Backend struct {
	pool     *pgxpool.Pool
	opts     Options // in force
	tables   tables
	chain    string // chaingql_state.chain, read by Open
	line     extension
	turns    chan struct{} // held by the Writer whose turn it is
	answered atomic.Uint64 // reads
	stored   struct {      // by its Writers
		sync.Mutex
		newest  chaingql.Cursor
		blocks  int // appended
		analyze int // value of blocks at which statistics are refreshed
	}
	closed chan struct{}
	close  sync.Once
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
)

// tables are the names of the tables, quoted.
type tables struct{ blocks, accounts, state string }

// Open connects to a database, sees that it will do, and makes the tables where
// they are not there yet. The DSN is a postgres:// URL or a string of key=value
// pairs, as libpq takes it, with pgx's own keys beside it: pool_max_conns is
// worth setting, as its default is 4, or the number of processors where that is
// higher. What is wrong (address, password, permissions, version, tables, a
// pooler that passes no notifications on) is one error here, in which the DSN
// does not appear. The context is for opening alone. Close the Backend when it is
// no longer used.
func Open(ctx context.Context, dsn string, opts *Options) (*Backend, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, malformed(err)
	}
	conn := config.ConnConfig
	if err := checkHosts(&conn.Config); err != nil {
		return nil, err
	}
	if conn.ConnectTimeout <= 0 || conn.ConnectTimeout > o.Timeout {
		conn.ConnectTimeout = o.Timeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "chaingql"
	}
	if o.Poll > 0 {
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	listening := conn.Copy()
	conn.BuildContextWatcherHandler = cancelStatements
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, failed("open", err)
	}
	name := func(table string) string { return pgx.Identifier{o.Schema, table}.Sanitize() }
	b := &Backend{
		pool: pool, opts: o, closed: make(chan struct{}), turns: make(chan struct{}, 1),
		tables: tables{name("blocks"), name("accounts"), name("chaingql_state")},
		line:   extension{config: listening, leads: destination(conn), topic: o.Schema, timeout: o.Timeout, quiet: quiet},
	}
	if err := b.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// prepare sees that the database will do, so that what is wrong shows now and
// not at the first query.
func (b *Backend) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.WriteTimeout)
	defer cancel()
	version, replica, err := b.server(ctx)
	switch {
	case err != nil:
		return err
	case version < oldest:
		return fmt.Errorf("postgres: the server is PostgreSQL %s, which is too old: %d or newer is needed", dotted(version), oldest/10000)
	}
	if replica && b.opts.Poll == 0 {
		b.opts.Poll = replicaPoll
	}
	if err := b.migrate(ctx, !b.opts.SkipMigrations && !replica); err != nil {
		return err
	}
	for _, look := range []string{
		"SELECT version, pruned, chain FROM " + b.tables.state,
		"SELECT " + columns + " FROM " + b.tables.blocks,
		"SELECT workchain, id, balance FROM " + b.tables.accounts,
	} {
		if _, err := b.pool.Exec(ctx, look+" LIMIT 0"); err != nil {
			return failed(fmt.Sprintf("read the tables in schema %q", b.opts.Schema), err)
		}
	}
	err = b.pool.QueryRow(ctx, "SELECT chain::text FROM "+b.tables.state).Scan(&b.chain)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoState
	}
	if err != nil {
		return failed(fmt.Sprintf("read the tables in schema %q", b.opts.Schema), err)
	}
	if b.opts.Poll > 0 {
		return nil
	}
	return b.tryLine(ctx)
}

// tryLine sees that a notification arrives: where there is a pooler in between
// LISTEN may well succeed, and nothing ever come.
func (b *Backend) tryLine(ctx context.Context) error {
	const what = "listen for new blocks"
	conn, err := b.line.dial(ctx)
	if err != nil {
		return failed(what, err)
	}
	defer farewell(conn)
	waiting, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	word := rand.Text()
	if _, err := b.pool.Exec(waiting, notifySQL, channel, word); err != nil {
		return failed(what, err)
	}
	for {
		note, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && note.Payload == word:
			return nil
		case err != nil && ctx.Err() == nil && waiting.Err() != nil:
			return failed("no notification arrives: behind PgBouncer in transaction mode set Options.Poll", err)
		case err != nil:
			return failed(what, err)
		}
	}
}

func (b *Backend) server(ctx context.Context) (version int, replica bool, err error) {
	err = b.read(ctx, "connect", func(ctx context.Context) error {
		return b.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()").Scan(&version, &replica)
	})
	return version, replica, err
}

// dotted writes a version as people do: 130004 is 13.4, 90624 is 9.6.24.
func dotted(version int) string {
	if version >= 100000 {
		return fmt.Sprintf("%d.%d", version/10000, version%10000)
	}
	return fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
}

// Close ends every Follow that is running, waits for the calls that are under
// way, and closes all connections. Shut the Handler down before. A second Close
// does nothing.
func (b *Backend) Close() {
	b.close.Do(func() {
		close(b.closed)
		b.line.close()
		b.pool.Close()
	})
}

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
