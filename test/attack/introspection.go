package attack

import "strings"

// introspection returns recursive and misplaced introspection queries.
func introspection() []attack {
	loop := func(n int, open ...string) string {
		text := "name"
		for i := n; i > 0; i-- {
			text = open[i%len(open)] + text + strings.Repeat("}", strings.Count(open[i%len(open)], "{"))
		}
		return text
	}
	var all []attack
	for _, s := range []struct {
		name string
		open []string
	}{
		{"fields and types", []string{"fields{type{"}}, {"fields including deprecated ones",
			[]string{"fields(includeDeprecated:true){type{"}},
		{"interfaces", []string{"interfaces{"}},
		{"possible types", []string{"possibleTypes{"}},
		{"interfaces and possible types", []string{"interfaces{", "possibleTypes{"}},
		{"input fields", []string{"inputFields{type{"}}, {"arguments", []string{"fields{args{type{"}},
		{"wrapped types", []string{"ofType{"}},
		{"fields and wrapped types", []string{"fields{type{ofType{"}},
		{"fields and interfaces", []string{"fields{type{", "interfaces{"}},
	} {
		for n := len(s.open); n <= 8; n++ {
			want := refused + "|" + answered
			if n >= 4 && s.name != "wrapped types" { // the limit is three nested lists
				want = refused
			}
			all = append(all, doc(s.name+", "+itoa(n)+" deep", want, "{__schema{types{"+loop(n, s.open...)+"}}}"))
		}
	}
	all = append(all, grownDoc("schema by aliases", refused, 2, 512, func(n int) string {
		return "{" + times(n, "a#:__schema{types{name fields{name type{name}}}}") + "}"
	})...)
	all = append(all, grownDoc("types by aliases", refused, 2, 512, func(n int) string {
		return "{" + times(n, `a#:__type(name:"BlockchainBlock"){name fields{name}}`) + "}"
	})...)
	for _, name := range []string{
		"", "Nothing", "__proto__", "constructor", "__Schema", "__Type", "Query\x00", strings.Repeat("A", 30_000),
		"query", "../Query", "${Query}",
	} {
		all = append(all, doc("type called "+short(name), either, "{__type(name:"+asJSON(name)+"){name fields{name}}}"))
	}
	all = append(all, docs(refused,
		"{__type{name}}", "{__type(name:null){name}}", "{__type(name:1){name}}", "{__type(name:Query){name}}",
		`{__type(name:["Query"]){name}}`, "{__schema}",
		"{__schema{nothing}}", "{__schema(a:1){types{name}}}", "{info{__schema{types{name}}}}",
		`{info{__type(name:"Query"){name}}}`, "{__nothing}", "{__typename(a:1)}",
		"subscription{__schema{types{name}}}", `subscription{__type(name:"Query"){name}}`,
		"mutation{__schema{types{name}}}",
		"{__schema{types{fields(includeDeprecated:1){name}}}}",
		`{__schema{types{fields(includeDeprecated:"true"){name}}}}`,
		"{__schema{types{enumValues(nothing:true){name}}}}",
	)...)
	return all
}
