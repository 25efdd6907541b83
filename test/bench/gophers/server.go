// Package gophers serves the benchmark's chain with graph-gophers/graphql-go and
// graph-gophers/graphql-transport-ws, which it sets up as their READMEs do.
package gophers

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/chaingql/chaingql"
	graphql "github.com/graph-gophers/graphql-go"
	"github.com/graph-gophers/graphql-go/relay"
	"github.com/graph-gophers/graphql-transport-ws/graphqlws"

	"github.com/chaingql/chaingql/test/bench/source"
)

// sdl lacks the fields that no benchmark queries, because ParseSchema requires a resolver for each field.
//
//go:embed schema.graphql
var sdl string

// New returns a handler that serves the chain of s.
func New(s *source.Source) (http.Handler, error) {
	schema, err := graphql.ParseSchema(sdl, &root{s, source.NewFeed(s, live)})
	if err != nil {
		return nil, err
	}
	return graphqlws.NewHandlerFunc(schema, &relay.Handler{Schema: schema}), nil
}

type root struct {
	source *source.Source
	feed   *source.Feed[*block]
}

func (r *root) Info() *info        { return &info{} }
func (r *root) Blockchain() *chain { return &chain{r.source} }
func (r *root) Blocks(ctx context.Context, args struct {
	Filter *blockFilter
	After  *string
}) <-chan *block {
	return r.feed.Subscribe(ctx, args.Filter.filter().Matches)
}

type info struct{}

func (*info) Version() *string        { v := chaingql.Version; return &v }
func (*info) Time() *float64          { now := float64(time.Now().UnixMilli()); return &now }
func (*info) Latency() *float64       { return nil }
func (*info) BlocksLatency() *float64 { return nil }
func (*info) LastBlockTime() *float64 { return nil }
func (*info) Endpoints() *[]*string   { return nil }
func (*info) RempEnabled() *bool      { return new(bool) }

type chain struct{ source *source.Source }

func (c *chain) Account(args struct{ Address string }) (*accountQuery, error) {
	addr, err := source.Account(args.Address)
	if err != nil {
		return nil, err
	}
	return &accountQuery{account{c.source, addr, addr.String()}}, nil
}

func (c *chain) Blocks(ctx context.Context, args struct {
	Workchain                   *int32
	Shard                       *string
	First                       *int32
	After                       *string
	Last                        *int32
	Before                      *string
	AllowLatestInconsistentData *bool
}) (*connection, error) {
	page, err := c.source.Page(ctx, source.Ask{
		Workchain: wide(args.Workchain), Shard: args.Shard, First: wide(args.First), After: args.After,
		Last: wide(args.Last), Before: args.Before, AllowInconsistently: args.AllowLatestInconsistentData,
	})
	if err != nil {
		return nil, err
	}
	return &connection{page}, nil
}

func wide(n *int32) *int {
	if n == nil {
		return nil
	}
	w := int(*n)
	return &w
}

type accountQuery struct{ account account }

func (q *accountQuery) Info() *account { return &q.account }

type account struct {
	source *source.Source
	addr   chaingql.Address
	raw    string
}

func (a *account) ID() graphql.ID   { return graphql.ID("account/" + a.raw) }
func (a *account) Address() *string { return &a.raw }

func (a *account) Balance(ctx context.Context, args struct{ Format *string }) (*string, error) {
	text, err := a.source.Text(ctx, a.addr, args.Format != nil && *args.Format == "DEC")
	return &text, err
}
