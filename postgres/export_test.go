package postgres

import (
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// Need lets tests meet a server that is too old.
func Need(version int) (restore func()) {
	was := oldest
	oldest = version
	return func() { oldest = was }
}

// Migrating adds a migration to the package's own.
func Migrating(script string) (restore func()) {
	was := migrations
	migrations = func() []string { return append(was(), script) }
	return func() { migrations = was }
}

// PageSQL is the statement of a page.
func (b *Backend) PageSQL(q chaingql.BlocksQuery) (string, []any) {
	return b.pageSQL(q, max(q.First, q.Last))
}

// PlanSQL is the statement before the statement of a page.
var PlanSQL = planSQL

// Writing is how each transaction that writes begins.
var Writing = writing

// Polls tells whether the Backend does without LISTEN.
func (b *Backend) Polls() bool { return b.opts.Poll > 0 }

// TestLine sets after what silence the line is tested, for Follows to come.
func (b *Backend) TestLine(quiet time.Duration) { b.line.quiet = quiet }

// Hurry sets the deadline of reads to come, and of Follows to connect.
func (b *Backend) Hurry(timeout time.Duration) { b.opts.Timeout, b.line.timeout = timeout, timeout }

// WriteWithin sets the deadline of transactions to come.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// Destination is where a DSN's connection for LISTEN leads.
func Destination(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return destination(config), nil
}

// Overdue is what becomes of an error of a transaction.
var Overdue = overdue

// Failed is the error made of pgx's, UnknownKey what it looks for.
var (
	Failed     = failed
	UnknownKey = unknownKey
)
