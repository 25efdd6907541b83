package attack

import "strings"

// nesting returns documents with deeply nested selections, values and types.
func nesting(full bool) []attack {
	nest := func(before, open, middle, shut, after string) func(n int) string {
		return func(n int) string {
			return before + strings.Repeat(open, n) + middle + strings.Repeat(shut, n) + after
		}
	}
	nested := func(name string, n int, text func(n int) string) attack {
		return posted(name+", "+itoa(n)+" deep", refusedOrLarge, func() string {
			return asJSON(map[string]any{"query": text(n)})
		})
	}
	shapes := []struct {
		name string
		text func(n int) string
	}{
		{"selections of unknown fields", nest("{", "a{", "a", "}", "}")},
		{"selections that never close", nest("", "{a", "", "", "")},
		{"braces alone", nest("", "{", "", "", "")},
		{"selections of types", nest("{__schema{types{", "ofType{", "name", "}", "}}}")},
		{"inline fragments", nest("{", "...{", "info{version}", "}", "}")},
		{"inline fragments on the type", nest("{", "...on Query{", "info{version}", "}", "}")},
		{"lists", nest("{blockchain{account(address:", "[", "", "]", "){info{id}}}}")},
		{"lists that never close", nest("{blockchain{account(address:", "[", "", "", "")},
		{"brackets alone", nest("", "[", "", "", "")},
		{"objects", nest("subscription{blocks(filter:", "{OR:", "{}", "}", "){id}}")},
		{"objects that never close", nest("subscription{blocks(filter:", "{OR:", "", "", "")},
		{"alternating lists and objects", nest("subscription{blocks(filter:", "{OR:[", "", "]}", "){id}}")},
		{"list types", nest("query($a:", "[", "Int", "]", "){info{version}}")},
		{"list types that never close", nest("query($a:", "[", "", "", "")},
		{"list types that only close, with a nil type", nest("query($a:", "]", "", "", "){a}")},
		{"default values", nest("query($a:Int=", "[", "1", "]", "){info{version}}")},
		{"arguments of directives", nest("{info@include(if:", "[", "true", "]", "){version}}")},
		{"arguments of operation directives", nest("query@a(b:", "{c:", "1", "}", "){info{version}}")},
		{"parentheses", nest("{a", "(", "", ")", "}")},
		{"block strings", nest("{a(b:", `"""`, "", "", ")}")},
	}
	most := 16384
	if full {
		most = 1 << 21
	}
	all := []attack{
		doc("a nil type", unparsable, `query($a:]){a}`),
		doc("a list type without an item type", unparsable, `query($a:[]){a}`),
		doc("a list type with two item types", unparsable, `query($a:[Int Int]){a}`),
	}
	for _, s := range shapes {
		for n := 32; n <= most; n *= 8 {
			all = append(all, nested(s.name, n, s.text))
		}
		all = append(all, nested(s.name, 1_500_000, s.text))
	}
	// Depths near the limit.
	for n := 18; n <= 24; n += 2 {
		all = append(all,
			doc("edge of selections, "+itoa(n), refused+"|"+answered,
				nest("{__schema{types{", "ofType{", "name", "}", "}}}")(n)),
			doc("edge of inline fragments, "+itoa(n), refused+"|"+answered,
				nest("{", "...{", "info{version}", "}", "}")(n)),
			doc("edge of lists, "+itoa(n), refused, nest("{blockchain{account(address:", "[", "", "]",
				"){info{id}}}}")(n)),
		)
	}
	return all
}

// refusedOrLarge permits the outcomes of refused, and the refusal of a body that is too large.
const refusedOrLarge = refused + "|413 LIMIT_EXCEEDED"
