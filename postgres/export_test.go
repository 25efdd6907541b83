package postgres

import (
	"time"

	"github.com/chaingql/chaingql"
)

// Need lets tests meet a server that is too old.
func Need(version int) (restore func()) {
	was := oldest
	oldest = version
	return func() { oldest = was }
}

// PageSQL is the statement of a page.
func (b *Backend) PageSQL(q chaingql.BlocksQuery) (string, []any) {
	return b.pageSQL(q, max(q.First, q.Last))
}

// Polls tells whether the Backend does without LISTEN.
func (b *Backend) Polls() bool { return b.opts.Poll > 0 }

// TestLine sets after what silence the line is tested, for Follows to come.
func (b *Backend) TestLine(quiet time.Duration) { b.lines.quiet = quiet }

// Failed is the error made of pgx's.
var Failed = failed
