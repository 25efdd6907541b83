package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// fewAccounts is the maximum number of balances that one call reads without readLarge.
const fewAccounts = 4

var errBusy = errors.New("too many reads are in progress: retry later")

// A reader is the method read of a Backend, or one of those that limit it.
type reader func(ctx context.Context, what string, do func(context.Context) error) error

// readSmall is read for single blocks and few balances. It leaves a quarter of the connections to others. Otherwise the
// calls of readLarge would wait in the pool for as many calls as a Handler makes.
func (b *Backend) readSmall(ctx context.Context, what string, do func(context.Context) error) error {
	return b.readWithin(ctx, b.smallSem, what, do)
}

// readLarge is read for pages and balances that may need much from the server's disk. It uses at most half of the
// connections, so that single balances and blocks, Follow and Writers need not wait for it.
func (b *Backend) readLarge(ctx context.Context, what string, do func(context.Context) error) error {
	return b.readWithin(ctx, b.largeSem, what, do)
}

// readResumed is read for the pages of subscriptions that catch up. It leaves a quarter of the connections to others,
// so that queries do not wait in the pool for all clients that resume.
func (b *Backend) readResumed(ctx context.Context, what string, do func(context.Context) error) error {
	return b.readWithin(ctx, b.resumedSem, what, do)
}

// readWithin is read with a place in a semaphore. It waits for the place for at most half of the time until the
// deadline, because a call that reads later could not end in time.
func (b *Backend) readWithin(
	ctx context.Context, sem chan struct{}, what string, do func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	soon := time.NewTimer(time.Until(deadline) / 2)
	defer soon.Stop()
	select {
	case sem <- struct{}{}:
		defer func() { <-sem }()
	case <-soon.C:
		return failed(what, errBusy)
	case <-ctx.Done():
		return failed(what, ctx.Err())
	}
	return b.read(ctx, what, do)
}

// read runs do with a deadline of [Options].Timeout. If the connection is broken, read resets
// the pool and runs do again, because a restart of the server breaks all connections of the
// pool. It also runs do again if the server rolled the statement back.
//
// A connection may also be dead without an error, for example because a firewall dropped it.
// Therefore read also resets the pool if do reaches the deadline and no other read succeeded
// meanwhile. It does not if the pool had no connection before: Reset would discard those that the
// pool opens, and if opening takes longer than the deadline, no read would ever get one.
func (b *Backend) read(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	begun, answered, pool := time.Now(), b.answered.Load(), b.pool.Stat()
	connected := pool.IdleConns()+pool.AcquiredConns() > 0
	err := do(ctx)
	if isBroken(err) && ctx.Err() == nil {
		b.pool.Reset()
		connected = false
		err = do(ctx)
	}
	if isRolledBack(err) && ctx.Err() == nil {
		err = do(ctx)
	}
	if err != nil {
		waited := errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) > b.opts.Timeout/2
		if waited && connected && b.answered.Load() == answered { // waited excludes callers with a short deadline
			b.pool.Reset()
		}
		return failed(what, withDeadline(ctx, err))
	}
	b.answered.Add(1)
	return nil
}

// query runs a statement that reads, and calls scan for each row. [settingsSQL] precedes it in the same round trip.
// Without it, a prepared statement would keep the plan that suited the tables when they were empty.
func (b *Backend) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	var batch pgx.Batch // its statements run in one transaction
	batch.Queue(settingsSQL)
	batch.Queue(sql, args...)
	results := b.pool.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return results.Close()
}

// cancelStatements keeps a connection open if the caller's context is canceled. By default,
// pgx would close the connection and open two new ones, so that clients that disconnect would
// delay all other clients. With cancelStatements, a statement has 100 ms to end. Then pgx
// sends a cancel request on a separate connection. If the server does not respond within one
// second, pgx closes the connection of the statement.
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
