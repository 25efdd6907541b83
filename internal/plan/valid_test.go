package plan

import (
	"slices"
	"strings"
	"testing"
)

// invalidDocuments has invalid documents, each with a part of the expected message.
var invalidDocuments = []struct{ text, want string }{
	// Documents that do not follow the grammar of GraphQL.
	{``, "Unexpected <EOF>"}, {` # nothing`, "Unexpected <EOF>"},
	{`fragment A($x: Int) on Query{int} {...A}`, `Expected "on", found "("`},
	{`{echo(s: "\ud83d")}`, "Invalid Unicode escape"}, {`{echo(s: "\ude00\ud83d")}`, "Invalid Unicode escape"},
	{`{echo(s: "é\ud83dx")}`, "Invalid Unicode escape"}, {`{echo(s: "\ud83d\u0041")}`, "Invalid Unicode escape"},
	{`{echo(s: "\\\ud83d")}`, "Invalid Unicode escape"}, {`{echo(s: "\ud83d\ude00\ud83d")}`, "Invalid Unicode escape"},
	{`query($a: String = "\udead"){echo(s: $a)}`, "Invalid Unicode escape"},
	{`{echo(s: "\u{d83d}")}`, "Invalid Unicode escape"},
	{`{echo(s: "\u{110000}")}`, "Invalid Unicode escape"}, {`{echo(s: "\u{}")}`, "Invalid Unicode escape"},
	{`{echo(i: 1f: 2)}`, "Invalid number"}, {`{echo(f: 1.5e3i: 2)}`, "Invalid number"},
	{`{echo(i: 0xF)}`, "Invalid number"}, {`{echo(i: 01)}`, "Invalid number"},
	{`{echo(s: """a"""")}`, "Unterminated string"}, {"{echo(s: \"\xff\")}", "not UTF-8"},
	{`{echo(s: 'a')}`, "Unexpected single quote"}, {`{echo(s: "a`, "Unterminated string"},
	{`{int ?}`, `Unexpected character: "?"`},
	{`{int`, "Expected Name, found <EOF>"}, {`{}`, `Expected Name, found "}"`},
	{`{echo()}`, `Expected Name, found ")"`}, {`query(){int}`, `Expected "$", found ")"`},
	{`{int} }`, `Unexpected "}"`}, {`query{int @}`, "Expected Name"}, {`{...on}`, "Expected Name"},
	{`fragment on on Query{int} {int}`, "Unexpected Name"},
	{`query($a: Int = $b){int(mode: $a)}`, `Unexpected variable "$b" in constant value`},
	{`type A{a: Int}`, "Unexpected Name"},
	{"{int\x00}", "Unexpected character: U+0000"}, {`{é}`, "Unexpected character: U+00E9"},
	{`{int 😀}`, "Unexpected character: U+1F600"}, {`{... "on" Query{int}}`, `Expected "{", found String "on"`},
	{`{... """on""" Query{int}}`, `Expected "{", found BlockString "on"`}, {`"query"{int}`, "Unexpected description"},
	{`fragment F "on" Query{int} {...F}`, `Expected "on", found String "on"`},
	{`{"int"}`, `Expected Name, found String "int"`},
	{`{echo(s: """a""""""b""")}`, `Expected Name, found BlockString "b"`}, {`{int ..}`, `Unexpected ".."`},
	{`{echo(f: .5)}`, `expected digit before "."`},
	{`query @live {int}`, `Unknown directive "@live"`}, {`{int @defer}`, `Unknown directive "@defer"`},
	{`{... @defer {int}}`, `Unknown directive "@defer"`},
	// Literals.
	{`{int(mode: 2147483648)}`, "32-bit"}, {`{int(mode: -2147483649)}`, "32-bit"},
	{`{echo(l: [1, 2147483648])}`, "32-bit"},
	{`{echo(ll: [[2147483648]])}`, "32-bit"}, {`{echo(o: {any: [{min: 2147483648}]})}`, "32-bit"},
	{`query($a: Int = 2147483648){int(mode: $a)}`, "32-bit"},
	{`query($a: Filter = {min: 2147483648}){echo(o: $a)}`, "32-bit"}, {`{int @include(if: 1)}`, "non boolean"},
	{`{int @skip(if: null)}`, "not to be null"}, {`{int @skip(if: {})}`, "non boolean"},
	{`{echo(i: {})}`, "non-integer"}, {`{echo(c: {})}`, "non-enum"}, {`{echo(s: {})}`, "non string"},
	{`{echo(i: 1.0)}`, "non-integer"}, {`{echo(i: "1")}`, "non-integer"},
	{`{echo(i: true)}`, "non-integer"}, {`{echo(i: RED)}`, "non-integer"}, {`{echo(i: [1])}`, "non-integer"},
	{`{echo(f: "1")}`, "non numeric"}, {`{echo(f: 1e400)}`, "non numeric"},
	{`{echo(b: 1)}`, "non boolean"}, {`{echo(b: "true")}`, "non boolean"}, {`{echo(s: 1)}`, "non string"},
	{`{echo(s: a)}`, "non string"}, {`{echo(id: 1.5)}`, "non-string and non-integer"},
	{`{echo(id: true)}`, "non-string and non-integer"}, {`{echo(c: "RED")}`, "non-enum"},
	{`{echo(c: PINK)}`, "does not exist"}, {`{echo(c: true)}`, "non-enum"}, {`{echo(c: 1)}`, "non-enum"},
	{`{echo(o: 1)}`, `Expected value of type "Filter"`}, {`{echo(o: [])}`, `Expected value of type "Filter"`},
	{`{echo(o: {nope: 1})}`, `not to include unknown field "nope"`},
	{`{echo(o: {name: null})}`, `not to be null`}, {`{echo(os: [null])}`, `not to be null`},
	{`{echo(ll: [[null]])}`, `not to be null`}, {`{required(i: null, l: [])}`, `not to be null`},
	{`{defaults(n: null)}`, "not to be null"},
	{`{echo(o: {min: 1, min: 2})}`, "only one input field"},
	{`{echo(os: [{any: {min: 1, min: 1}}])}`, "only one input field"},
	{`query($a: Int! = null){defaults(n: $a)}`, "not to be null"},
	{`query($a: [Int!] = [1, null]){echo(ll: [$a])}`, "not to be null"}, {`{__type(name: 1){name}}`, "non string"},
	// Variables.
	{`query($a: Int){required(i: $a, l: [])}`, "used in position"},
	{`query($a: Int = null){required(i: $a, l: [])}`, "used in position"},
	{`query($a: [Int]){required(i: 1, l: $a)}`, "used in position"},
	{`query($a: Int!){required(i: 1, l: $a)}`, "used in position"},
	{`query($a: Int){required(i: 1, l: [$a])}`, "used in position"},
	{`query($a: [Int!]!){echo(i: $a)}`, "used in position"},
	{`query($a: String){echo(id: $a)}`, "used in position"}, {`query($a: Int){echo(f: $a)}`, "used in position"},
	{`query($a: Int){echo(o: {max: $a})}`, "used in position"},
	{`query($a: String){echo(c: $a)}`, "used in position"},
	{`query($a: [Int]){echo(ll: [$a])}`, "used in position"},
	{`query($a: Boolean){int @skip(if: $a)}`, "used in position"},
	{`query($a: Int){echo(ll: $a)}`, "used in position"},
	{`query($a: Int){...A} fragment A on Query{required(i: $a, l: [])}`, "used in position"},
	{`query($a: String){echo(o: {any: [{name: "a", not: {min: $a}}]})}`, "used in position"},
	{`query($a: Int){int}`, "never used"}, {`query($a: Int, $a: Int){int(mode: $a)}`, "only one variable"},
	{`{int(mode: $a)}`, "not defined"},
	{`query A($a: Int){...F} query B{...F} fragment F on Query{int(mode: $a)}`, `not defined by operation "B"`},
	{`query($a: Cat){echo(o: $a)}`, "non-input type"}, {`query($a: Nope){echo(o: $a)}`, `Unknown type "Nope"`},
	{`query($a: [Pet!]!){echo(o: $a)}`, "non-input type"}, {`{int @skip(if: $a)}`, "not defined"},
	{`query($a: Int = "1"){int(mode: $a)}`, "non-integer"}, {`{echo(l: [$a])}`, "not defined"},
	// Fields, arguments, directives.
	{`{nope}`, `Cannot query field "nope" on type "Query"`},
	{`{node{lives}}`, `Cannot query field "lives" on type "Node"`},
	{`{pets{id}}`, `Cannot query field "id" on type "Pet"`},
	{`{cat{__schema{types{name}}}}`, `Cannot query field "__schema"`},
	{`{node}`, "must have a selection"}, {`{matrix{int}}`, "must not have a selection"},
	{`{int{x}}`, "must not have a selection"}, {`{color{x}}`, "must not have a selection"},
	{`{pets}`, "must have a selection"}, {`{__typename{x}}`, "must not have a selection"},
	{`{int(nope: 1)}`, `Unknown argument "nope"`}, {`{int(mode: 1, mode: 1)}`, "only one argument"},
	{`{required(i: 1)}`, `Argument "Query.required(l:)" of type "[Int!]!" is required`},
	{`{__typename(a: 1)}`, `Unknown argument "a"`}, {`{__type{name}}`, `Argument "Query.__type(name:)"`},
	{`{int @nope}`, `Unknown directive "@nope"`}, {`{int @skip}`, `Argument "@skip(if:)"`},
	{`{int @skip(if: true, nope: 1)}`, `Unknown argument "nope"`},
	{`{int @skip(if: true) @skip(if: true)}`, "only be used once"},
	{`query @skip(if: true) {int}`, "may not be used on QUERY"},
	{`{...A} fragment A on Query @include(if: true) {int}`, "may not be used on FRAGMENT_DEFINITION"},
	{`{int @deprecated}`, "may not be used on FIELD"},
	{`query($a: Int @skip(if: true)){int(mode: $a)}`, "may not be used on VARIABLE_DEFINITION"},
	{`{int @specifiedBy(url: "x")}`, "may not be used on FIELD"}, {`{int @oneOf}`, "may not be used on FIELD"},
	{`subscription @include(if: true){ticks}`, "may not be used on SUBSCRIPTION"},
	// Fragments.
	{`fragment A on Query{int}`, `Fragment "A" is never used`}, {`{int} fragment A on Query{int}`, "never used"},
	{`{...A}`, `Unknown fragment "A"`}, {`{...A} fragment A on Nope{int}`, `Unknown type "Nope"`},
	{`{... on Nope{int}}`, `Unknown type "Nope"`},
	{`{...A} fragment A on Int{int}`, "non composite type"}, {`{... on Filter{min}}`, "non composite type"},
	{`{... on Color{x}}`, "non composite type"}, {`{... on Cat{lives}}`, "can never be of type"},
	{`{cat{... on Dog{bark}}}`, "can never be of type"},
	{`{cat{...A}} fragment A on Person{id}`, "can never be of type"},
	{`{pets{... on Person{id}}}`, "can never be of type"},
	{`{...A} fragment A on Query{int} fragment A on Query{int}`, "only one fragment"},
	// Operations.
	{`{int} {int}`, "anonymous operation must be the only"},
	{`{int} query A{int}`, "anonymous operation must be the only"},
	{`query A{int} query A{int}`, "only one operation named"},
	{`mutation{int}`, `The mutation operation is not supported`},
	{`subscription{ticks b: ticks}`, "only one top level field"},
	{`subscription S{...A} fragment A on Subscription{ticks tocks{int}}`, `Subscription "S" must select only one`},
	{`subscription{... {ticks} ... on Subscription{b: ticks}}`, "only one top level field"},
	{`subscription{__typename}`, "introspection top level field"},
	{`subscription{ticks @skip(if: true)}`, "must not use `@skip` or `@include`"},
	{`subscription{... @include(if: true) {ticks}}`, "must not use `@skip` or `@include`"},
	{`subscription{__schema{types{name}}}`, `Cannot query field "__schema"`},
	// Fields that do not merge.
	{`{a: int a: string}`, `"int" and "string" are different fields`},
	{`{int(mode: 1) int}`, "differing arguments"}, {`{int(mode: 1) int(mode: 2)}`, "differing arguments"},
	{`query($a: Int){int(mode: $a) int(mode: 1)}`, "differing arguments"},
	{`query($a: Int, $b: Int){int(mode: $a) ... {int(mode: $b)}}`, "differing arguments"},
	{`{int ...A} fragment A on Query{int: must}`, "different fields"},
	{`{node{peer{id}} node{peer(step: 2){id}}}`, "differing arguments"},
	{`{node{... on Cat{mood} ... on Dog{mood}}}`, `conflicting types "Color" and "Color!"`},
	{`{node{... on Cat{a: lives} ... on Dog{a: bark}}}`, `conflicting types "Int!" and "String"`},
	{`{node{... on Cat{a: kittens{id}} ... on Person{a: friend{id}}}}`, "conflicting types"},
	{`{node{a: id ... on Cat{a: name}}}`, "different fields"},
	{`{node{... on Node{a: peer{id}} ... on Cat{a: peer(step: 3){id}}}}`, "differing arguments"},
	{`{node{... on Cat{a: peer{x: id}} ... on Dog{a: peer{x: name}}}}`, "conflict"},
	{`{node{...A ...B}} fragment A on Cat{p: peer{q: peer{x: id}}} fragment B on Node{p: peer{q: peer{x: name}}}`,
		"conflict"},
	{`{echo(o: {min: 1}) echo(o: {min: 2})}`, "differing arguments"},
	{`{echo(l: [1, 2]) echo(l: [2, 1])}`, "differing arguments"},
	{`{node{... on Node{a: id} ... on Named{a: name}}}`, "different fields"},
	{`{a: matrix a: int}`, "different fields"}, {`{a: node{id} a: cat{id}}`, "different fields"},
	{`{__typename: int __typename}`, "conflict"},
}

