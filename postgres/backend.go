package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldestServer is the oldest supported PostgreSQL version, as in server_version_num.
var oldestServer = 130000

// MaxCursor is the maximum length of a cursor in bytes. Cursors consist of the characters
// of [chaingql.ChainOrder] and [chaingql.SeqCursor]: 0-9, a-f, m and -.
const MaxCursor = 64

// A Backend serves the chain in one schema of a database. [Open] returns one. Its
// methods are safe for concurrent use.
type Backend struct {
	pool      *pgxpool.Pool
	opts      Options // with defaults
	tables    tables
	chain     string // chaingql_state.chain, read by Open
	listen    subscription
	writerSem chan struct{} // held by the Writer that may begin a transaction
	answered  atomic.Uint64 // number of successful reads
	stored    struct {      // by Writers of this Backend
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

// Open connects to a database, checks it, and creates the tables if they are missing.
//
// The DSN is a postgres:// URL or a string of key=value pairs, as for libpq, with pgx's
// keys in addition. Set pool_max_conns: its default is 4, or the number of processors if
// that is higher.
//
// Open returns an error if the address, password, permissions, version or tables are
// wrong, or if a pooler does not forward notifications. Errors do not contain the DSN.
// ctx applies only to opening. Close the Backend when it is no longer used.
func Open(ctx context.Context, dsn string, opts *Options) (*Backend, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	conn := config.ConnConfig
	if err := checkHosts(&conn.Config); err != nil {
		return nil, err
	}
	if limit := o.Timeout / time.Duration(addresses(conn)); conn.ConnectTimeout <= 0 || conn.ConnectTimeout > limit {
		conn.ConnectTimeout = limit // for each address: a server that hangs leaves time for the next one
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
		pool: pool, opts: o, closed: make(chan struct{}), writerSem: make(chan struct{}, 1),
		tables: tables{name("blocks"), name("accounts"), name("chaingql_state")},
		listen: subscription{
			config: listening, destination: destination(conn), topic: o.Schema, timeout: o.Timeout, pingAfter: pingAfter,
		},
	}
	if err := b.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// addresses returns the number of servers in the DSN.
func addresses(c *pgx.ConnConfig) int {
	type address struct {
		host string
		port uint16
	}
	all := map[address]bool{{c.Host, c.Port}: true}
	for _, f := range c.Fallbacks { // with TLS and without, an address occurs twice
		all[address{f.Host, f.Port}] = true
	}
	return len(all)
}

// prepare checks the database, so that Open reports problems and not the first query.
func (b *Backend) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.WriteTimeout)
	defer cancel()
	version, replica, err := b.server(ctx)
	switch {
	case err != nil:
		return err
	case version < oldestServer:
		return fmt.Errorf("postgres: the server is PostgreSQL %s, which is too old: %d or newer is needed",
			dotted(version), oldestServer/10000)
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
	return b.checkNotifications(ctx)
}

// checkNotifications checks that a notification arrives. Through a pooler, LISTEN may
// succeed although no notification ever arrives.
func (b *Backend) checkNotifications(ctx context.Context) error {
	const what = "listen for new blocks"
	conn, err := b.listen.dial(ctx)
	if err != nil {
		return failed(what, err)
	}
	defer closeConn(conn)
	waiting, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	token := rand.Text()
	if _, err := b.pool.Exec(waiting, notifySQL, channel, token); err != nil {
		return failed(what, err)
	}
	for {
		note, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && note.Payload == token:
			return nil
		case err != nil && ctx.Err() == nil && waiting.Err() != nil:
			return failed("no notification arrives: for PgBouncer in transaction mode set Options.Poll", err)
		case err != nil:
			return failed(what, err)
		}
	}
}

func (b *Backend) server(ctx context.Context) (version int, replica bool, err error) {
	err = b.read(ctx, "connect", func(ctx context.Context) error {
		return b.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()").
			Scan(&version, &replica)
	})
	return version, replica, err
}

// dotted formats a version number: 130004 is 13.4, 90624 is 9.6.24.
func dotted(version int) string {
	if version >= 100000 {
		return fmt.Sprintf("%d.%d", version/10000, version%10000)
	}
	return fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
}

// Close ends every running Follow, waits for calls in progress, and closes all
// connections. Shut the Handler down first. A second Close does nothing.
func (b *Backend) Close() {
	b.close.Do(func() {
		close(b.closed)
		b.listen.close()
		b.pool.Close()
	})
}

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
