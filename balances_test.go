package chaingql_test

import (
	"context"
	"encoding/json"
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

// A batchRecorder is a chain that records the calls of Balance and Balances.
type batchRecorder struct {
	*memchain.Chain
	asked []string
	batch func(context.Context, []chaingql.Address) ([]*big.Int, error)
}

func (b *batchRecorder) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	b.asked = append(b.asked, "one")
	return b.Chain.Balance(ctx, addr)
}

func (b *batchRecorder) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	b.asked = append(b.asked, fmt.Sprint(len(addrs)))
	if b.batch != nil {
		return b.batch(ctx, addrs)
	}
	return b.Chain.Balances(ctx, addrs)
}

func newBatchRecorder(amounts ...int64) *batchRecorder {
	b := &batchRecorder{Chain: memchain.New()}
	for i, amount := range amounts {
		b.SetBalance(chaingql.Address{ID: [32]byte{byte(i)}}, big.NewInt(amount))
	}
	return b
}

// account returns a field with an alias that selects the balance of account i.
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

func TestBalancesOfOneRequestAreReadInOneCall(t *testing.T) {
	zero := "0:" + strings.Repeat("00", 32)
	for _, c := range []struct{ what, fields, want, asked string }{
		{"three", account("a", 0) + account("b", 1) + account("c", 2), amounts("a", 10, "b", 20, "c", 30), "3"},
		{"one", account("a", 1), amounts("a", 20), "one"},
		{"one that the chain never saw", account("a", 0) + account("b", 9), amounts("a", 10, "b", 0), "2"},
		{"the same twice", account("a", 1) + account("b", 1), amounts("a", 20, "b", 20), "one"},
		{
			"one twice and another",
			account("a", 1) + account("b", 1) + account("c", 2),
			amounts("a", 20, "b", 20, "c", 30), "2",
		},
		{
			"one of them skipped",
			account("a", 1) + strings.Replace(account("b", 2), "{info", " @skip(if:true){info", 1),
			amounts("a", 20), "one",
		},
		{
			"one without its balance",
			account("a", 1) + account("b", 2) + `x:account(address:"` + zero + `"){info{id}}`,
			strings.Replace(amounts("a", 20, "b", 30), `}}}}`, `}},"x":{"info":{"id":"account/`+zero+`"}}}}`, 1),
			"2",
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBatchRecorder(10, 20, 30)
			h, _ := newHandler(t, b, chaingql.Options{})
			equal(t, "response", query(h, "{blockchain{"+c.fields+"}}", nil), c.want)
			equal(t, "calls", strings.Join(b.asked, " "), c.asked)
			query(h, "{blockchain{"+c.fields+"}}", nil)
			equal(t, "calls of a second request", strings.Join(b.asked, " "), c.asked+" "+c.asked)
		})
	}
}

func TestBalancesOfAddressesInVariablesAreReadInOneCall(t *testing.T) {
	b := newBatchRecorder(10, 20)
	h, _ := newHandler(t, b, chaingql.Options{})
	const document = `query($a:String!,$b:String!){
		blockchain{a:account(address:$a){...F}b:account(address:$b){...F}}
	}fragment F on BlockchainAccountQuery{info{balance(format:DEC)}}`
	got := query(h, document,
		map[string]any{"a": fmt.Sprintf("0:00%062d", 0), "b": fmt.Sprintf("0:01%062d", 0)})
	equal(t, "response", got, amounts("a", 10, "b", 20))
	equal(t, "calls", strings.Join(b.asked, " "), "2")
}

func TestInvalidAddressDoesNotAffectOtherBalances(t *testing.T) {
	b := newBatchRecorder(10, 20)
	h, _ := newHandler(t, b, chaingql.Options{})
	got := query(h, `{blockchain{`+account("a", 0)+account("b", 1)+`bad:account(address:"x"){info{balance}}}}`, nil)
	const want = `{"data":{"blockchain":{"a":{"info":{"balance":"10"}},"b":{"info":{"balance":"20"}},"bad":null}},` +
		`"errors":[{"message":"Invalid account address"`
	if !strings.HasPrefix(got, want) {
		t.Errorf("the response is %s, want the prefix %s", got, want)
	}
	equal(t, "calls", strings.Join(b.asked, " "), "2")
}

