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

// A till counts what is asked of a chain that cannot look up balances together.
type till struct {
	chain *memchain.Chain
	calls atomic.Int64
}

func (b *till) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	b.calls.Add(1)
	return b.chain.Balance(ctx, addr)
}

func (b *till) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	b.calls.Add(1)
	return b.chain.Blocks(ctx, q)
}

func (b *till) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return b.chain.Follow(ctx, after)
}

const twoAccounts = `{blockchain{a:account(address:"0:%064x"){info{balance}} b:account(address:"0:%064x"){info{balance d:balance(format:DEC)}}}}`

func TestQueryIsPricedBeforeItRuns(t *testing.T) {
	for _, c := range []struct {
		name, document string
		variables      any
		cost, batched  string // where balances are looked up together, if that is another
	}{
		{name: "nothing", document: `{__typename}`, cost: "0 0"},
		{name: "a balance", document: `query($a:String!){blockchain{account(address:$a){info{balance}}}}`, variables: map[string]any{"a": strings.Repeat("ab", 32)}, cost: "1 0"},
		{name: "an account without its balance", document: `{blockchain{account(address:"0:` + strings.Repeat("ab", 32) + `"){info{address}}}}`, cost: "0 0"},
		{name: "a balance in two formats", document: `{blockchain{account(address:"0:` + strings.Repeat("ab", 32) + `"){info{balance d:balance(format:DEC)}}}}`, cost: "1 0"},
		{name: "two balances", document: fmt.Sprintf(twoAccounts, 1, 2), cost: "2 0", batched: "1 0"},
		{name: "the same twice", document: fmt.Sprintf(twoAccounts, 1, 1), cost: "2 0", batched: "1 0"},
		{name: "a page", document: `{blockchain{blocks{__typename}}}`, cost: "1 50"},
		{name: "a page of seven", document: `{blockchain{blocks(first:7){__typename}}}`, cost: "1 7"},
		{name: "a page by variable", document: `query($n:Int){blockchain{blocks(last:$n){__typename}}}`, variables: map[string]any{"n": 3}, cost: "1 3"},
		{name: "a page that cannot be so large", document: `query($n:Int){blockchain{blocks(last:$n){__typename}}}`, variables: map[string]any{"n": 3000}, cost: "1 50"},
		{name: "no page", document: `{blockchain{blocks(first:0){__typename}}}`, cost: "0 0"},
		{name: "left out", document: `query($no:Boolean!){blockchain{blocks @include(if:$no){__typename}}}`, variables: map[string]any{"no": false}, cost: "0 0"},
		{name: "in fragments", document: `{...A ...A blockchain{x:blocks(first:2){__typename}}} fragment A on Query{info{version} blockchain{blocks(first:1){__typename}}}`, cost: "3 13"},
	} {
		for batching, cost := range map[bool]string{false: c.cost, true: c.batched} {
			if cost == "" {
				cost = c.cost
			}
			t.Run(fmt.Sprintf("%s, batching %v", c.name, batching), func(t *testing.T) {
				var b chaingql.Backend = referenceChain(t)
				counted := &till{chain: b.(*memchain.Chain)}
				if !batching {
					b = counted
				}
				h, _ := newHandler(t, b, chaingql.Options{ShowCost: true})
				answer := query(h, c.document, c.variables)
				var calls, blocks int
				_, err := fmt.Sscan(cost, &calls, &blocks)
				want := fmt.Sprintf(`,"extensions":{"cost":{"calls":%d,"blocks":%d}}}`, calls, blocks)
				if err != nil || !strings.HasSuffix(answer, want) {
					t.Errorf("answer %s, want %s", answer, want)
				}
			})
		}
	}
}

