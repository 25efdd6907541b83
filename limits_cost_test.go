package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A countingBackend counts the calls of Balance and Blocks. It is not a BalanceBatcher.
type countingBackend struct {
	chain *memchain.Chain
	calls atomic.Int64
}

func (b *countingBackend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	b.calls.Add(1)
	return b.chain.Balance(ctx, addr)
}

func (b *countingBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	b.calls.Add(1)
	return b.chain.Blocks(ctx, q)
}

func (b *countingBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return b.chain.Follow(ctx, after)
}

const twoAccounts = `{blockchain{
	a:account(address:"0:%064x"){info{balance}}
	b:account(address:"0:%064x"){info{balance d:balance(format:DEC)}}
}}`

func TestQueryAboveCostLimitIsRefusedBeforeExecution(t *testing.T) {
	const page = `query($n:Int){blockchain{blocks(last:$n){__typename}}}`
	zero := `{blockchain{account(address:"0:` + strings.Repeat("00", 32) + `"){info`
	for _, c := range []struct {
		name, document string
		variables      any
		cost, batched  string // with a BalanceBatcher, if different
	}{
		{name: "nothing", document: `{__typename}`, cost: "0 0"},
		{
			name:      "a balance",
			document:  `query($a:String!){blockchain{account(address:$a){info{balance}}}}`,
			variables: map[string]any{"a": strings.Repeat("ab", 32)},
			cost:      "1 0",
		},
		{name: "an account without its balance", document: zero + `{address}}}}`, cost: "0 0"},
		{name: "a balance in two formats", document: zero + `{balance d:balance(format:DEC)}}}}`, cost: "1 0"},
		{name: "two balances", document: fmt.Sprintf(twoAccounts, 1, 2), cost: "2 0", batched: "1 0"},
		{name: "the same twice", document: fmt.Sprintf(twoAccounts, 1, 1), cost: "2 0", batched: "1 0"},
		{name: "a page", document: `{blockchain{blocks{__typename}}}`, cost: "1 50"},
		{name: "a page of seven", document: `{blockchain{blocks(first:7){__typename}}}`, cost: "1 7"},
		{name: "a page by variable", document: page, variables: map[string]any{"n": 3}, cost: "1 3"},
		{name: "a page above the maximum", document: page, variables: map[string]any{"n": 3000}, cost: "1 50"},
		{name: "no page", document: `{blockchain{blocks(first:0){__typename}}}`, cost: "0 0"},
		{
			name:      "not included",
			document:  `query($no:Boolean!){blockchain{blocks @include(if:$no){__typename}}}`,
			variables: map[string]any{"no": false},
			cost:      "0 0",
		},
		{
			name: "in fragments",
			document: `{...A ...A blockchain{x:blocks(first:2){__typename}}}
				fragment A on Query{info{version} blockchain{blocks(first:1){__typename}}}`,
			cost: "3 13",
		},
	} {
		for batching, cost := range map[bool]string{false: c.cost, true: c.batched} {
			if cost == "" {
				cost = c.cost
			}
			t.Run(fmt.Sprintf("%s, batching %v", c.name, batching), func(t *testing.T) {
				var b chaingql.Backend = referenceChain(t)
				counted := &countingBackend{chain: b.(*memchain.Chain)}
				if !batching {
					b = counted
				}
				h, _ := newHandler(t, b, chaingql.Options{ShowCost: true})
				response := query(h, c.document, c.variables)
				var calls, blocks int
				_, err := fmt.Sscan(cost, &calls, &blocks)
				want := fmt.Sprintf(`,"extensions":{"cost":{"calls":%d,"blocks":%d}}}`, calls, blocks)
				if err != nil || !strings.HasSuffix(response, want) {
					t.Errorf("got %s, want %s", response, want)
				}
			})
		}
	}
}

