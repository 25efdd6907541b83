package postgres

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// read gives a read its deadline. Where the connection turns out to be broken
// it is made again, on a new one: after a restart of the server all that the
// pool kept are, and none of the callers need to know.
func (b *Backend) read(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	err := do(ctx)
	if broken(err) && ctx.Err() == nil {
		b.pool.Reset()
		err = do(ctx)
	}
	if err != nil {
		return failed(what, err)
	}
	return nil
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