// A price is no less than what is done then, whatever the window has.
func TestNothingCostsMoreThanItsPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for document, calls := range map[string]int64{
			fmt.Sprintf(twoAccounts, 1, 2): 2,
			fmt.Sprintf(twoAccounts, 1, 1): 2,
			`{blockchain{account(address:"0:` + strings.Repeat("ab", 32) + `"){info{balance b:balance c:balance(format:DEC)}}}}`: 1,
			`{info{lastBlockTime} blockchain{blocks(first:1 after:"x"){__typename} b:blocks(first:2){__typename}}}`:              3,
		} {
			b := &till{chain: referenceChain(t)}
			h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Calls: int(calls)}, Window: 1})
			r := parse(t, query(h, document, nil))
			if r.code() == "LIMIT_EXCEEDED" || b.calls.Load() > calls+1 { // one is the log's own
				t.Errorf("%d calls, %+v, of %s", b.calls.Load(), r.Errors, document)
			}
			h, _ = newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{Calls: int(calls) - 1}})
			synctest.Wait() // until the first one's log has asked
			b.calls.Store(0)
			if r := parse(t, query(h, document, nil)); calls > 1 && (r.code() != "LIMIT_EXCEEDED" || b.calls.Load() > 0) {
				t.Errorf("one call less: %d calls, %+v, of %s", b.calls.Load(), r.Errors, document)
			}
		}
	})
}

func TestSubscriptionHasNoPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := live(t, chaingql.Options{ShowCost: true, Limits: chaingql.Limits{Calls: 1, Blocks: 1}})
		s := n.socket(t)
		s.say(start("1", "subscription{blocks{chain_order}}"))
		s.expect("started")
		b := masterBlock(900, strings.Repeat("00", 32))
		commit(t, chain, b)
		s.expect("a block", data("1", fmt.Sprintf(`{"blocks":{"chain_order":%q}}`, b.Cursor)))
	})
}

func TestBalanceThatFailsIsAskedForOnceHoweverOftenItIsShown(t *testing.T) {
	b := newBank()
	down := altered{Backend: b, balance: func(context.Context, chaingql.Address) (*big.Int, error) {
		b.asked = append(b.asked, "one")
		return nil, errors.New("down")
	}}
	var aliases strings.Builder
	for i := range 20 {
		aliases.WriteString(account(fmt.Sprint("a", i), 1) + " ")
	}
	for name, backend := range map[string]chaingql.Backend{"alone": down, "together": struct {
		altered
		chaingql.BalanceBatcher
	}{down, b}} {
		b.asked = nil
		h, _ := newHandler(t, backend, chaingql.Options{ShowCost: true})
		query(h, "{blockchain{"+aliases.String()+"}}", nil)
		equal(t, name, fmt.Sprint(b.asked), "[one]")
	}
}

func TestHooksAreToldOfFailuresBesideTheCost(t *testing.T) {
	for _, show := range []bool{false, true} {
		var failed []bool
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{ShowCost: show, Hooks: chaingql.Hooks{
			OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) { failed = append(failed, o.Failed) },
		}})
		query(h, `{blockchain{account(address:"x"){info{balance}}}}`, nil)
		query(h, `{__typename}`, nil)
		equal(t, "failed", fmt.Sprint(failed), "[true false]")
	}
}

// What a list within a list within a list is said to have would overflow, and
// come out below zero.
func TestCostOfListsWithinListsDoesNotOverflow(t *testing.T) {
	var branch *graphql.Object
	branch = graphql.NewObject(graphql.ObjectConfig{Name: "Branch", Fields: graphql.FieldsThunk(func() graphql.Fields {
		return graphql.Fields{"branches": {Type: graphql.NewList(branch)}}
	})})
	endless := func(map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1, Items: 1<<30 - 1} }
	h, _ := newHandler(t, memchain.New(), chaingql.Options{
		QueryFields: graphql.Fields{"tree": {Type: branch}},
		Costs:       map[string]func(map[string]any) chaingql.Cost{"Query.tree": endless, "Branch.branches": endless},
	})
	for depth := range 6 {
		document := "{tree{" + strings.Repeat("branches{", depth+1) + "__typename" + strings.Repeat("}", depth+1) + "}}"
		if got := query(h, document, nil); !strings.Contains(got, "more than the limit of 50") {
			t.Errorf("%s: %s", document, got)
		}
	}
}
