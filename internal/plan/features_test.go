package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/graphql-go/graphql/language/ast"
)

// hostedSchema returns the tests' schema with types and fields of a host: a union and an interface with 60 object
// types each, and a scalar that accepts any value.
func hostedSchema(t testing.TB) *Schema {
	t.Helper()
	anything := graphql.NewScalar(graphql.ScalarConfig{Name: "Anything",
		Serialize: func(v any) any { return v }, ParseValue: func(v any) any { return v },
		ParseLiteral: anyLiteral})
	thing := graphql.NewInterface(graphql.InterfaceConfig{Name: "Thing",
		Fields: graphql.Fields{"size": {Type: graphql.Int}}})
	var members []*graphql.Object
	var types []graphql.Type
	for i := range 60 {
		member := graphql.NewObject(graphql.ObjectConfig{Name: fmt.Sprintf("Member%d", i),
			Interfaces: []*graphql.Interface{thing},
			IsTypeOf:   func(graphql.IsTypeOfParams) bool { return i == 0 },
			Fields: graphql.Fields{"size": {Type: graphql.Int},
				"of": {Type: graphql.String, Args: graphql.FieldConfigArgument{"a": {Type: anything}}}}})
		members, types = append(members, member), append(types, member)
	}
	in := graphql.NewInputObject(graphql.InputObjectConfig{Name: "Options", Fields: graphql.InputObjectConfigFieldMap{
		"size": {Type: graphql.Int}, "more": {Type: graphql.NewList(anything)}}})
	table, err := Extend(table(), Extension{Types: types, Query: graphql.Fields{
		"union": {Type: graphql.NewUnion(graphql.UnionConfig{Name: "Any", Types: members})},
		"thing": {Type: thing},
		"hosted": {Type: members[0], Args: graphql.FieldConfigArgument{"o": {Type: in}, "a": {Type: anything},
			"s": {Type: graphql.String}}},
	}})
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	return s
}

// anyLiteral parses any literal, as a scalar for JSON values does.
func anyLiteral(v ast.Value) any {
	switch v := v.(type) {
	case *ast.ListValue:
		var list []any
		for _, item := range v.Values {
			list = append(list, anyLiteral(item))
		}
		return list
	case *ast.ObjectValue:
		object := map[string]any{}
		for _, f := range v.Fields {
			object[f.Name.Value] = anyLiteral(f.Value)
		}
		return object
	}
	return fmt.Sprint(v.GetValue())
}

