package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldestServer is the oldest supported PostgreSQL version, in the format of the setting
// server_version_num.
var oldestServer = 130000

// MaxCursor is the maximum length of a cursor in bytes. A cursor may contain only the
// characters that [chaingql.ChainOrder] and [chaingql.SeqCursor] use: 0-9, a-f, m and -.
const MaxCursor = 64

// A Backend serves the chain that is stored in one schema of a PostgreSQL database. [Open]
// returns a Backend. Its methods are safe for concurrent use.
type Backend struct {
	pool       *pgxpool.Pool
	opts       Options // with defaults applied
	tables     tables
	chain      atomic.Pointer[chain]
	listen     subscription
	writerSem  chan struct{} // semaphore of size 1 for transactions that append or prune
	smallSem   chan struct{} // semaphore for the calls of readSmall that may use a connection
	largeSem   chan struct{} // likewise for readLarge
	resumedSem chan struct{} // likewise for readResumed
	answered   atomic.Uint64 // number of successful reads
	stored     struct {      // what the Writers of this Backend have stored
		sync.Mutex
		chain   string          // identifier of the chain of newest
		newest  chaingql.Cursor // newest cursor that was stored
		blocks  int             // number of blocks that were appended
		analyze int             // value of blocks at which the planner's statistics are refreshed next
	}
	left struct { // see leaveReplica
		sync.Mutex
		at time.Time // when the pool was reset
	}
	closed chan struct{}
	close  sync.Once
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
	_ chaingql.CallLimiter    = (*Backend)(nil)
	_ chaingql.Epocher        = (*Backend)(nil)
	_ chaingql.HashIndex      = (*Backend)(nil)
	_ chaingql.SeqNoIndex     = (*Backend)(nil)
	_ chaingql.TimeIndex      = (*Backend)(nil)
)

// tables holds the quoted names of the tables.
type tables struct{ blocks, accounts, state string }

// Open connects to a database, checks it, and creates or migrates the tables if necessary.
//
// The dsn is a postgres:// URL or a string of key=value pairs, as for libpq. It may also
// contain the keys of pgxpool. Set the key pool_max_conns, the maximum number of
// connections: its default is 4, or the number of processors if that is higher. If the dsn
// names several hosts, the Backend uses the first one that is not a read-only replica, unless
// target_session_attrs has a value other than any.
//
// Open returns an error if the address, password, permissions, server version or tables are
// wrong, or if a connection pooler does not forward notifications. Errors do not contain the
// dsn. ctx applies only to the call of Open. Close the Backend when it is no longer used.
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
	config.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		limitAttempts(ctx, conn, o.Timeout)
		return nil
	}
	if severalServers(&conn.Config) && conn.ValidateConnect == nil {
		// The default of pgx is any server: after a restart of the primary, the pool would stay on a replica, which may
		// lag, while the listener returns to the primary.
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "chaingql"
	}
	if o.PollInterval > 0 {
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	listening := conn.Copy()
	conn.BuildContextWatcherHandler = cancelStatements
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, failed("open", err)
	}
	name := func(table string) string { return pgx.Identifier{o.Schema, table}.Sanitize() }
	most := max(1, config.MaxConns-max(1, config.MaxConns/4)) // leaves a quarter to others
	b := &Backend{
		pool: pool, opts: o, closed: make(chan struct{}), writerSem: make(chan struct{}, 1),
		smallSem:   make(chan struct{}, most),
		largeSem:   make(chan struct{}, max(1, config.MaxConns/2)),
		resumedSem: make(chan struct{}, most),
		tables:     tables{name("blocks"), name("accounts"), name("chaingql_state")},
		listen: subscription{
			config: listening, destination: destination(conn), topic: o.Schema,
			timeout: o.Timeout, pingAfter: pingAfter,
		},
	}
	if err := b.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// prepare checks the database and migrates its tables. If there is a problem, Open then
// reports it, instead of the first query.
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
	if replica && b.opts.PollInterval == 0 {
		b.opts.PollInterval = replicaPoll
	}
	if err := b.checkIndexes(ctx); err != nil {
		return err
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
	c, err := b.readChain(ctx)
	if err != nil {
		return failed(fmt.Sprintf("read the tables in schema %q", b.opts.Schema), err)
	}
	b.chain.Store(c)
	if b.opts.PollInterval > 0 {
		return nil
	}
	return b.checkNotifications(ctx)
}

// checkNotifications sends a notification and checks that it arrives. Through a connection
// pooler, LISTEN may succeed although the pooler never forwards a notification.
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
			return failed("no notification arrived: for PgBouncer in transaction mode set Options.PollInterval", err)
		case err != nil:
			return failed(what, err)
		}
	}
}

func (b *Backend) server(ctx context.Context) (version int, replica bool, err error) {
	err = b.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()").
		Scan(&version, &replica)
	if err != nil {
		return 0, false, failed("connect", err)
	}
	return version, replica, nil
}

// dotted formats a version number: 130004 is 13.4, 90624 is 9.6.24.
func dotted(version int) string {
	if version >= 100000 {
		return fmt.Sprintf("%d.%d", version/10000, version%10000)
	}
	return fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
}

// CallLimit returns three times the maximum number of connections, but at least 8. A quarter of
// this is for single blocks, and a quarter for several balances: as many as may use the pool.
func (b *Backend) CallLimit() int { return max(8, 3*int(b.pool.Config().MaxConns)) }

// Close ends every running Follow, waits for calls in progress, and closes all
// connections. Shut down the Handler first. Further calls do nothing.
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
