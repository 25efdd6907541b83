package gqlgen

import (
	"context"
	"time"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// A root implements gqlgen's ResolverRoot, which returns the resolvers of each type.
type root struct {
	source *source.Source
	feed   *source.Feed[*Block]
}

func (r *root) BlockchainAccount() BlockchainAccountResolver { return accounts{r} }
func (r *root) BlockchainQuery() BlockchainQueryResolver     { return chain{r} }
func (r *root) Query() QueryResolver                         { return queries{} }
func (r *root) Subscription() SubscriptionResolver           { return streams{r} }

type queries struct{}

func (queries) Info(context.Context) (*Info, error) {
	now, version := float64(time.Now().UnixMilli()), chaingql.Version
	return &Info{Version: &version, Time: &now, RempEnabled: new(bool)}, nil
}

func (queries) Blockchain(context.Context) (*BlockchainQuery, error) { return &BlockchainQuery{}, nil }

type chain struct{ *root }

func (c chain) Account(_ context.Context, _ *BlockchainQuery, address string) (*BlockchainAccountQuery, error) {
	addr, err := source.Account(address)
	if err != nil {
		return nil, err
	}
	raw := addr.String()
	return &BlockchainAccountQuery{Info: &BlockchainAccount{ID: "account/" + raw, Address: &raw}}, nil
}

func (c chain) Blocks(
	ctx context.Context, _ *BlockchainQuery, workchain *int, shard *string, first *int, after *string,
	last *int, before *string, allow *bool, _ *BlockchainMasterSeqNoFilter, _ *bool,
) (*BlockchainBlocksConnection, error) {
	page, err := c.source.Page(ctx, source.Ask{Workchain: workchain, Shard: shard, First: first, After: after,
		Last: last, Before: before, AllowInconsistently: allow})
	if err != nil {
		return nil, err
	}
	start, end := page.Start(), page.End()
	edges := make([]*BlockchainBlocksEdge, len(page.Blocks))
	for i := range page.Blocks {
		edges[i] = edge(&page.Blocks[i])
	}
	return &BlockchainBlocksConnection{
		Edges: edges,
		PageInfo: &PageInfo{StartCursor: &start, EndCursor: &end, HasNextPage: page.HasNext,
			HasPreviousPage: page.HasPrevious},
	}, nil
}

func edge(b *chaingql.Block) *BlockchainBlocksEdge {
	hash, shard, cursor := b.Hash.String(), source.Shard(b), string(b.Cursor)
	seqNo, workchain, utime := float64(b.SeqNo), int(b.Workchain), float64(b.Time.Unix())
	return &BlockchainBlocksEdge{Cursor: cursor, Node: &BlockchainBlock{
		ID: "block/" + hash, Hash: &hash, SeqNo: &seqNo, WorkchainID: &workchain, Shard: &shard, GenUtime: &utime,
		ChainOrder: &cursor,
	}}
}

type accounts struct{ *root }

func (a accounts) Balance(ctx context.Context, obj *BlockchainAccount, format *BigIntFormat) (*string, error) {
	addr, err := source.Account(*obj.Address)
	if err != nil {
		return nil, err
	}
	text, err := a.source.Text(ctx, addr, format != nil && *format == BigIntFormatDec)
	return &text, err
}

type streams struct{ *root }

func (s streams) Blocks(ctx context.Context, filter *BlockFilter, _ *string) (<-chan *Block, error) {
	return s.feed.Subscribe(ctx, filterOf(filter).Matches), nil
}

func live(b chaingql.Block) *Block {
	hash, shard, cursor := b.Hash.String(), source.Shard(&b), string(b.Cursor)
	seqNo, workchain, utime := float64(b.SeqNo), int(b.Workchain), float64(b.Time.Unix())
	return &Block{ID: &hash, SeqNo: &seqNo, WorkchainID: &workchain, Shard: &shard, GenUtime: &utime,
		ChainOrder: &cursor}
}

func filterOf(f *BlockFilter) *source.Filter {
	if f == nil {
		return nil
	}
	return &source.Filter{
		ID: (*source.Is[string])(f.ID), Shard: (*source.Is[string])(f.Shard),
		ChainOrder: (*source.Is[string])(f.ChainOrder),
		SeqNo:      (*source.Is[float64])(f.SeqNo), GenUtime: (*source.Is[float64])(f.GenUtime),
		Workchain: (*source.Is[int])(f.WorkchainID), Or: filterOf(f.Or),
	}
}