// features has, for each feature of documents, a function that returns a document with this feature. It returns a
// different document for each i.
var features = map[string]func(g *rand.Rand, i int) string{
	"realistic":  realistic,
	"small":      func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:int}", i) },
	"interfaces": func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:node{peer{peer{id name}}}}", i) },
	"merged": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:int %s}", i, strings.Repeat("...{int int int int} ", 20))
	},
	"variables": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a: Int $b: [Int!] $c: Filter = {min: 1}){a%d:echo(i: $a, ll: [[1], $b], o: $c)}", i)
	},
	"many variables": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query(%s){a%d:echo(l:[%s])}", many(32, "$v%d:Int"), i, many(32, "$v%d"))
	},
	"lists of lists": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a:[[Int!]]$b:[[Int!]!]$c:[[Int!]!]!=[])"+
			"{a%d:echo(ll:$a) b:echo(ll:$b) c:echo(ll:$c)}", i)
	},
	"literals": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a: Int){a%d:echo(l: [%s $a])}", i, strings.Repeat("1 ", 90))
	},
	"large literals": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a: Int){a%d:echo(i: $a, s: \"%s\")}", i, strings.Repeat("x", 3000))
	},
	"constants": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(os: [%s])}", i, strings.Repeat("{min: 1} ", 50))
	},
	"constant numbers": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(l:[%s] f: 1.5)}", i, many(90, "10%d"))
	},
	"constant enums": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(os:[%s])}", i, strings.Repeat("{color:RED} ", 90))
	},
	"parameters": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(l: [%s] s: \"text\")}", i, strings.Repeat("1 ", 60))
	},
	"a long parameter": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf(`{a%d:echo(s:"%s")}`, i, strings.Repeat("x", 3000))
	},
	"one literal": func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:echo(i: 1)}", i) },
	"comments": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query(%s $a: Int){a%d:echo(o: {%[1]s min: $a})}", strings.Repeat("#\n", 500), i)
	},
	"a long comment": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:int}#%s", i, strings.Repeat("x", 5000))
	},
	"long names": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d%s:int}", i, strings.Repeat("x", 2000))
	},
	"long variable names": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a%d%s:Int){echo(i:$a%[1]d%[2]s)}", i, strings.Repeat("x", 1000))
	},
	"a long name": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query Q%d%s{int}", i, strings.Repeat("x", 1000))
	},
	"operations": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query A{a%d:int} query B($a: Int = 1){defaults(i: $a)} query C{string}", i)
	},
	"typenames": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:__typename self{__typename self{__typename}}}", i)
	},
	"defaults of schema": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:defaults b:defaults c:defaults}", i)
	},
	"default": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:[Int]=[%s]){a%d:echo(i:$r l:$a)}", strings.Repeat("1 ", 100), i)
	},
	"default of text": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf(`query($r: Int! $a:String="%s"){a%d:echo(i:$r s:$a)}`, strings.Repeat("x", 3000), i)
	},
	"default of objects": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:[Filter!]=[%s]){a%d:echo(i:$r os:$a)}", strings.Repeat("{} ", 100), i)
	},
	"default of nested objects": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:Filter=%s{}%s){a%d:echo(i:$r o:$a)}", strings.Repeat("{not:", 18),
			strings.Repeat("}", 18), i)
	},
	"default of lists": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:[[Int!]]=[%s]){a%d:echo(i:$r ll:$a)}", strings.Repeat("[] 5 ", 50), i)
	},
	"default of enums": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:Color=RED $b:Boolean=true $c:ID=\"x\" $d:Int=null)"+
			"{a%d:echo(i:$r c:$a b:$b id:$c) b:echo(i:$d)}", i)
	},
	"defaults within arguments": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a:[Int]=[%s]){a%d:echo(l:$a) b:echo(l:$a) c:echo(l:$a)}", strings.Repeat("1 ", 100),
			i)
	},
	"control characters": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(s:\"%s\")}", i, strings.Repeat("\x01", 3000))
	},
	"control characters and variables": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a:Int $b:String=\"%s\"){a%d:echo(i:$a s:\"%[1]s\") b:echo(s:$b)}",
			strings.Repeat("\x01", 1000), i)
	},
	"control characters in a comment": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query Q%d($a:Int){a:echo(i:$a)}#%s", i, strings.Repeat("\x01", 3000))
	},
	"escapes": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf(`query($a:Int){a%d:echo(i:$a s:"%s")}`, i, strings.Repeat(`\u0041`, 1000))
	},
	"block strings": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:echo(s:\"\"\"%s\"\"\")}", i, strings.Repeat("x\n  ", 500))
	},
	"fragments": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:node{...F}%s} fragment F on Node{id name ...G} "+
			"fragment G on Node{id ...on Cat{lives}}", i, many(20, "b%d:node{...F}"))
	},
	"aliases": func(_ *rand.Rand, i int) string { return fmt.Sprintf("{z%d:int %s}", i, many(49, "a%d:int")) },
	"arguments": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{z%d:int %s}", i, many(49, "a%d:node(n:1){id}"))
	},
	"prices": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($n:Int!){z%d:int %s}", i, many(49, "a%d:node(n:$n){id}"))
	},
	"subscription": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("subscription S%d($n:Int=5){ticks(n:$n)}", i)
	},
	"introspection": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:__schema{types{fields{type{name}}}}}", i)
	},
	"a union":          func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:union{__typename}}", i) },
	"a union's member": func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:union{...on Member0{size}}}", i) },
	"a host's interface": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:thing{size ...on Member1{of(a:{b:1 c:[2]})}}}", i)
	},
	"a host's field": func(_ *rand.Rand, i int) string { return fmt.Sprintf("{a%d:hosted{size}}", i) },
	"a host's fields": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($s:String){a%d:hosted(s:$s){size} %s}", i,
			many(20, "b%d:hosted(o:{size:1 more:[1 2 3]}){size s:size}"))
	},
	"a host's literals": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($s:String){a%d:hosted(s:$s o:{more:[%s]}){size}}", i, strings.Repeat("1 ", 100))
	},
	"a host's text": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($s:String){a%d:hosted(s:\"%s\"){size} b:hosted(s:$s){size}}", i,
			strings.Repeat("x", 3000))
	},
	"a host's defaults": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($o:Options={more:[%s]}){a%d:hosted(o:$o){size}}", strings.Repeat("1 ", 100), i)
	},
	"a host's fragments": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:hosted{...F}} fragment F on Member0{...{size} of(a:1) @skip(if:false)}", i)
	},
	"a host's long names": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:hosted{%s:size}}", i, strings.Repeat("x", 2000))
	},
	"a host's long fragments": func(_ *rand.Rand, i int) string {
		name := "F" + strings.Repeat("x", 800)
		return fmt.Sprintf("%sfragment G on Query{hosted{size} %s} fragment %s on Query{int}",
			strings.ReplaceAll(many(8, "query Q%d_I{...G}"), "I", fmt.Sprint(i)), strings.Repeat("..."+name+" ", 20),
			name)
	},
	"a host's control characters": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:int ...F} fragment F on Query{hosted{size}} #%s", i, strings.Repeat("\x01", 3000))
	},
	"a host's operations": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("%sfragment F on Query{%s}", strings.ReplaceAll(many(8, "query Q%d_I{hosted{size} ...F}"),
			"I", fmt.Sprint(i)),
			strings.Repeat("...{int} ", 100))
	},
	"a host's directives": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($s:String){hosted(s:$s){size} a%d:int %s}", i,
			strings.Repeat("...@skip(if:false){...@include(if:true){int}} ", 14))
	},
	"a host's union": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:union{%s}}", i, many(60, "...on Member%d{of(a:{b:[1 2 3]})}"))
	},
	"a host's default of objects": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:Anything=[%s]){a%d:hosted(a:$a){size} echo(i:$r)}",
			strings.Repeat("{a_long_name:1} ", 90), i)
	},
	"a host's default of text": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($r: Int! $a:Anything=\"%s\"){a%d:hosted(a:$a){size} echo(i:$r)}",
			strings.Repeat("x", 3000), i)
	},
	"directives": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($on:Boolean=true){a%d:int @skip(if:$on) %s}", i,
			strings.Repeat("...@include(if:$on){int @skip(if:$on)} ", 8))
	},
	"nested": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:%sint%s}", i, strings.Repeat("self{", 18), strings.Repeat("}", 18))
	},
	"filters within filters": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($m:Int){a%d:echo(o:%s{min:$m}%s)}", i, strings.Repeat("{max:1.5 not:", 16),
			strings.Repeat("}", 16))
	},
	"default of floats": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("query($a:[Filter!]=[%s]){a%d:echo(os:$a)}", many(90, "{max:%d.5 flags:[true]}"), i)
	},
	"introspection of a type": func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("{a%d:__type(name:\"Node\"){fields{args{defaultValue type{ofType{ofType{name}}}}}}}", i)
	},
}
