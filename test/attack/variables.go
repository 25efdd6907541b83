package attack

import (
	"encoding/json"
	"fmt"
	"strings"
)

// variables returns requests with variables that have wrong types, depths, sizes or names.
func variables() []attack {
	var all []attack
	raw := func(name, want, query, variables string) {
		all = append(all, body(name, want, `{"query":`+asJSON(query)+`,"variables":`+variables+`}`))
	}
	for _, of := range []struct {
		kind, query string
		wrong       []string
	}{
		{"Int", "query($v:Int){blockchain{blocks(first:$v){edges{cursor}}}}", []string{
			`1.5`, `"1"`, `true`, `[]`, `[1]`, `{}`, `2147483648`, `-2147483649`, `1e10`, `1e400`, `9007199254740993`,
			`"0x1"`, `0.1e1000`, `1e-1`}},
		{"String", "query($v:String!){blockchain{account(address:$v){info{id}}}}", []string{
			`1`, `true`, `null`, `[]`, `{}`, `["0:1"]`, `{"toString":"x"}`, `1e400`, `{"$ne":null}`, `[[]]`}},
		{"Boolean", "query($v:Boolean!){info@skip(if:$v){version}}",
			[]string{`1`, `0`, `"true"`, `null`, `[]`, `[true]`, `{}`, `""`}},
		{"BigIntFormat", `query($v:BigIntFormat){blockchain{account(address:"` + richAddress +
			`"){info{balance(format:$v)}}}}`, []string{
			`"hex"`, `"OCT"`, `""`, `1`, `true`, `[]`, `["HEX"]`, `{}`, `"HEX "`, `"__proto__"`, `"HEX\u0000"`}},
		{"BlockFilter", "subscription($v:BlockFilter){blocks(filter:$v){id}}", []string{
			`1`, `"x"`, `true`, `[]`, `{"nothing":1}`, `{"id":1}`, `{"id":{"eq":1}}`, `{"id":{"in":"a"}}`,
			`{"id":{"in":[1]}}`, `{"id":{"in":null}}`,
			`{"seq_no":{"eq":"1"}}`, `{"workchain_id":{"eq":1.5}}`, `{"workchain_id":{"eq":2147483648}}`, `{"OR":1}`,
			`{"OR":[]}`, `{"AND":{}}`,
			`{"__proto__":{}}`, `{"constructor":{"prototype":{}}}`, `{"id":{"__proto__":1}}`, `{"id":{"like":"%"}}`,
			`{"id":{"eq":{"$gt":""}}}`,
			`{"toString":1}`, `{"hasOwnProperty":1}`, `{"id":{"in":{"length":1000000000}}}`, `{"id":{"in":[[]]}}`,
			`{"id":{"in":[["a"]]}}`, `{"":1}`}},
		{"Name of a type", `query($v:String!){__type(name:$v){name}}`, []string{`1`, `null`, `[]`, `{}`}},
	} {
		for _, w := range of.wrong {
			raw(of.kind+" is "+w, badInput+"|406", of.query, `{"v":`+w+`}`)
		}
		if strings.Contains(of.query, "!)") {
			raw(of.kind+" is missing", badInput, of.query, `{}`)
			raw(of.kind+" is in another case", badInput, of.query, `{"V":"a"}`)
			raw(of.kind+" is missing because all variables are null", badInput, of.query, `null`)
		}
	}
	good := "{info{version}}"
	for _, name := range []string{
		"__proto__", "constructor", "toString", "hasOwnProperty", "valueOf", "__defineGetter__", "prototype", "",
		"\u0000", "a.b", "a[0]", "$a",
		"length", "\ufeff", "😀",
	} {
		raw("unknown variable called "+short(name), answered, good, `{`+asJSON(name)+`:{"polluted":true}}`)
	}
	for _, name := range []string{"__proto__", "constructor", "toString", "hasOwnProperty", "prototype"} {
		raw("declared variable called "+name, answered,
			"query($"+name+":Int){blockchain{blocks(first:$"+name+"){edges{cursor}}}}", `{"`+name+`":1}`)
		raw("declared variable called "+name+", missing", badInput,
			"query($"+name+":Boolean!){info@skip(if:$"+name+"){version}}", `{}`)
	}
	for _, q := range []string{
		"query($a:Nothing){info{version}}", "query($a:Block){info{version}}", "query($a:Query!){info{version}}",
		"query($a:Node){info{version}}",
		"query($a:__Type){info{version}}",
		"query($a:Int){info{version}}", "query($a:Int$a:Int){blockchain{blocks(first:$a){edges{cursor}}}}",
		"{blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:String){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:[Int]){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:String){blockchain{account(address:$a){info{id}}}}",
		"query($a:Int=\"x\"){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:Int=[1]){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:Int!=null){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:Int=99999999999){blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:Boolean=1){info@skip(if:$a){version}}", "query($a:BigIntFormat=OCT){info{version}}",
		"query($a:BlockFilter={nothing:1}){info{version}}",
		"query A($a:Int){...F}query B{...F}fragment F on Query{blockchain{blocks(first:$a){edges{cursor}}}}",
		"{...F}fragment F on Query{blockchain{blocks(first:$a){edges{cursor}}}}",
		"query($a:Int=$b,$b:Int=$a){blockchain{blocks(first:$a,last:$b){edges{cursor}}}}",
		"query($a:String!){blockchain{account(address:[$a]){info{id}}}}",
		"query($a:String!){blockchain{account(address:{a:$a}){info{id}}}}",
	} {
		all = append(all, docWith("declared "+short(q), refused, q, map[string]any{"a": 1}))
	}
	all = append(all, variablesGrown()...)
	return all
}

