package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A chain identifies the chain that is stored in the tables. chaingql_state has the identifier; it is created with the
// table. A call reads the Backend's chain once, and each of its statements returns no rows if the table has another
// one.
type chain struct {
	id    string // a UUID
	epoch string // its 32 hex digits
}

// Epoch returns the identifier of the chain, as [chaingql.Epocher] specifies. It changes during the
// first call that notices that the tables were dropped and created again, before that call returns.
func (b *Backend) Epoch() string { return b.chain.Load().epoch }

func (b *Backend) readChain(ctx context.Context) (*chain, error) {
	var id string
	err := b.pool.QueryRow(ctx, "SELECT chain::text FROM "+b.tables.state).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoState
	}
	return &chain{id: id, epoch: strings.ReplaceAll(id, "-", "")}, err
}

// noticed returns the error for the caller of a read or write of chain old that failed with err. If that is
// errReplaced, later calls use the new chain.
func (b *Backend) noticed(ctx context.Context, old *chain, err error) error {
	if !errors.Is(err, errReplaced) || b.chain.Load() != old {
		return err
	}
	lost := b.read(ctx, "read the new chain", func(ctx context.Context) error {
		c, err := b.readChain(ctx)
		if err == nil && c.id != old.id {
			b.chain.CompareAndSwap(old, c)
		}
		return err
	})
	if lost != nil {
		return lost
	}
	return err
}
