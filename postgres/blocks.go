package postgres

import (
	"context"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// columns lists the columns of table blocks in the order in which scanBlock reads them.
const columns = "cursor, workchain, shard, seq_no, hash, gen_time"

// Blocks returns one page of blocks, as [chaingql.Backend] specifies. It runs one
// statement, which uses an index. If blocks were pruned, an empty q.After means the
// beginning of the remaining blocks, and Blocks returns [chaingql.ErrCursorTooOld] if
// q.After is less than the cursor of the newest pruned block.
//
// Pages of several blocks and calls of [Backend.Balances] for more than 4 accounts use at most
// half of the connections, or one if there is only one. Further ones wait for at most half of the
// time until their deadline, and then return an error that wraps [chaingql.ErrUnavailable]. Pages
// that a Handler reads for its subscriptions ([chaingql.ForSubscriptions]) have a limit of their own,
// three quarters of the connections.
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	read := b.readLarge
	switch {
	case max(q.First, q.Last) == 1: // Handler.Health reads one block
		read = b.read
	case chaingql.ForSubscriptions(ctx):
		read = b.readResumed
	}
	page, pruned, err := b.page(ctx, b.chain.Load(), q, read)
	if err == nil && q.After != "" && q.After < pruned {
		return nil, chaingql.ErrCursorTooOld
	}
	return page, err
}

// page reads a page of chain c with read and, in the same snapshot, the cursor of the newest pruned block.
func (b *Backend) page(
	ctx context.Context, c *chain, q chaingql.BlocksQuery, read reader,
) (page []chaingql.Block, pruned chaingql.Cursor, err error) {
	if checkCursor(q.After) != nil || checkCursor(q.Before) != nil {
		return nil, "", chaingql.ErrBadCursor
	}
	n := max(q.First, q.Last)
	if n <= 0 {
		return nil, "", nil
	}
	sql, args := b.pageSQL(c, q, n)
	err = read(ctx, "read blocks", func(ctx context.Context) error {
		page, pruned, err = b.rows(ctx, sql, args)
		return err
	})
	if err != nil {
		return nil, "", b.noticed(ctx, c, err)
	}
	// SQL does not guarantee an order after the join. In practice the rows arrive in ascending or descending
	// order, so the sort takes linear time.
	slices.SortFunc(page, func(x, y chaingql.Block) int { return strings.Compare(string(x.Cursor), string(y.Cursor)) })
	if q.Last > 0 {
		return page[max(0, len(page)-n):], pruned, nil
	}
	return page[:min(n, len(page))], pruned, nil
}

// rows runs the statement of a page. If the result has no rows, the chain was dropped, and
// rows returns errReplaced.
func (b *Backend) rows(
	ctx context.Context, sql string, args []any,
) (page []chaingql.Block, pruned chaingql.Cursor, err error) {
	known := false
	err = b.query(ctx, sql, args, func(rows pgx.Rows) error {
		block, floor, some, err := scanBlock(rows)
		if err != nil {
			return err
		}
		pruned, known = floor, true
		if some {
			page = append(page, block)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, "", err
	case !known:
		return nil, "", errReplaced
	}
	return page, pruned, nil
}

// scanBlock reads one row of a page. If the page is empty, its only row has no block, and
// some is false.
func scanBlock(rows pgx.Rows) (block chaingql.Block, pruned chaingql.Cursor, some bool, err error) {
	if rows.RawValues()[1] == nil {
		err = rows.Scan(&pruned, nil, nil, nil, nil, nil, nil)
		return block, pruned, false, err
	}
	var (
		shard, seqNo int64
		hash         pgtype.DriverBytes
		at           time.Time
	)
	err = rows.Scan(&pruned, &block.Cursor, &block.Workchain, &shard, &seqNo, &hash, &at)
	block.Shard, block.SeqNo, block.Time = uint64(shard), uint32(seqNo), at.UTC()
	copy(block.Hash[:], hash)
	return block, pruned, true, err
}

// pageSQL returns the statement that reads a page, and its arguments. The statement reads
// one range of the index that contains the page's blocks in cursor order. The planner must
// use that index regardless of its statistics, and the scan must be short:
//
//   - [settingsSQL] disables all plans except index scans.
//   - The three indexes compare cursors with different operators or collations, which yield
//     the same order. A statement matches only one of them, so the planner cannot scan an
//     index without shards to find the blocks of one shard.
//   - LIMIT is a constant, because PostgreSQL would plan a statement with an unknown limit
//     again each time it runs. It is rounded up to a power of two, so that there are only few
//     different statements to prepare.
//   - If q.Before is empty, the statement has no upper bound: for a range with two bounds,
//     PostgreSQL expects few rows and would sort them all.
//   - The range begins after the pruned blocks. The scan would otherwise step over their index
//     entries until they are vacuumed.
func (b *Backend) pageSQL(c *chain, q chaingql.BlocksQuery, n int) (string, []any) {
	cursor, above, below := "cursor", ">", "<"
	if q.Shard != nil {
		cursor = `cursor COLLATE "POSIX"`
	} else if q.Workchain != nil {
		above, below = "~>~", "~<~"
	}
	args := []any{string(q.After)}
	where := cursor + " " + above + " greatest($1, s.pruned)"
	also := func(condition string, value any) {
		args = append(args, value)
		where += " AND " + condition + " $" + strconv.Itoa(len(args))
	}
	if q.Before != "" {
		also(cursor+" "+below, string(q.Before))
	}
	if q.Shard != nil {
		also("shard =", int64(*q.Shard))
	}
	if q.Workchain != nil {
		also("workchain =", *q.Workchain)
	}
	end := " ORDER BY " + cursor + " USING " + below
	if q.Last > 0 {
		end = " ORDER BY " + cursor + " USING " + above
	}
	end += " LIMIT " + strconv.Itoa(1<<bits.Len(uint(n-1)))
	page := func(where string) string {
		return "SELECT " + columns + " FROM " + b.tables.blocks + " WHERE " + where + end
	}
	blocks := page(where)
	if q.Workchain == nil && q.Shard != nil {
		// The index on shards begins with the workchain. There are few workchains, so search each of them.
		blocks = "SELECT of.* FROM (" + workchains(b.tables.blocks) + ") w CROSS JOIN LATERAL (" +
			page(where+" AND workchain = w.id") + ") of" + end
	}
	return b.snapshotSQL(c, blocks), args
}

// snapshotSQL returns a statement that runs the query blocks on chain c. Each row begins with the cursor of the newest
// pruned block, as s.pruned, to which the query may refer. If the query yields nothing, the statement returns one row
// without a block. If the tables contain another chain, it returns no row.
func (b *Backend) snapshotSQL(c *chain, blocks string) string {
	return "SELECT s.pruned, b.* FROM (SELECT pruned FROM " + b.tables.state + " WHERE chain = '" + c.id +
		"' LIMIT 1) s LEFT JOIN LATERAL (" + blocks + ") b ON true"
}

// workchains returns a query for the ids of all workchains. The query finds each id with
// one index lookup (a loose index scan). It starts at the highest id, because the first
// blocks of a workchain may be pruned but not vacuumed yet, and an ascending scan would
// visit each of them.
func workchains(blocks string) string {
	return "WITH RECURSIVE leap (id) AS (SELECT max(workchain) FROM " + blocks +
		" UNION ALL SELECT (SELECT max(workchain) FROM " + blocks +
		" WHERE workchain < leap.id) FROM leap WHERE leap.id IS NOT NULL)" +
		" SELECT id FROM leap WHERE id IS NOT NULL"
}