func TestBalanceBatchFailureIsMaskedAndLogged(t *testing.T) {
	for _, c := range []struct {
		what  string
		batch func(context.Context, []chaingql.Address) ([]*big.Int, error)
		log   string
	}{
		{"error", func(context.Context, []chaingql.Address) ([]*big.Int, error) {
			return nil, errors.New("s3cret")
		}, "s3cret"},
		{"panic", func(context.Context, []chaingql.Address) ([]*big.Int, error) { panic("s3cret") }, "s3cret"},
		{"one too few", func(context.Context, []chaingql.Address) ([]*big.Int, error) {
			return []*big.Int{big.NewInt(1)}, nil
		}, "returned 1 balances for 2 addresses"},
		{"a negative one", func(context.Context, []chaingql.Address) ([]*big.Int, error) {
			return []*big.Int{big.NewInt(-5), big.NewInt(-5)}, nil
		}, "-5"},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBatchRecorder(10, 20)
			b.batch = c.batch
			h, log := newHandler(t, b, chaingql.Options{})
			got := query(h, "{blockchain{"+account("a", 0)+account("b", 1)+"}}", nil)
			masked(t, got, log, c.log)
			const want = `{"data":{"blockchain":{"a":{"info":{"balance":null}},` +
				`"b":{"info":{"balance":null}}}},"errors":[`
			if !strings.HasPrefix(got, want) {
				t.Errorf("the response is %s, want the prefix %s", got, want)
			}
		})
	}
}

func TestBalanceBatchTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatchRecorder(10, 20)
		b.batch = func(ctx context.Context, _ []chaingql.Address) ([]*big.Int, error) {
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

func TestBalanceBatchWaitsForASlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, release := newBatchRecorder(10, 20, 30), make(chan struct{})
		b.batch = func(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
			<-release
			return b.Chain.Balances(ctx, addrs)
		}
		h, _ := newHandler(t, b, chaingql.Options{Limits: chaingql.Limits{InFlight: 1}})
		responses := make(chan string, 2)
		ask := func(of ...string) { responses <- query(h, "{blockchain{"+strings.Join(of, " ")+"}}", nil) }
		go ask(account("a", 0), account("b", 1))
		synctest.Wait()
		start := time.Now()
		go ask(account("a", 0), account("b", 1), account("c", 2))
		equal(t, "code", parse(t, <-responses).code(), "SERVICE_UNAVAILABLE")
		equal(t, "time", time.Since(start), 2500*time.Millisecond) // half of BackendTimeout
		close(release)
		equal(t, "first response", <-responses, amounts("a", 10, "b", 20))
		equal(t, "calls", strings.Join(b.asked, " "), "2")
	})
}

func TestPanickingBalanceBatchIsNotCalledAgain(t *testing.T) {
	b := newBatchRecorder(10, 20, 30)
	b.batch = func(context.Context, []chaingql.Address) ([]*big.Int, error) { panic("s3cret") }
	h, log := newHandler(t, b, chaingql.Options{})
	masked(t, query(h, "{blockchain{"+account("a", 0)+account("b", 1)+account("c", 2)+"}}", nil), log, "s3cret")
	equal(t, "calls", strings.Join(b.asked, " "), "3")
}

func TestBalancesMatchTheRecordedReference(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	ab := "0:" + strings.Repeat("ab", 32)
	ones := "0:" + strings.Repeat("1", 64)
	const spec = `query($address: String!){
  blockchain{
    account(address:$address){
      info{
        balance(format:DEC)
      }
    }
  }
}`
	equal(t, "the spec's query", query(h, spec, map[string]any{"address": ab}), balanceResponse("1234567890123456789"))
	info := func(address, fields string) string {
		return query(h, `{blockchain{account(address:"`+address+`"){info{`+fields+`}}}}`, nil)
	}
	equal(t, "formats", info(ab, "balance h:balance(format:HEX) d:balance(format:DEC) id address"),
		`{"data":{"blockchain":{"account":{"info":{"balance":"0x112210f47de98115","h":"0x112210f47de98115",`+
			`"d":"1234567890123456789","id":"account/`+ab+`","address":"`+ab+`"}}}}}`)
	equal(t, "an account that does not exist", info(ones, "balance d:balance(format:DEC) id address"),
		`{"data":{"blockchain":{"account":{"info":{"balance":"0x0","d":"0",`+
			`"id":"account/`+ones+`","address":"`+ones+`"}}}}}`)
	equal(t, "upper case", info(strings.ToUpper(ab), "balance(format:DEC) address"),
		`{"data":{"blockchain":{"account":{"info":{"balance":"1234567890123456789","address":"`+ab+`"}}}}}`)
	equal(t, "as a Node", info(ab, "...on Node{id __typename}"),
		`{"data":{"blockchain":{"account":{"info":{"id":"account/`+ab+`","__typename":"BlockchainAccount"}}}}}`)
}

