package chaingql_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestBalancesAreThoseOfTheReference(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	ab := "0:" + strings.Repeat("ab", 32)
	ones := "0:" + strings.Repeat("1", 64)
	equal(t, "the spec's query",
		query(h, "query($address: String!){\n  blockchain{\n    account(address:$address){\n      info{\n        balance(format:DEC)\n      }\n    }\n  }\n}", map[string]any{"address": ab}),
		balanceAnswer("1234567890123456789"))
	equal(t, "formats", query(h, `{blockchain{account(address:"`+ab+`"){info{balance h:balance(format:HEX) d:balance(format:DEC) id address}}}}`, nil),
		`{"data":{"blockchain":{"account":{"info":{"balance":"0x112210f47de98115","h":"0x112210f47de98115","d":"1234567890123456789","id":"account/`+ab+`","address":"`+ab+`"}}}}}`)
	equal(t, "an account that does not exist", query(h, `{blockchain{account(address:"`+ones+`"){info{balance d:balance(format:DEC) id address}}}}`, nil),
		`{"data":{"blockchain":{"account":{"info":{"balance":"0x0","d":"0","id":"account/`+ones+`","address":"`+ones+`"}}}}}`)
	equal(t, "upper case", query(h, `{blockchain{account(address:"`+strings.ToUpper(ab)+`"){info{balance(format:DEC) address}}}}`, nil),
		`{"data":{"blockchain":{"account":{"info":{"balance":"1234567890123456789","address":"`+ab+`"}}}}}`)
	equal(t, "as a Node", query(h, `{blockchain{account(address:"`+ab+`"){info{...on Node{id __typename}}}}}`, nil),
		`{"data":{"blockchain":{"account":{"info":{"id":"account/`+ab+`","__typename":"BlockchainAccount"}}}}}`)
}

func TestBalanceIsWrittenAsAskedFor(t *testing.T) {
	chain := memchain.New()
	h, _ := newHandler(t, chain, chaingql.Options{})
	document := `query($f:BigIntFormat $n:BigIntFormat=DEC){blockchain{account(address:"0:` + strings.Repeat("ab", 32) + `"){info{absent:balance null:balance(format:null) hex:balance(format:HEX) dec:balance(format:DEC) variable:balance(format:$f) default:balance(format:$n)}}}}`
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
			want, _ := json.Marshal(map[string]any{"blockchain": map[string]any{"account": map[string]any{"info": map[string]string{
				"absent": hex, "null": hex, "hex": hex, "dec": nano, "variable": c.variable, "default": c.deflt,
			}}}})
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

func TestAddressesAreTakenInEveryForm(t *testing.T) {
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
			equal(t, given, got, `{"data":{"blockchain":{"account":null}},"errors":[{"message":"Invalid account address","locations":[{"line":1,"column":30}],"path":["blockchain","account"],"extensions":{"code":"BAD_USER_INPUT"}}]}`)
			continue
		}
		equal(t, given, got, `{"data":{"blockchain":{"account":{"info":{"address":"`+want+`"}}}}}`)
	}
}
