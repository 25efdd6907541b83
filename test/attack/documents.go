package attack

import (
	"fmt"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// aliases returns documents that select one field many times under different aliases.
func aliases() []attack {
	shapes := []struct{ name, before, each, after string }{
		{"of a field", "{info{", "a#:version ", "}}"},
		{"of the type's name", "{", "a#:__typename ", "}"},
		{"of a root", "{", "a#:info{version}", "}"},
		{"of accounts", "{blockchain{", `a#:account(address:"` + richAddress + `"){info{balance}}`, "}}"},
		{"of pages", "{blockchain{", "a#:blocks(last:50){edges{node{id}}}", "}}"},
		{"in a fragment", "{...A}fragment A on Query{info{", "a#:version ", "}}"},
		{"in inline fragments", "{", "...{a#:info{version}}", "}"},
		{"of the schema", "{", "a#:__schema{types{name}}", "}"},
		{"of a subscription's root", "subscription{", "a#:blocks{id}", "}"},
		{"in a subscription", "subscription{blocks{", "a#:id ", "}}"},
	}
	var all []attack
	for _, s := range shapes {
		all = append(all, grownDoc(s.name, refused, 16, 2048, func(n int) string {
			return s.before + times(n, s.each) + s.after
		})...)
	}
	for i := range all { // the response to a subscription by POST has status 406
		if strings.Contains(all[i].name, "subscription") {
			all[i].want += "|406"
		}
	}
	for n := 1 << 10; n <= 64<<10; n *= 4 {
		all = append(all, doc(fmt.Sprintf("of %d letters", n), either, "{"+strings.Repeat("a", n)+":info{version}}"))
	}
	return append(all, docs(invalid,
		"{a:info{version}a:blockchain{__typename}}",
		"{info{a:version a:time}}",
		"{blockchain{a:blocks(first:1){edges{cursor}}a:blocks(first:2){edges{cursor}}}}",
		"{info{__typename:version}info{__typename}}",
	)...)
}

// directives returns documents with many, unknown or misplaced directives.
func directives() []attack {
	var all []attack
	for _, s := range []struct{ name, before, each, after string }{
		{"skip on a field", "{info", "@skip(if:false)", "{version}}"},
		{"unknown on a field", "{info", "@a ", "{version}}"},
		{"unknown with arguments", "{info", "@a(b:1)", "{version}}"},
		{"different unknown directives", "{info", "@a# ", "{version}}"},
		{"on an operation", "query", "@a ", "{info{version}}"},
		{"on a fragment", "{...A}fragment A on Query", "@a ", "{info{version}}"},
		{"on a spread", "{...A", "@include(if:true)", "}fragment A on Query{info{version}}"},
		{"on an inline fragment", "{...", "@include(if:true)", "{info{version}}}"},
		{"on a variable", "query($a:Int", "@a ", "){info{version}}"},
		{"on many fields, one each", "{", "info@include(if:true){version}", "}"},
	} {
		all = append(all, grownDoc(s.name, refused, 1, 2048, func(n int) string {
			return s.before + times(n, s.each) + s.after
		})...)
	}
	all = append(all, docs(invalid,
		"{info@defer{version}}", "{...@defer{info{version}}}", "{...@defer(label:\"a\"){info{version}}}",
		"{blockchain{blocks{edges@stream{cursor}}}}",
		"{blockchain{blocks{edges@stream(initialCount:0){cursor}}}}", "{info@skip{version}}",
		"{info@skip(if:null){version}}",
		"{info@skip(if:\"true\"){version}}", "{info@skip(if:1){version}}", "{info@skip(unless:true){version}}",
		"{info@skip(if:$a){version}}",
		"query($a:Boolean){info@skip(if:$a){version}}", "query($a:String!){info@skip(if:$a){version}}",
		"{info@deprecated{version}}", "{info@specifiedBy(url:\"x\"){version}}", "query@skip(if:true){info{version}}",
		"{info@oneOf{version}}",
		"{info@include(if:[true]){version}}", "{info@include(if:{a:true}){version}}",
		"{info@skip(if:true if:false){version}}",
		"subscription@include(if:true){blocks{id}}",
	)...)
	return append(all, docs(unparsable, "{info@{version}}", "{info@@skip(if:true){version}}", "{info@skip(){version}}",
		"{@skip(if:true)}", "{info @ skip(if:true,,:){version}}", "{info@skip(if:){version}}")...)
}

// sameNames returns documents with many fields of the same response name. A naive server needs
// quadratic time to merge these fields.
func sameNames() []attack {
	var all []attack
	for _, s := range []struct{ name, before, each, after string }{
		{"one field", "{info{", "version ", "}}"},
		{"the type's name", "{", "__typename ", "}"},
		{"one root", "{", "info{version}", "}"},
		{"pages that are equal", "{blockchain{", "blocks(first:1){edges{cursor}}", "}}"},
		{"pages that conflict", "{blockchain{", "blocks(first:#){edges{cursor}}", "}}"},
		{"one alias for pages", "{blockchain{", "a:blocks(first:1){edges{cursor}}", "}}"},
		{"one alias for accounts that conflict", "{blockchain{", `a:account(address:"#"){info{id}}`, "}}"},
		{"in inline fragments", "{", "...on Query{info{version}}", "}"},
		{"in nested sets", "{", "blockchain{blocks{edges{node{id}}}}", "}"},
		{"unknown fields", "{", "nothing ", "}"},
		{"different unknown fields", "{", "nothing# ", "}"},
		{"unknown arguments", "{info(", "a#:1 ", "){version}}"},
		{"one argument", "{blockchain{blocks(", "first:1 ", "){edges{cursor}}}}"},
		{"one key of an object", "subscription{blocks(filter:{", `id:{eq:"1"}`, "}){id}}"},
	} {
		all = append(all, grownDoc(s.name, refused, 4, 4096, func(n int) string {
			return s.before + times(n, s.each) + s.after
		})...)
	}
	all = append(all, doc("20,000 equal fields", "LIMIT_EXCEEDED", "{info{"+strings.Repeat("version ", 20_000)+"}}"))
	for levels := 1; levels <= 11; levels++ {
		text := "name"
		for range levels {
			text = "ofType{" + text + "}ofType{" + text + "}"
		}
		all = append(all, doc(fmt.Sprintf("doubled at each of %d levels", levels), refused+"|"+answered,
			"{__schema{types{"+text+"}}}"))
	}
	return all
}

// operations returns documents that have no operations, many operations, or unsupported operations.
func operations() []attack {
	named := func(name, want, text string, operation any) attack {
		return plain(name, want, func(s *target) (outcome, error) {
			return s.post(asJSON(map[string]any{"query": text, "operationName": operation}))
		})
	}
	all := grownDoc("of different names", refused+"|operationName", 2, 2048, func(n int) string {
		return times(n, "query Q#{info{version}}")
	})
	for i := range all {
		all[i].want += "|400"
	}
	all = append(all, grownDoc("without a name", refused, 2, 2048, func(n int) string {
		return times(n, "{info{version}}")
	})...)
	all = append(all, grownDoc("of one name", refused, 2, 2048, func(n int) string {
		return times(n, "query Q{info{version}}")
	})...)
	two := "query A{info{version}}query B{info{time}}"
	all = append(all,
		named("two operations, no name", "400 BAD_USER_INPUT", two, nil),
		named("two operations, an unknown name", "400 BAD_USER_INPUT", two, "C"),
		named("two operations, an empty name", "400 BAD_USER_INPUT", two, ""),
		named("two operations, a name in another case", "400 BAD_USER_INPUT", two, "a"),
		named("a name that JavaScript objects have", "400 BAD_USER_INPUT", two, "__proto__"),
		named("a name that JavaScript classes have", "400 BAD_USER_INPUT", two, "constructor"),
		named("a name of 100 kB", "400 BAD_USER_INPUT", two, strings.Repeat("A", 100<<10)),
		named("a name with NUL", "400 BAD_USER_INPUT", two, "A\x00"),
		named("a name with a space", "400 BAD_USER_INPUT", two, "A "),
		named("a name that a cache might use for an anonymous operation", "400", two, "\x00"),
		named("a name for an anonymous operation", "400 BAD_USER_INPUT", "{info{version}}", "A"),
		named("markup as a name", "400 BAD_USER_INPUT", two, "<script>alert(1)</script>"),
		named("a subscription selected by name", "406|400", "query A{info{version}}subscription B{blocks{id}}", "B"),
	)
	all = append(all, docs(refused,
		"", " ", "\n", "#", "# nothing", ",,,,", "fragment A on Query{info{version}}", "{}", "query", "query{}",
		"query A", "subscription", "mutation{a}",
		"mutation M{info{version}}", "{info{version}}mutation{a}", "subscription{blocks{id}b:blocks{id}}",
		"subscription{__typename}",
		"subscription{blocks{id}__typename}", "subscription{...A}fragment A on Subscription{blocks{id}b:blocks{id}}",
		"subscription{blocks}",
		"subscription{nothing}", "subscription{blocks{nothing}}", "query A{info{version}}{info{version}}",
		"type Query{a:Int}", "extend type Query{a:Int}",
		"schema{query:Query}", "scalar Int", "directive@a on FIELD", "input A{a:A}", "interface A{a:A}", "union A=A",
		"enum A{A}",
		"{info{version}}type A{a:Int}", "\"description\"type A{a:Int}", "\"description\"{info{version}}",
		"query query{", "query(){info{version}}",
		"query()", "{info{version}", "{info{version}}}", "}{", "{info:{version}}", "{info{version},,,}}", "{:info}",
		"{a:b:info{version}}", "{info()}", "{info(){version}}",
		"{info{}}", "{info}", "{info{version{a}}}", "{blockchain}", "{blockchain{blocks}}", "{__typename{a}}",
	)...)
	for i := range all {
		if strings.HasPrefix(all[i].name, `""`) {
			all[i].want = badRequest
		}
	}
	return all
}
