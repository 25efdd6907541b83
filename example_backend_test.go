package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/chaingql/chaingql"
)

// An archive is a Backend that reads from a slice. docs/backend.md shows a Backend that reads from a file.
type archive struct {
	blocks   []chaingql.Block // ascending by cursor
	balances map[chaingql.Address]int64
}

func (a *archive) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	nano, ok := a.balances[addr]
	if !ok {
		return nil, chaingql.ErrNotFound
	}
	return big.NewInt(nano), ctx.Err()
}

func (a *archive) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	return chaingql.PageOf(a.blocks, q), ctx.Err()
}

func (a *archive) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, a.Blocks, after, time.Second)
}

func ExampleBackend() {
	account := chaingql.Address{Workchain: -1}
	chain := &archive{
		blocks: []chaingql.Block{
			{Workchain: -1, SeqNo: 1, Cursor: chaingql.SeqCursor(1)},
			{Workchain: -1, SeqNo: 2, Cursor: chaingql.SeqCursor(2)},
		},
		balances: map[chaingql.Address]int64{account: 7_000_000_000},
	}
	handler := chaingql.New(chain, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	defer handler.Shutdown(context.Background())

	for _, document := range []string{
		`{blockchain{account(address:"` + account.String() + `"){info{balance(format:DEC)}}}}`,
		`{blockchain{blocks(last:1){edges{node{seq_no} cursor}}}}`,
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/demo/graphql?query="+url.QueryEscape(document), nil))
		fmt.Println(w.Body)
	}
	// Output:
	// {"data":{"blockchain":{"account":{"info":{"balance":"7000000000"}}}}}
	// {"data":{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":2},"cursor":"02"}]}}}}
}
