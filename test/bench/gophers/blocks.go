package gophers

import (
	"github.com/chaingql/chaingql"
	graphql "github.com/graph-gophers/graphql-go"

	"github.com/chaingql/chaingql/test/bench/source"
)

type connection struct{ page *source.Page }

func (c *connection) Edges() []*edge {
	edges := make([]*edge, len(c.page.Blocks))
	for i := range edges {
		edges[i] = &edge{&c.page.Blocks[i]}
	}
	return edges
}

func (c *connection) PageInfo() *pageInfo { return (*pageInfo)(c.page) }

type pageInfo source.Page

func (p *pageInfo) StartCursor() *string  { c := (*source.Page)(p).Start(); return &c }
func (p *pageInfo) EndCursor() *string    { c := (*source.Page)(p).End(); return &c }
func (p *pageInfo) HasNextPage() bool     { return p.HasNext }
func (p *pageInfo) HasPreviousPage() bool { return p.HasPrevious }

type edge struct{ block *chaingql.Block }

func (e *edge) Node() *node    { return &node{fields{e.block}} }
func (e *edge) Cursor() string { return string(e.block.Cursor) }

// fields resolves the block fields that are the same in queries and subscriptions.
type fields struct{ b *chaingql.Block }

func (f fields) SeqNo() *float64     { n := float64(f.b.SeqNo); return &n }
func (f fields) WorkchainID() *int32 { return &f.b.Workchain }
func (f fields) Shard() *string      { s := source.Shard(f.b); return &s }
func (f fields) GenUtime() *float64  { t := float64(f.b.Time.Unix()); return &t }
func (f fields) ChainOrder() *string { return (*string)(&f.b.Cursor) }

type node struct{ fields }

func (n *node) ID() graphql.ID { return graphql.ID("block/" + n.b.Hash.String()) }
func (n *node) Hash() *string  { h := n.b.Hash.String(); return &h }

type block struct{ fields }

func (b *block) ID() *string { h := b.b.Hash.String(); return &h }

func live(b chaingql.Block) *block { return &block{fields{&b}} }
