package source

import (
	"context"
	"errors"
	"strconv"

	"github.com/chaingql/chaingql"
)

// pageSize is the default and the maximum number of blocks on a page.
const pageSize = 50

// Ask holds the arguments of the query field "blocks". An argument that is absent is nil.
type Ask struct {
	Workchain           *int
	Shard               *string
	First, Last         *int
	After, Before       *string
	AllowInconsistently *bool // accepted and ignored
}

// A Page is the result of the query field "blocks".
type Page struct {
	Blocks               []chaingql.Block
	HasNext, HasPrevious bool
}

// Start returns the cursor of the first block on the page, or "" if the page is empty.
func (p *Page) Start() string {
	if len(p.Blocks) == 0 {
		return ""
	}
	return string(p.Blocks[0].Cursor)
}

// End returns the cursor of the last block on the page, or "" if the page is empty.
func (p *Page) End() string {
	if len(p.Blocks) == 0 {
		return ""
	}
	return string(p.Blocks[len(p.Blocks)-1].Cursor)
}

// Page returns the page of blocks that ask selects. It reads one more block than the page contains, to
// know whether there is a next or a previous page.
func (s *Source) Page(ctx context.Context, ask Ask) (*Page, error) {
	q, err := ask.query()
	if err != nil {
		return nil, err
	}
	size := q.First + q.Last
	if q.First > 0 {
		q.First++
	} else {
		q.Last++
	}
	blocks, err := s.Blocks(ctx, q)
	if err != nil {
		return nil, err
	}
	p := &Page{Blocks: blocks}
	if len(blocks) > size {
		if q.First > 0 {
			p.Blocks, p.HasNext = blocks[:size], true
		} else {
			p.Blocks, p.HasPrevious = blocks[len(blocks)-size:], true
		}
	}
	return p, nil
}

func (a *Ask) query() (chaingql.BlocksQuery, error) {
	var q chaingql.BlocksQuery
	if a.Workchain != nil {
		workchain := int32(*a.Workchain)
		q.Workchain = &workchain
	}
	if a.Shard != nil {
		shard, err := strconv.ParseUint(*a.Shard, 16, 64)
		if err != nil || len(*a.Shard) != 16 {
			return q, errors.New("Invalid shard: 16 hex digits expected")
		}
		q.Shard = &shard
	}
	if a.After != nil {
		q.After = chaingql.Cursor(*a.After)
	}
	if a.Before != nil {
		q.Before = chaingql.Cursor(*a.Before)
	}
	switch {
	case a.First != nil && (a.Last != nil || a.Before != nil), a.Last != nil && a.After != nil:
		return q, errors.New("use first only with after, and last only with before")
	case a.First != nil && *a.First < 1, a.Last != nil && *a.Last < 1:
		return q, errors.New("first and last must be at least 1")
	case a.First != nil:
		q.First = min(*a.First, pageSize)
	case a.Last != nil:
		q.Last = min(*a.Last, pageSize)
	case a.After != nil:
		q.First = pageSize
	default:
		q.Last = pageSize
	}
	return q, nil
}
