package postgres

import (
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// Need sets the oldest supported server, so that tests can run with one that is too old.
func Need(version int) (restore func()) {
	was := oldestServer
	oldestServer = version
	return func() { oldestServer = was }
}

// Migrating adds a migration to those of the package.
func Migrating(script string) (restore func()) {
	was := migrations
	migrations = func() []string { return append(was(), script) }
	return func() { migrations = was }
}

// PageSQL returns the statement of a page.
func (b *Backend) PageSQL(q chaingql.BlocksQuery) (string, []any) {
	return b.pageSQL(q, max(q.First, q.Last))
}

// PlanSQL is the statement before the statement of a page.
var PlanSQL = planSQL

// Writing returns the options of transactions that write.
var Writing = writing

// Polls reports whether the Backend polls instead of using LISTEN.
func (b *Backend) Polls() bool { return b.opts.Poll > 0 }

// PingListenerAfter sets the idle time after which the listener's connection is pinged, for
// further Follows.
func (b *Backend) PingListenerAfter(quiet time.Duration) { b.listen.pingAfter = quiet }

// Hurry sets the deadline of further reads and of connections of Follows.
func (b *Backend) Hurry(timeout time.Duration) { b.opts.Timeout, b.listen.timeout = timeout, timeout }

// WriteWithin sets the deadline of further transactions.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// Destination returns the listener key of a DSN.
func Destination(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return destination(config), nil
}

// ConnectTimeout returns the time limit of an attempt to connect.
func (b *Backend) ConnectTimeout() time.Duration { return b.pool.Config().ConnConfig.ConnectTimeout }

// WithDeadline adds the context's error to an error of a transaction.
var WithDeadline = withDeadline

// Failed wraps an error of pgx. UnknownKey is a check that it uses.
var (
	Failed     = failed
	UnknownKey = unknownKey
)