// accepted has valid documents that look invalid.
var accepted = []string{
	`{echo(s: "\ud83d\ude00 \u{1F600} \u{41} \\ud83d \u00e9")}`, `{echo(s: "\\\ud83d\ude00")}`, "\ufeff{int}",
	`query Q{int}`, `"a description" query Q{int}`, `{int,,,float}`, `{int#c
}`, `{echo(f: 1, id: 5, l: 1, ll: 1, os: {})}`, `{echo(ll: [1, [2]])}`, `{echo(i: 2147483647, l: [-2147483648])}`,
	`query($a: Int! = 1){defaults(n: $a)}`, `query($a: Int){defaults(n: $a)}`,
	`query($a: Int = 1){required(i: $a, l: [])}`, `query($a: Boolean = true){int @skip(if: $a)}`,
	`query($a: String){echo(o: {name: $a})}`,
	`query($a: [Int!]! = [1]){echo(l: $a) required(i: 1, l: $a)}`,
	`query($a: Filter = {not: {any: {min: 1}}}){echo(o: $a)}`,
	`query A($a: Int){...F} query B($a: Int){...F} fragment F on Query{int(mode: $a)}`,
	`{int @skip(if: false) @include(if: true)}`, `{...A @include(if: true) ...A} fragment A on Query{int}`,
	`{node{... on Named{name} ... on Pet{... on Cat{lives}}}}`, `{pets{... on Node{id} __typename}}`,
	`{int int}`, `{int(mode: 1) int(mode: 1)}`, `{a: int(mode: 1) b: int(mode: 2)}`,
	`{node{... on Cat{a: lives} ... on Dog{b: bark}}}`,
	`{node{... on Cat{a: peer{x: id}} ... on Dog{a: peer(step: 2){x: id}}}}`,
	`{node{... on Cat{a: id} ... on Dog{a: id}}}`, `{echo(o: {min: 1, max: 2}) echo(o: {max: 2, min: 1})}`,
	`{node{... on Cat{a: kittens{id}} ... on Dog{b: owner{id}}}}`,
	`{__schema{queryType{name}} __type(name: "Cat"){name} __typename}`,
	`{self{__type(name: "Cat"){name}}}`, `subscription{ticks ticks}`,
	`subscription S{...A} fragment A on Subscription{ticks(n: 2)}`, `subscription{tocks{__typename int float}}`,
	`{node{... on Cat{a: peers{id}} ... on Person{a: peers(count: 1){id}}}}`,
	`query fragment{int}`, `query on{int}`, `{...fragment} fragment fragment on Query{int}`,
	`{on: int true: float null: string}`,
}

