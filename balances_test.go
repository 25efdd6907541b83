package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A bank is a chain that keeps account of how it is asked for balances.
type bank struct {
	*memchain.Chain
	asked    []string
	together func(context.Context, []chaingql.Address) ([]*big.Int, error)
}

func (b *bank) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	b.asked = append(b.asked, "one")
	return b.Chain.Balance(ctx, addr)
}

func (b *bank) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	b.asked = append(b.asked, fmt.Sprint(len(addrs)))
	if b.together != nil {
		return b.together(ctx, addrs)
	}
	return b.Chain.Balances(ctx, addrs)
}

func newBank(amounts ...int64) *bank {
	b := &bank{Chain: memchain.New()}
	for i, amount := range amounts {
		b.SetBalance(chaingql.Address{ID: [32]byte{byte(i)}}, big.NewInt(amount))
	}
	return b
}

// account asks for the balance of account i.
func account(alias string, i int) string {
	return fmt.Sprintf(`%s:account(address:"0:%02x%062d"){info{balance(format:DEC)}}`, alias, i, 0)
}

func amounts(pairs ...any) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, fmt.Sprintf(`"%v":{"info":{"balance":"%v"}}`, pairs[i], pairs[i+1]))
	}
	return `{"data":{"blockchain":{` + strings.Join(all, ",") + `}}}`
}

func TestBalancesOfOneRequestAreOneCall(t *testing.T) {
	for _, c := range []struct{ what, fields, want, asked string }{
		{"three", account("a", 0) + account("b", 1) + account("c", 2), amounts("a", 10, "b", 20, "c", 30), "3"},
		{"one", account("a", 1), amounts("a", 20), "one"},
		{"one that the chain never saw", account("a", 0) + account("b", 9), amounts("a", 10, "b", 0), "2"},
		{"the same twice", account("a", 1) + account("b", 1), amounts("a", 20, "b", 20), "one"},
		{"one twice and another", account("a", 1) + account("b", 1) + account("c", 2), amounts("a", 20, "b", 20, "c", 30), "2"},
		{"one of them skipped", account("a", 1) + strings.Replace(account("b", 2), "{info", " @skip(if:true){info", 1), amounts("a", 20), "one"},
		{"one without its balance", account("a", 1) + account("b", 2) + `x:account(address:"0:` + strings.Repeat("00", 32) + `"){info{id}}`,
			strings.Replace(amounts("a", 20, "b", 30), `}}}}`, `}},"x":{"info":{"id":"account/0:`+strings.Repeat("00", 32)+`"}}}}`, 1), "2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBank(10, 20, 30)
			h, _ := newHandler(t, b, chaingql.Options{})
			equal(t, "answer", query(h, "{blockchain{"+c.fields+"}}", nil), c.want)
			equal(t, "calls", strings.Join(b.asked, " "), c.asked)
			query(h, "{blockchain{"+c.fields+"}}", nil)
			equal(t, "calls of a second request", strings.Join(b.asked, " "), c.asked+" "+c.asked)
		})
	}
}

func TestBalancesByVariablesAreOneCall(t *testing.T) {
	b := newBank(10, 20)
	h, _ := newHandler(t, b, chaingql.Options{})
	got := query(h, `query($a:String!,$b:String!){blockchain{a:account(address:$a){...F}b:account(address:$b){...F}}}fragment F on BlockchainAccountQuery{info{balance(format:DEC)}}`,
		map[string]any{"a": fmt.Sprintf("0:00%062d", 0), "b": fmt.Sprintf("0:01%062d", 0)})
	equal(t, "answer", got, amounts("a", 10, "b", 20))
	equal(t, "calls", strings.Join(b.asked, " "), "2")
}

func TestAWrongAddressDoesNotKeepTheOthersFromTheirBalances(t *testing.T) {
	b := newBank(10, 20)
	h, _ := newHandler(t, b, chaingql.Options{})
	got := query(h, `{blockchain{`+account("a", 0)+account("b", 1)+`bad:account(address:"x"){info{balance}}}}`, nil)
	want := `{"data":{"blockchain":{"a":{"info":{"balance":"10"}},"b":{"info":{"balance":"20"}},"bad":null}},"errors":[{"message":"Invalid account address"`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
	equal(t, "calls", strings.Join(b.asked, " "), "2")
}

func TestTroubleWithBalancesTogetherIsMaskedAndLogged(t *testing.T) {
	for _, c := range []struct {
		what     string
		together func(context.Context, []chaingql.Address) ([]*big.Int, error)
		log      string
	}{
		{"error", func(context.Context, []chaingql.Address) ([]*big.Int, error) { return nil, errors.New("s3cret") }, "s3cret"},
		{"panic", func(context.Context, []chaingql.Address) ([]*big.Int, error) { panic("s3cret") }, "s3cret"},
		{"one too few", func(context.Context, []chaingql.Address) ([]*big.Int, error) { return []*big.Int{big.NewInt(1)}, nil }, "returned 1 balances for 2 addresses"},
		{"a negative one", func(context.Context, []chaingql.Address) ([]*big.Int, error) {
			return []*big.Int{big.NewInt(-5), big.NewInt(-5)}, nil
		}, "-5"},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBank(10, 20)
			b.together = c.together
			h, log := newHandler(t, b, chaingql.Options{})
			got := query(h, "{blockchain{"+account("a", 0)+account("b", 1)+"}}", nil)
			masked(t, got, log, c.log)
			if !strings.HasPrefix(got, `{"data":{"blockchain":{"a":{"info":{"balance":null}},"b":{"info":{"balance":null}}}},"errors":[`) {
				t.Error(got)
			}
		})
	}
}

func TestBalancesTogetherHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(10, 20)
		b.together = func(ctx context.Context, _ []chaingql.Address) ([]*big.Int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		h, _ := newHandler(t, b, chaingql.Options{})
		start := time.Now()
		equal(t, "code", parse(t, query(h, "{blockchain{"+account("a", 0)+account("b", 1)+"}}", nil)).code(), "TIMEOUT")
		equal(t, "time", time.Since(start), 5*time.Second)
		equal(t, "calls", strings.Join(b.asked, " "), "2")
	})
}

func TestBalancesTogetherWaitForATurnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, letGo := newBank(10, 20, 30), make(chan struct{})
		b.together = func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			<-letGo
			return b.Chain.Balances(ctx, addrs)
		}
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}})
		answers := make(chan string, 2)
		ask := func(of ...string) { answers <- query(h, "{blockchain{"+strings.Join(of, " ")+"}}", nil) }
		go ask(account("a", 0), account("b", 1))
		synctest.Wait()
		start := time.Now()
		go ask(account("a", 0), account("b", 1), account("c", 2))
		equal(t, "code", parse(t, <-answers).code(), "SERVICE_UNAVAILABLE")
		equal(t, "time", time.Since(start), 2500*time.Millisecond) // half of what a call may take
		close(letGo)
		equal(t, "answer of the first", <-answers, amounts("a", 10, "b", 20))
		equal(t, "calls", strings.Join(b.asked, " "), "2")
	})
}

func TestABatchThatPanicsIsAskedForOnce(t *testing.T) {
	b := newBank(10, 20, 30)
	b.together = func(context.Context, []chaingql.Address) ([]*big.Int, error) { panic("s3cret") }
	h, log := newHandler(t, b, chaingql.Options{})
	masked(t, query(h, "{blockchain{"+account("a", 0)+account("b", 1)+account("c", 2)+"}}", nil), log, "s3cret")
	equal(t, "calls", strings.Join(b.asked, " "), "3")
}
