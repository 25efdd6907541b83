package attack

import (
	"fmt"
	"strings"
	"time"
)

// fragments returns documents with fragments that are cyclic, unused or unknown, or that multiply the
// number of fields.
func fragments() []attack {
	ring := func(n int) string {
		text := "{...F0}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on Query{...F%d}", i, (i+1)%n)
		}
		return text
	}
	chain := func(n int) string {
		text := "{...F0}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on Query{...F%d}", i, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on Query{__typename}", n)
	}
	doubling := func(n int) string {
		text := "{...F0}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on Query{...F%d ...F%d}", i, i+1, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on Query{info{version}}", n)
	}
	tripling := func(n int, end string) string {
		text := "subscription{...F0 ...F0 ...F0}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on Subscription{...F%[2]d ...F%[2]d ...F%[2]d}", i, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on Subscription{%s}", n, end)
	}
	all := []attack{
		doc("subscription fragments that triple an unknown fragment", invalid, tripling(31, "...X")),
		doc("subscription fragments that triple two unknown fragments", invalid, tripling(31, "...X ...Y")),
		doc("subscription fragments that triple an inline fragment", invalid, tripling(31, "...{...X}")),
		doc("subscription fragments that triple an unknown type", invalid, tripling(31, "...on X{...Y}")),
		doc("query fragments that triple an unknown fragment", invalid,
			strings.ReplaceAll(strings.TrimPrefix(tripling(31, "...X"), "subscription"), "Subscription", "Query")),
		doc("query and subscription in a document with tripling fragments", invalid,
			strings.Replace(tripling(31, "...X"), "subscription{", "query Q{info{version}}subscription S{", 1)),
		doc("cycle of one fragment, 31 bytes", invalid, `{...A}fragment A on Query{...A}`),
		doc("cycle that is not used", invalid, `{info{version}}fragment A on Query{...A}`),
		doc("cycle after a field", invalid, `{info{...A}}fragment A on Info{version ...A}`),
		doc("cycle through an inline fragment", invalid, `{...A}fragment A on Query{...{...on Query{...A}}}`),
		doc("cycle through its own field", invalid, `{__schema{types{...T}}}fragment T on __Type{ofType{...T}}`),
		doc("cycle through two fields", invalid, `{__schema{types{...T}}}fragment T on __Type{fields{type{...T}}}`),
		doc("cycle that is skipped", invalid, `{...A@skip(if:true)}fragment A on Query{...A@skip(if:true)}`),
		doc("cycle that is not included", invalid, `{...A}fragment A on Query{...A@include(if:false)}`),
		doc("cycle in a subscription", invalid, `subscription{...A}fragment A on Subscription{...A}`),
		doc("cycle below a subscription's root", invalid, `subscription{blocks{...A}}fragment A on Block{id ...A}`),
		doc("two cycles that touch", invalid,
			`{...A}fragment A on Query{...B ...C}fragment B on Query{...A}fragment C on Query{...A}`),
		doc("two separate cycles", invalid, `{...A ...B}fragment A on Query{...A}fragment B on Query{...B}`),
		doc("path into a cycle", invalid,
			`{...A}fragment A on Query{...B}fragment B on Query{...C}fragment C on Query{...B}`),
		doc("cycle on an interface", invalid, `{__schema{types{name}}}fragment N on Node{...N}`),
		doc("cycle on an unknown type", refused, `{...A}fragment A on Nowhere{...A}`),
		doc("cycle in a document without operation", refused, `fragment A on Query{...A}`),
		doc("cycle that conflicts with itself", invalid,
			`{...A}fragment A on Query{a:info{version}...A a:blockchain{...A}}`),
		doc("cycle of same-named fragments", refused, `{...A}fragment A on Query{...A}fragment A on Query{...A}`),
		doc("cycle between an alias and its fragment", invalid,
			`{b:blockchain{...B}}fragment B on BlockchainQuery{...C}fragment C on BlockchainQuery{...B}`),
		doc("ring with variables", refused,
			`query($a:String!){...A}fragment A on Query{blockchain{account(address:$a){info{id}}}...B}`+
				`fragment B on Query{...A}`),
		doc("spread of an unknown fragment", invalid, `{...A}`),
		doc("spread of a type", invalid, `{...Query}`),
		doc("spread of a fragment called on", refused, `{...on}fragment on on Query{info{version}}`),
		doc("fragment called on", unparsable, `fragment on on Query{info{version}}`),
		doc("fragment called true", either, `{...true}fragment true on Query{info{version}}`),
		doc("fragment on a scalar", invalid, `{...A}fragment A on String{length}`),
		doc("fragment on an input", invalid, `{...A}fragment A on BlockFilter{id}`),
		doc("fragment on an enum", invalid, `{...A}fragment A on BigIntFormat{HEX}`),
		doc("fragment on an unrelated type", invalid, `{info{...A}}fragment A on BlockchainBlock{id}`),
		doc("fragment on the other root", invalid, `{...A}fragment A on Subscription{blocks{id}}`),
		doc("fragment on an introspection type", invalid, `{...A}fragment A on __Schema{types{name}}`),
		doc("fragment with variables of its own", refused, `{...A}fragment A($x:Int) on Query{info{version}}`),
		doc("fragment without selections", refused, `{...A}fragment A on Query{}`),
		doc("fragment without a type", unparsable, `{...A}fragment A{info{version}}`),
		doc("fragments with the same name", invalid,
			`{...A}fragment A on Query{info{version}}fragment A on Query{info{time}}`),
		doc("inline fragment without selections", unparsable, `{...}`),
		doc("inline fragment on an impossible type", invalid, `{info{...on Block{id}}}`),
		doc("fragment between two fragments of the same name", invalid,
			`{...B ...A}fragment A on Query{info{version}}fragment B on Query{...A}fragment A on Query{...B}`),
	}
	for n := 2; n <= 64; n *= 2 {
		all = append(all, doc(fmt.Sprintf("ring of %d", n), refused, ring(n)))
		all = append(all, doc(fmt.Sprintf("ring of %d, not used", n), refused,
			"{info{version}}"+ring(n)[len("{...F0}"):]))
	}
	all = append(all, grownDoc("chain", overLimit, 4, 512, chain)...)
	all = append(all, grownDoc("doubling", overLimit, 2, 512, doubling)...)
	all = append(all, grownDoc("unused", refused, 1, 1024, func(n int) string {
		return "{info{version}}" + times(n, "fragment F# on Query{info{version}}")
	})...)
	all = append(all, grownDoc("doubling of nested fields", refused, 2, 64, func(n int) string {
		text := "{__schema{types{...F0}}}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on __Type{a:ofType{...F%d}b:ofType{...F%d}}", i, i+1, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on __Type{name}", n)
	})...)
	all = append(all, grownDoc("spreads of one fragment", overLimit, 16, 4096, func(n int) string {
		return "{" + times(n, "...A ") + "}fragment A on Query{info{version}}"
	})...)
	all = append(all, grownDoc("spreads of one inline fragment", overLimit, 16, 4096, func(n int) string {
		return "{" + times(n, "...{info{version}}") + "}"
	})...)
	all = append(all, grownDoc("tripling by spreads and inline fragments", refused, 2, 32, func(n int) string {
		text := "{__schema{types{...F0}}}"
		for i := range n {
			text += fmt.Sprintf("fragment F%d on __Type{...F%d ...on __Type{...F%d ...F%d}}", i, i+1, i+1, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on __Type{name}", n)
	})...)
	for i := range all { // stricter CPU limits, especially for cycles, which the server need not expand
		all[i].cpu = 50 * time.Millisecond
		if strings.HasPrefix(all[i].name, "cycle") || strings.HasPrefix(all[i].name, "ring") {
			all[i].cpu = 5 * time.Millisecond
		}
	}
	return all
}