func TestInvalidDocumentsAreRejected(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, test := range invalidDocuments {
		_, errs := c.Prepare(test.text, "", nil)
		if errs == nil {
			t.Errorf("%s: accepted, want errors", test.text)
			continue
		}
		if !slices.ContainsFunc(errs, func(e *Error) bool { return strings.Contains(e.Message, test.want) }) {
			t.Errorf("%s\ngot  %s\nwant %s", test.text, errs[0].Message, test.want)
		}
		code, syntax := errs[0].Code, strings.HasPrefix(errs[0].Message, "Syntax Error: ")
		if syntax && code != CodeParse || !syntax && code != CodeValidation {
			t.Errorf("%s: the error %q has the wrong code %s", test.text, errs[0].Message, code)
		}
		for _, e := range errs {
			if strings.Contains(strings.ToLower(e.Message), "did you mean") {
				t.Errorf("%s: the error %q has a suggestion", test.text, e.Message)
			}
			for _, l := range e.Locations {
				if l.Line < 1 || l.Column < 1 {
					t.Errorf("%s: got location %v, want a line and a column of at least 1", test.text, l)
				}
			}
		}
	}
}

func TestUnusualValidDocumentsAreAccepted(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, text := range accepted {
		if _, errs := c.Prepare(text, "", nil); errs != nil && errs[0].Code != CodeInput {
			t.Errorf("%s: got %v, want no error", text, errs)
		}
	}
}

