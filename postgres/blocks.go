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

func (b *Backend) rows(ctx context.Context, sql string, args []any) (page []chaingql.Block, pruned chaingql.Cursor, err error) {
	rows, err := b.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		block, floor, some, err := scanBlock(rows)
		if err != nil {
			return nil, "", err
		}
		pruned = floor
		if some {
			page = append(page, block)
		}
	}
	return page, pruned, rows.Err()
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
// blocks side by side. Rows are compared with the ends of the stretch, and
// ordered by all columns of the index, to leave the planner no other way: it
// would walk the primary key for blocks that it takes for common. How many are
// asked for is written out, as it would plan a LIMIT that it does not know anew
// each time; and rounded up to a power of two, so that few statements are
// prepared.
func (b *Backend) pageSQL(q chaingql.BlocksQuery, n int) (string, []any) {
	key, low, args := "cursor", "$1", []any{string(q.After), string(q.Before)}
	high, order := "$2", " ASC"
	if q.Before == "" {
		args[1] = pastAll
	}
	if q.Last > 0 {
		order = " DESC"
	}
	limit := " LIMIT " + strconv.Itoa(1<<bits.Len(uint(n-1)))
	from := b.tables.blocks
	also := func(column, value string) {
		key, low, high = column+", "+key, value+", "+low, value+", "+high
	}
	if q.Shard != nil {
		args = append(args, int64(*q.Shard))
		also("shard", "$3")
	}
	if q.Workchain != nil {
		args = append(args, *q.Workchain)
		also("workchain", "$"+strconv.Itoa(len(args)))
	} else if q.Shard != nil { // the index on shards begins with the workchain, of which there are few
		also("workchain", "w.id")
	}
	blocks := "SELECT " + columns + " FROM " + from + " WHERE (" + key + ") > (" + low + ") AND (" + key + ") < (" + high + ")" +
		" ORDER BY " + strings.ReplaceAll(key, ",", order+",") + order + limit
	if q.Workchain == nil && q.Shard != nil {
		blocks = "SELECT s.* FROM (" + workchains(from) + ") w CROSS JOIN LATERAL (" + blocks + ") s ORDER BY cursor" + order + limit
	}
	return "SELECT s.pruned, b.* FROM " + b.tables.state + " s LEFT JOIN LATERAL (" + blocks + ") b ON true", args
}

// pastAll is past every cursor: none has an n.
const pastAll = "n"

// workchains finds the workchains by leaps through an index.
func workchains(blocks string) string {
	return "WITH RECURSIVE leap (id) AS (SELECT min(workchain) FROM " + blocks +
		" UNION ALL SELECT (SELECT min(workchain) FROM " + blocks + " WHERE workchain > leap.id) FROM leap WHERE leap.id IS NOT NULL)" +
		" SELECT id FROM leap WHERE id IS NOT NULL"
}