// variablesGrown returns requests with variables of growing sizes.
func variablesGrown() []attack {
	in := "subscription($v:[String]){blocks(filter:{id:{in:$v}}){id}}"
	shapes := []struct {
		name, query string
		from, to    int
		value       func(n int) string
	}{
		{"a list", in, 32, 32 << 10, func(n int) string {
			return "[" + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + "]"
		}},
		{"an undeclared list", "{info{version}}", 32, 64 << 10, func(n int) string {
			return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]"
		}},
		{"a string", "query($v:String!){blockchain{account(address:$v){info{id}}}}", 1 << 10, 256 << 10,
			func(n int) string {
				return `"` + strings.Repeat("a", n) + `"`
			}},
		{"a string of escapes", "query($v:String!){blockchain{account(address:$v){info{id}}}}", 1 << 10, 32 << 10,
			func(n int) string {
				return `"` + strings.Repeat(`\u0000`, n) + `"`
			}},
		{"a number", "query($v:Int){blockchain{blocks(first:$v){edges{cursor}}}}", 16, 128 << 10, func(n int) string {
			return strings.Repeat("9", n)
		}},
		{"a fraction", "query($v:Int){blockchain{blocks(first:$v){edges{cursor}}}}", 16, 128 << 10, func(n int) string {
			return "1." + strings.Repeat("0", n)
		}},
		{"an exponent", "query($v:Int){blockchain{blocks(first:$v){edges{cursor}}}}", 2, 1024, func(n int) string {
			return "1e" + strings.Repeat("9", n)
		}},
		{"alternatives", "subscription($v:BlockFilter){blocks(filter:$v){id}}", 4, 512, func(n int) string {
			return strings.Repeat(`{"OR":`, n) + "{}" + strings.Repeat("}", n)
		}},
		{"lists in lists", "query($v:Int){blockchain{blocks(first:$v){edges{cursor}}}}", 8, 32 << 10,
			func(n int) string {
				return strings.Repeat("[", n) + strings.Repeat("]", n)
			}},
		{"lists in lists that never close", "{info{version}}", 8, 64 << 10, func(n int) string {
			return strings.Repeat("[", n)
		}},
		{"keys", "{info{version}}", 64, 16 << 10, func(n int) string {
			return "{" + strings.TrimSuffix(times(n, `"k#":1,`), ",") + "}"
		}},
	}
	var all []attack
	for _, s := range shapes {
		all = append(all, grown(s.name, "LIMIT_EXCEEDED|400", s.from, s.to, func(name, want string, n int) attack {
			text := `{"query":` + asJSON(s.query) + `,"variables":{"v":` + s.value(n) + `}}`
			return posted(name, want+"|406|"+fieldError, func() string { return text })
		})...)
	}
	// Growing numbers of declared variables.
	all = append(all, grown("declared", "LIMIT_EXCEEDED", 8, 1024, func(name, want string, n int) attack {
		values := map[string]json.RawMessage{}
		for i := range n {
			values[fmt.Sprint("v", i)] = json.RawMessage("true")
		}
		return docWith(name, want, "query("+times(n, "$v#:Boolean! ")+"){"+times(n,
			"...@include(if:$v#){info{version}}")+"}", values)
	})...)
	return all
}