func TestBlockStringValuesFollowSpecification(t *testing.T) {
	c := testCache(t, defaultLimits)
	for text, want := range map[string]string{
		`""""""`: ``, `"""a"""`: `a`, `"""a "b" \n \u0041 \"""c"""`: `a "b" \n \u0041 """c`,
		"\"\"\"a\n   b\n    c\"\"\"":    "a\nb\n c",
		"\"\"\"\n\n  a\n  b\n \n\"\"\"": "a\nb", "\"\"\"  a\n  b\"\"\"": "  a\nb",
		"\"\"\"\r\n\ta\r\tb\n\"\"\"": "a\nb", "\"\"\"é漢\n  🐈\"\"\"": "é漢\n🐈", "\"\"\"\n  a\n b\"\"\"": " a\nb",
		"\"\"\" \n \"\"\"": "", "\"\"\"a\n\n  b\"\"\"": "a\n\nb",
	} {
		b, errs := c.Prepare("{echo(s: "+text+")}", "", nil)
		if errs != nil {
			t.Errorf("%q: got %v, want no error", text, errs)
			continue
		}
		if _, args, err := b.Root(); err != nil || args[3] != want {
			t.Errorf("%q: got %q, want %q", text, args[3], want)
		}
	}
	_, errs := c.Prepare("{\n  string\n  echo(i: \"\"\"a\n\n\n\"\"\")\n}", "", nil)
	if errs == nil || errs[0].Locations[0] != (Location{3, 11}) {
		t.Errorf("got %v at %v, want an error at line 3, column 11", errs, errs[0].Locations)
	}
}
