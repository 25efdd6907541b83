package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// read runs a read with its deadline. If its connection is broken, it runs again on a new one: after a restart of the
// server all connections of the pool are broken, and the callers need not know. They may also be dead without a sign, if
// a firewall forgot them: if a read has met its deadline and no other was answered meanwhile, all are replaced.
func (b *Backend) read(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	begun, answered := time.Now(), b.answered.Load()
	err := do(ctx)
	if broken(err) && ctx.Err() == nil {
		b.pool.Reset()
		err = do(ctx)
	}
	if err != nil {
		waited := errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) > b.opts.Timeout/2
		if waited && b.answered.Load() == answered { // not a caller with a short deadline
			b.pool.Reset()
		}
		return failed(what, overdue(ctx, err))
	}
	b.answered.Add(1)
	return nil
}

// cancelStatements makes a connection outlive a caller who leaves. Without it, pgx closes the connection and opens two:
// clients that hang up made everybody wait for new ones. A statement has 100 ms to end; then the server is asked to
// cancel it, which takes a connection. A server that does not answer within a second loses the connection.
func cancelStatements(conn *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{
		Conn: conn, CancelRequestDelay: 100 * time.Millisecond, DeadlineDelay: time.Second,
	}
}

// broken reports whether an error is a connection's that was good once.
func broken(err error) bool {
	var (
		connecting *pgconn.ConnectError
		told       *pgconn.PgError
		network    net.Error
	)
	switch {
	case err == nil, errors.As(err, &connecting):
		return false
	case errors.As(err, &told):
		return told.Code == "57P01" || told.Code == "57P02" // the server is shutting down, or crashed
	case errors.As(err, &network):
		return !network.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed)
}
