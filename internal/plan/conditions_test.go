package plan

import (
	"strings"
	"testing"
)

// A nullable variable with a default is valid at @skip and @include. If it is null, the object that has the selection
// is an error. The expected responses are those of graphql-js 17.
func TestNullSkipOrIncludeConditionFailsTheObject(t *testing.T) {
	c := testCache(t, defaultLimits)
	null := map[string]any{"v": nil}
	failed := func(directive, column, path string) string {
		return `{"message":"Argument \"@` + directive + `(if:)\" has invalid value: Expected variable \"$v\" ` +
			`provided to non-null type \"Boolean!\" not to be null.","locations":[{"line":1,"column":` + column +
			`}],` +
			path + `"extensions":{"code":"BAD_USER_INPUT"}}`
	}
	for _, test := range []struct{ text, data, errors string }{
		{"query($v:Boolean=true){int @skip(if:$v)}", "null", failed("skip", "37", "")},
		{"query($v:Boolean=true){...@include(if:$v){int}}", "null", failed("include", "39", "")},
		{"query($v:Boolean=true){int maybe{int @skip(if:$v)}}", `{"int":42,"maybe":null}`,
			failed("skip", "47", `"path":["maybe"],`)},
		{"query($v:Boolean=true){maybe{self{int @skip(if:$v)}}}", `{"maybe":null}`,
			failed("skip", "48", `"path":["maybe","self"],`)},
		{"query($v:Boolean=true){nodes(n:0,count:2){...on Cat{id}...on Dog@include(if:$v){id}}}",
			`{"nodes":[null,null]}`,
			failed("include", "77", `"path":["nodes",0],`) + "," + failed("include", "77", `"path":["nodes",1],`)},
		{"query($v:Boolean=true){maybe{int} maybe{int@skip(if:$v)}}", `{"maybe":null}`,
			failed("skip", "53", `"path":["maybe"],`)},
		{"query($v:Boolean=true){maybe{int@include(if:$v)@skip(if:true)}}", `{"maybe":{}}`, ""},
		{"query($v:Boolean=true){maybe{int@include(if:false)@skip(if:$v)}}", `{"maybe":null}`,
			failed("skip", "60", `"path":["maybe"],`)},
		{"query($v:Boolean=true){maybe@skip(if:true){int@skip(if:$v)}}", `{}`, ""},
		{"query($v:Boolean=true){echo(b:$v)}", `{"echo":"[null,null,null,null,null,null,null,null,null,null]"}`, ""},
	} {
		want := `{"data":` + test.data
		if test.errors != "" {
			want += `,"errors":[` + test.errors + `]`
		}
		want += "}"
		for range 2 { // the second time it is cached
			if got := ask(c, test.text, null); got != want {
				t.Errorf("%s\ngot  %s\nwant %s", test.text, got, want)
			}
		}
		if got := ask(c, test.text, nil); !strings.Contains(got, `"data":{`) || strings.Contains(got, "errors") {
			t.Errorf("%s: got %s without the variable, want no error", test.text, got)
		}
	}
	const other = "query Q($v:Int=1){int(mode:$v)} query R($v:Boolean=true){...F} fragment F on Query{int @skip(if:$v)}"
	if b, errs := c.Prepare(other, "Q", null); errs != nil {
		t.Errorf("of another operation: got %v, want no error", errs)
	} else if got := string(b.run(world{})); got != `{"data":{"int":42}}` {
		t.Errorf("of another operation: got %s", got)
	}
}
