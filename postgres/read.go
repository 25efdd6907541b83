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

// read runs do with the deadline Timeout. If the connection is broken, it resets the pool and
// runs do again: after a restart of the server all connections of the pool are broken.
//
// Connections may also be dead without an error, for example if a firewall dropped them. If
// a read reaches its deadline and no other read succeeded meanwhile, read resets the pool.
func (b *Backend) read(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	begun, answered := time.Now(), b.answered.Load()
	err := do(ctx)
	if isBroken(err) && ctx.Err() == nil {
		b.pool.Reset()
		err = do(ctx)
	}
	if err != nil {
		waited := errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) > b.opts.Timeout/2
		if waited && b.answered.Load() == answered { // waited excludes callers with a short deadline
			b.pool.Reset()
		}
		return failed(what, withDeadline(ctx, err))
	}
	b.answered.Add(1)
	return nil
}

// cancelStatements keeps a connection open if the caller's context ends. By default, pgx
// closes it and opens two others, so clients that disconnect would delay all others. A
// statement has 100 ms to end. Then a cancel request is sent, on its own connection. If the
// server does not respond within a second, the connection is closed.
func cancelStatements(conn *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{
		Conn: conn, CancelRequestDelay: 100 * time.Millisecond, DeadlineDelay: time.Second,
	}
}

// isBroken reports whether err shows that an established connection is broken.
func isBroken(err error) bool {
	var (
		connecting *pgconn.ConnectError
		pgErr      *pgconn.PgError
		network    net.Error
	)
	switch {
	case err == nil, errors.As(err, &connecting):
		return false
	case errors.As(err, &pgErr):
		return pgErr.Code == "57P01" || pgErr.Code == "57P02" // the server is shutting down, or crashed
	case errors.As(err, &network):
		return !network.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed)
}
