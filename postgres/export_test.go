package postgres

import (
	"context"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// Need sets the oldest supported server version, so that the server of the tests can be too old.
func Need(version int) (restore func()) {
	was := oldestServer
	oldestServer = version
	return func() { oldestServer = was }
}

// Migrating appends a migration to those of the package until restore is called.
func Migrating(script string) (restore func()) {
	was := migrations
	migrations = func() []string { return append(was(), script) }
	return func() { migrations = was }
}

// PageSQL returns the statement that reads a page, and its arguments.
func (b *Backend) PageSQL(q chaingql.BlocksQuery) (string, []any) {
	return b.pageSQL(b.chain.Load(), q, max(q.First, q.Last))
}

// LookupSQL returns the statements that find a block by its hash, by its number and by its time.
func (b *Backend) LookupSQL() (hash, seqNo, time string) {
	c := b.chain.Load()
	return b.lookupSQL(c, byHash), b.lookupSQL(c, bySeqNo), b.lookupSQL(c, b.byTime())
}

// SettingsSQL is the statement that runs before the statement of a page. It restricts its plan.
var SettingsSQL = settingsSQL

// Writing returns the options of transactions that write.
var Writing = writing

// Polls reports whether the Backend polls instead of using LISTEN.
func (b *Backend) Polls() bool { return b.opts.PollInterval > 0 }

// PingListenerAfter sets the time without notifications after which a listener pings its
// connection. It applies to listeners that start later.
func (b *Backend) PingListenerAfter(quiet time.Duration) { b.listen.pingAfter = quiet }

// FillPool opens all connections of the pool.
func (b *Backend) FillPool(ctx context.Context) error {
	for range b.pool.Config().MaxConns {
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
	}
	return nil
}

// Hurry sets the timeout of later reads and of later attempts to open a LISTEN connection.
func (b *Backend) Hurry(timeout time.Duration) { b.opts.Timeout, b.listen.timeout = timeout, timeout }

// WriteWithin sets the timeout of later write transactions until restore is called.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// Destination returns the key under which the registry holds the listener of a DSN.
func Destination(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return destination(config), nil
}

// ConnectTimeout returns the time limit of one attempt to connect to a server.
func (b *Backend) ConnectTimeout() time.Duration {
	config := b.pool.Config()
	_ = config.BeforeConnect(context.Background(), config.ConnConfig)
	return config.ConnConfig.ConnectTimeout
}

// LookingUp makes connections look up names with f until restore is called.
func LookingUp(f func(ctx context.Context, name string) ([]string, error)) (restore func()) {
	was := lookUp
	lookUp = f
	return func() { lookUp = was }
}

// LeavingReplicas sets the minimum time between two resets of a pool because of a replica, until restore is called.
func LeavingReplicas(interval time.Duration) (restore func()) {
	was := leaveInterval
	leaveInterval = interval
	return func() { leaveInterval = was }
}

// WithDeadline adds the context's error to the error of a canceled statement.
var WithDeadline = withDeadline

// Failed wraps an error of pgx in an error that does not contain the DSN.
var Failed = failed

// UnknownKey reports whether an error quotes a rejected key of the DSN.
var UnknownKey = unknownKey