// A query must not exceed its computed cost, even if the window has no blocks.
func TestBackendCallsDoNotExceedTheComputedCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for document, calls := range map[string]int64{
			fmt.Sprintf(twoAccounts, 1, 2): 2,
			fmt.Sprintf(twoAccounts, 1, 1): 2,
			`{blockchain{account(address:"0:` + strings.Repeat("ab", 32) + `"){
				info{balance b:balance c:balance(format:DEC)}
			}}}`: 1,
			`{info{lastBlockTime} blockchain{
				blocks(first:1 after:"x"){__typename} b:blocks(first:2){__typename}
			}}`: 3,
		} {
			b := &countingBackend{chain: referenceChain(t)}
			h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{BackendCalls: int(calls)}, WindowSize: 1})
			r := parse(t, query(h, document, nil))
			if r.code() == "LIMIT_EXCEEDED" || b.calls.Load() > calls+1 { // the block stream makes one call
				t.Errorf("%s made %d calls, want at most %d: %+v", document, b.calls.Load(), calls+1, r.Errors)
			}
			h, _ = newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{BackendCalls: int(calls) - 1}})
			synctest.Wait() // until the first Handler's block stream has made its call
			b.calls.Store(0)
			r = parse(t, query(h, document, nil))
			if calls > 1 && (r.code() != "LIMIT_EXCEEDED" || b.calls.Load() > 0) {
				t.Errorf("%s made %d calls with a limit of %d: %+v", document, b.calls.Load(), calls-1, r.Errors)
			}
		}
	})
}

func TestSubscriptionIsNotLimitedByQueryCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := chaingql.Limits{BackendCalls: 1, QueryBlocks: 1}
		_, chain, n := serveChain(t, chaingql.Options{ShowCost: true, Limits: limits})
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{chain_order}}"))
		s.expect("started")
		b := masterBlock(900, strings.Repeat("00", 32))
		commit(t, chain, b)
		s.expect("a block", data("1", fmt.Sprintf(`{"blocks":{"chain_order":%q}}`, b.Cursor)))
	})
}

func TestFailingBalanceIsReadOncePerRequest(t *testing.T) {
	b := newBatchRecorder()
	down := stubBackend{Backend: b, balance: func(context.Context, chaingql.Address) (*big.Int, error) {
		b.asked = append(b.asked, "one")
		return nil, errors.New("down")
	}}
	var aliases strings.Builder
	for i := range 20 {
		aliases.WriteString(account(fmt.Sprint("a", i), 1) + " ")
	}
	for name, backend := range map[string]chaingql.Backend{"alone": down, "together": struct {
		stubBackend
		chaingql.BalanceBatcher
	}{down, b}} {
		b.asked = nil
		h, _ := newHandler(t, backend, chaingql.Options{ShowCost: true})
		query(h, "{blockchain{"+aliases.String()+"}}", nil)
		equal(t, name, fmt.Sprint(b.asked), "[one]")
	}
}

func TestOutcomeReportsFailureWithAndWithoutShowCost(t *testing.T) {
	for _, show := range []bool{false, true} {
		var failed []bool
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{ShowCost: show, Hooks: chaingql.Hooks{
			OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
				failed = append(failed, o.Failed)
			},
		}})
		query(h, `{blockchain{account(address:"x"){info{balance}}}}`, nil)
		query(h, `{__typename}`, nil)
		equal(t, "failed", fmt.Sprint(failed), "[true false]")
	}
}

// The product of the item counts of nested lists must not overflow to a negative cost.
func TestCostOfNestedListsDoesNotOverflow(t *testing.T) {
	var branch *graphql.Object
	branch = graphql.NewObject(graphql.ObjectConfig{Name: "Branch", Fields: graphql.FieldsThunk(func() graphql.Fields {
		return graphql.Fields{"branches": {Type: graphql.NewList(branch)}}
	})})
	endless := func(map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1, Items: 1<<30 - 1} }
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"tree": {Type: branch}},
			Costs:   map[string]func(map[string]any) chaingql.Cost{"Query.tree": endless, "Branch.branches": endless},
		},
	})
	for depth := range 6 {
		document := "{tree{" + strings.Repeat("branches{", depth+1) + "__typename" + strings.Repeat("}", depth+1) + "}}"
		if got := query(h, document, nil); !strings.Contains(got, "more than the limit of 50") {
			t.Errorf("%s exceeds no limit: %s", document, got)
		}
	}
}
