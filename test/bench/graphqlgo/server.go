// Package graphqlgo serves queries about the benchmark's chain with graphql-go/graphql and
// graphql-go/handler, which it sets up as their READMEs do. They do not support subscriptions over
// WebSocket.
package graphqlgo

import (
	"net/http"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/graphql-go/graphql"
	"github.com/graphql-go/handler"

	"github.com/chaingql/chaingql/test/bench/source"
)

// New returns a handler that serves the chain of s.
func New(s *source.Source) (http.Handler, error) {
	schema, err := graphql.NewSchema(graphql.SchemaConfig{Query: query(s)})
	if err != nil {
		return nil, err
	}
	return handler.New(&handler.Config{Schema: &schema}), nil
}

type account struct {
	addr chaingql.Address
	raw  string
}

// field returns a field with a resolver that calls get with the parent object, which has type T.
func field[T any](of graphql.Output, get func(T) any) *graphql.Field {
	return &graphql.Field{Type: of, Resolve: func(p graphql.ResolveParams) (any, error) {
		return get(p.Source.(T)), nil
	}}
}

func emptyObject(graphql.ResolveParams) (any, error) { return struct{}{}, nil }

func query(s *source.Source) *graphql.Object {
	return graphql.NewObject(graphql.ObjectConfig{Name: "Query", Fields: graphql.Fields{
		"info":       {Type: info(), Resolve: emptyObject},
		"blockchain": {Type: blockchain(s), Resolve: emptyObject},
	}})
}

func info() *graphql.Object {
	return graphql.NewObject(graphql.ObjectConfig{Name: "Info", Fields: graphql.Fields{
		"version":     field(graphql.String, func(struct{}) any { return chaingql.Version }),
		"time":        field(graphql.Float, func(struct{}) any { return time.Now().UnixMilli() }),
		"rempEnabled": field(graphql.Boolean, func(struct{}) any { return false }),
	}})
}

func blockchain(s *source.Source) *graphql.Object {
	accountQuery := graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainAccountQuery", Fields: graphql.Fields{
		"info": field(accountType(s), func(a *account) any { return a }),
	}})
	return graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainQuery", Fields: graphql.Fields{
		"account": {
			Type: accountQuery,
			Args: graphql.FieldConfigArgument{"address": {Type: graphql.NewNonNull(graphql.String)}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				addr, err := source.Account(p.Args["address"].(string))
				if err != nil {
					return nil, err
				}
				return &account{addr, addr.String()}, nil
			},
		},
		"blocks": {
			Type: connectionType(),
			Args: graphql.FieldConfigArgument{
				"workchain": {Type: graphql.Int}, "shard": {Type: graphql.String},
				"first": {Type: graphql.Int}, "after": {Type: graphql.String},
				"last": {Type: graphql.Int}, "before": {Type: graphql.String},
				"allow_latest_inconsistent_data": {Type: graphql.Boolean},
			},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				page, err := s.Page(p.Context, source.Ask{
					Workchain: argument[int](p, "workchain"), Shard: argument[string](p, "shard"),
					First: argument[int](p, "first"), After: argument[string](p, "after"),
					Last: argument[int](p, "last"), Before: argument[string](p, "before"),
				})
				if err != nil {
					return nil, err
				}
				return page, nil
			},
		},
	}})
}

// argument returns an argument of a field, or nil if it is absent.
func argument[T any](p graphql.ResolveParams, name string) *T {
	if v, ok := p.Args[name].(T); ok {
		return &v
	}
	return nil
}

func accountType(s *source.Source) *graphql.Object {
	format := graphql.NewEnum(graphql.EnumConfig{Name: "BigIntFormat",
		Values: graphql.EnumValueConfigMap{"HEX": {Value: "HEX"}, "DEC": {Value: "DEC"}}})
	return graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainAccount", Fields: graphql.Fields{
		"id":      field(graphql.NewNonNull(graphql.ID), func(a *account) any { return "account/" + a.raw }),
		"address": field(graphql.String, func(a *account) any { return a.raw }),
		"balance": {
			Type: graphql.String,
			Args: graphql.FieldConfigArgument{"format": {Type: format}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				return s.Text(p.Context, p.Source.(*account).addr, p.Args["format"] == "DEC")
			},
		},
	}})
}

func connectionType() *graphql.Object {
	edge := graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainBlocksEdge", Fields: graphql.Fields{
		"node":   field(graphql.NewNonNull(blockType()), func(b *chaingql.Block) any { return b }),
		"cursor": field(graphql.NewNonNull(graphql.String), func(b *chaingql.Block) any { return string(b.Cursor) }),
	}})
	pageInfo := graphql.NewObject(graphql.ObjectConfig{Name: "PageInfo", Fields: graphql.Fields{
		"startCursor": field(graphql.String, func(p *source.Page) any { return p.Start() }),
		"endCursor":   field(graphql.String, func(p *source.Page) any { return p.End() }),
		"hasNextPage": field(graphql.NewNonNull(graphql.Boolean), func(p *source.Page) any { return p.HasNext }),
		"hasPreviousPage": field(graphql.NewNonNull(graphql.Boolean), func(p *source.Page) any {
			return p.HasPrevious
		}),
	}})
	edges := func(p *source.Page) any {
		all := make([]*chaingql.Block, len(p.Blocks))
		for i := range all {
			all[i] = &p.Blocks[i]
		}
		return all
	}
	return graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainBlocksConnection", Fields: graphql.Fields{
		"edges":    field(graphql.NewNonNull(graphql.NewList(graphql.NewNonNull(edge))), edges),
		"pageInfo": field(graphql.NewNonNull(pageInfo), func(p *source.Page) any { return p }),
	}})
}

func blockType() *graphql.Object {
	return graphql.NewObject(graphql.ObjectConfig{Name: "BlockchainBlock", Fields: graphql.Fields{
		"id": field(graphql.NewNonNull(graphql.ID), func(b *chaingql.Block) any {
			return "block/" + b.Hash.String()
		}),
		"hash":         field(graphql.String, func(b *chaingql.Block) any { return b.Hash.String() }),
		"seq_no":       field(graphql.Float, func(b *chaingql.Block) any { return b.SeqNo }),
		"workchain_id": field(graphql.Int, func(b *chaingql.Block) any { return b.Workchain }),
		"shard":        field(graphql.String, func(b *chaingql.Block) any { return source.Shard(b) }),
		"gen_utime":    field(graphql.Float, func(b *chaingql.Block) any { return b.Time.Unix() }),
		"chain_order":  field(graphql.String, func(b *chaingql.Block) any { return string(b.Cursor) }),
	}})
}