func TestBalanceFormatFollowsTheArgument(t *testing.T) {
	chain := memchain.New()
	h, _ := newHandler(t, chain, chaingql.Options{})
	document := `query($f:BigIntFormat $n:BigIntFormat=DEC){blockchain{account(address:"0:` + strings.Repeat("ab", 32) +
		`")` +
		`{info{
			absent:balance null:balance(format:null) hex:balance(format:HEX) dec:balance(format:DEC)
			variable:balance(format:$f) default:balance(format:$n)
		}}}}`
	for nano, hex := range map[string]string{
		"0":                    "0x0",
		"1":                    "0x1",
		"26":                   "0x1a",
		"9007199254740993":     "0x20000000000001",
		"18446744073709551616": "0x10000000000000000",
		new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 120), big.NewInt(1)).String(): "0x" + strings.Repeat("f", 30),
	} {
		amount, _ := new(big.Int).SetString(nano, 10)
		chain.SetBalance(abAccount, amount)
		for _, c := range []struct {
			variables       any
			variable, deflt string
		}{
			{nil, hex, nano},
			{map[string]any{"f": nil}, hex, nano},
			{map[string]any{"f": "DEC"}, nano, nano},
			{map[string]any{"f": "HEX", "n": "HEX"}, hex, hex},
			{map[string]any{"n": nil}, hex, hex},
		} {
			got := parse(t, query(h, document, c.variables))
			want, _ := json.Marshal(map[string]any{"blockchain": map[string]any{
				"account": map[string]any{"info": map[string]string{
					"absent": hex, "null": hex, "hex": hex, "dec": nano, "variable": c.variable, "default": c.deflt,
				}},
			}})
			var a, b any
			_ = json.Unmarshal(got.Data, &a)
			_ = json.Unmarshal(want, &b)
			if g, w := canonical(a), canonical(b); g != w {
				t.Errorf("%s with %v:\n got %s\nwant %s", nano, c.variables, g, w)
			}
		}
	}
	r := parse(t, query(h, document, map[string]any{"f": "OCT"}))
	equal(t, "code of a wrong format", r.code(), "BAD_USER_INPUT")
}

func canonical(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestAccountAcceptsEveryAddressForm(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	const raw = "0:83dfd552e63729b472fcbcc8c45ebcc6691702558b68ec7527e1ba403a0f31a8"
	for given, want := range map[string]string{
		raw:                  raw,
		strings.ToUpper(raw): raw,
		"EQCD39VS5jcptHL8vMjEXrzGaRcCVYto7HUn4bpAOg8xqB2N": raw,
		"UQCD39VS5jcptHL8vMjEXrzGaRcCVYto7HUn4bpAOg8xqEBI": raw,
		"-1:" + strings.Repeat("3", 64):                    "-1:" + strings.Repeat("3", 64),
		"2147483647:" + strings.Repeat("F", 64):            "2147483647:" + strings.Repeat("f", 64),
		"-2147483648:" + strings.Repeat("F", 64):           "-2147483648:" + strings.Repeat("f", 64),
		"Ef8zMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzM0vF": "-1:" + strings.Repeat("3", 64),
		"EQCD39VS5jcptHL8vMjEXrzGaRcCVYto7HUn4bpAOg8xqB2M": "",
		"2147483648:" + strings.Repeat("F", 64):            "",
		"0:" + strings.Repeat("F", 63):                     "",
		"0:" + strings.Repeat("g", 64):                     "",
		strings.Repeat("F", 64):                            "",
		"":                                                 "",
		"zzz":                                              "",
	} {
		got := query(h, `query($a:String!){blockchain{account(address:$a){info{address}}}}`, map[string]any{"a": given})
		if want == "" {
			equal(t, given, got, `{"data":{"blockchain":{"account":null}},`+
				`"errors":[{"message":"Invalid account address",`+
				`"locations":[{"line":1,"column":30}],"path":["blockchain","account"],`+
				`"extensions":{"code":"BAD_USER_INPUT"}}]}`)
			continue
		}
		equal(t, given, got, `{"data":{"blockchain":{"account":{"info":{"address":"`+want+`"}}}}}`)
	}
}
