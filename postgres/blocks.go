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

// columns of a block, as scanBlock reads them.
const columns = "cursor, workchain, shard, seq_no, hash, gen_time"

// Blocks returns one page of the blocks, as [chaingql.Backend] describes it,
// by one statement that an index answers. Where blocks were pruned, After ""
// is before the oldest one kept.
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	page, pruned, err := b.page(ctx, q)
	if err == nil && q.After != "" && q.After < pruned {
		return nil, chaingql.ErrCursorTooOld
	}
	return page, err
}

// page reads a page and, at the same moment, what was pruned last.
func (b *Backend) page(ctx context.Context, q chaingql.BlocksQuery) (page []chaingql.Block, pruned chaingql.Cursor, err error) {
	if checkCursor(q.After) != nil || checkCursor(q.Before) != nil {
		return nil, "", chaingql.ErrBadCursor
	}
	n := max(q.First, q.Last)
	if n <= 0 {
		return nil, "", nil
	}
	sql, args := b.pageSQL(q, n)
	err = b.read(ctx, "read blocks", func(ctx context.Context) error {
		page, pruned, err = b.rows(ctx, sql, args)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	// The join promises no order; it comes in one, so this costs one pass.
	slices.SortFunc(page, func(x, y chaingql.Block) int { return strings.Compare(string(x.Cursor), string(y.Cursor)) })
	if q.Last > 0 {
		return page[max(0, len(page)-n):], pruned, nil
	}
	return page[:min(n, len(page))], pruned, nil
}

// rows runs a page's statement. It has no row only if the Backend's chain is gone.
func (b *Backend) rows(ctx context.Context, sql string, args []any) (page []chaingql.Block, pruned chaingql.Cursor, err error) {
	var batch pgx.Batch // is one transaction
	batch.Queue(planSQL)
	batch.Queue(sql, args...)
	results := b.pool.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, "", err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	known := false
	for rows.Next() {
		block, floor, some, err := scanBlock(rows)
		if err != nil {
			return nil, "", err
		}
		pruned, known = floor, true
		if some {
			page = append(page, block)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, "", err
	}
	if !known {
		return nil, "", errReplaced
	}
	return page, pruned, results.Close()
}

// scanBlock reads a row of a page. Where the page is empty there is one row
// without a block.
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

// pageSQL writes a page's statement, as a stretch of the one index that has its
// blocks side by side. Nothing leaves the planner another way, with whatever
// statistics: [planSQL] turns the others off, and the three indexes sort cursors by
// different operators or collations, to the same order, so that an index without the
// shard cannot be walked for the blocks of a shard. How many are asked for is written out, as it would
// plan a LIMIT that it does not know anew each time; rounded up to a power of two,
// so that few statements are prepared. And an end is left out where there is none:
// of a stretch with two it expects little, and would sort it all. What was pruned
// is below the stretch: until it is vacuumed its remains would be stepped over.
func (b *Backend) pageSQL(q chaingql.BlocksQuery, n int) (string, []any) {
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
	if q.Workchain == nil && q.Shard != nil { // the index on shards begins with the workchain, of which there are few
		blocks = "SELECT of.* FROM (" + workchains(b.tables.blocks) + ") w CROSS JOIN LATERAL (" + page(where+" AND workchain = w.id") + ") of" + end
	}
	return "SELECT s.pruned, b.* FROM (SELECT pruned FROM " + b.tables.state + " WHERE chain = '" + b.chain + "' LIMIT 1) s LEFT JOIN LATERAL (" + blocks + ") b ON true", args
}

// workchains finds the workchains by leaps through an index.
func workchains(blocks string) string {
	return "WITH RECURSIVE leap (id) AS (SELECT min(workchain) FROM " + blocks +
		" UNION ALL SELECT (SELECT min(workchain) FROM " + blocks + " WHERE workchain > leap.id) FROM leap WHERE leap.id IS NOT NULL)" +
		" SELECT id FROM leap WHERE id IS NOT NULL"
}
