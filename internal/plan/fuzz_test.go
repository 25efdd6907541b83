package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzPrepareAndRun(f *testing.F) {
	s := testSchema(f)
	for _, test := range invalidDocuments {
		f.Add(test.text, `{}`)
	}
	for _, text := range accepted {
		f.Add(text, `{"a":1}`)
	}
	for _, text := range attacks {
		if len(text) <= 4096 {
			f.Add(text, `{}`)
		}
	}
	for _, text := range expensiveDocuments() {
		if len(text) <= 4096 {
			f.Add(text, `null`)
		}
	}
	for _, test := range within {
		for n := range 2 {
			if text := test.text(test.edge+n) + " fragment A on Query{int}"; len(text) <= 4096 {
				f.Add(text, `{}`)
			}
		}
	}
	g := &generator{Rand: rand.New(rand.NewPCG(9, 10)), s: s}
	for range 100 {
		text, variables := g.document()
		given, err := json.Marshal(variables)
		must(f, err)
		f.Add(text, string(given))
	}
	f.Fuzz(func(t *testing.T, text, given string) {
		if len(text) > 4096 || len(given) > 1024 {
			return
		}
		var variables map[string]any
		d := json.NewDecoder(strings.NewReader(given))
		d.UseNumber()
		if d.Decode(&variables) != nil {
			return
		}
		limits := defaultLimits
		limits.Answer = 1 << 20
		mask := func(ctx context.Context, err error, _ *Report) *Error {
			if strings.Contains(err.Error(), "panic: ") && !strings.Contains(err.Error(), "panic: secret panic") {
				t.Errorf("mask received a panic: %v", err)
			}
			return masked(ctx, err, nil)
		}
		var c *Cache
		var b *Bound
		var errs Errors
		took := shortestTime(100*time.Millisecond, func() {
			c = NewCache(s, limits, mask, nil)
			b, errs = c.Prepare(text, "", variables)
		})
		if took > 100*time.Millisecond && !raceEnabled {
			t.Errorf("preparing took %v, want at most 100ms", took)
		}
		if errs != nil {
			if said := errs.AppendJSON(nil); !json.Valid(said) || len(errs) > maxErrors || len(errs) == 0 {
				t.Errorf("got %d errors, want 1 to %d in valid JSON: %s", len(errs), maxErrors, said)
			}
			return
		}
		b.Key()
		var src any = world{}
		if b.Kind() == "subscription" {
			src = 1
		}
		answer := b.run(src)
		if again, _ := c.Prepare(text, "", variables); again == nil || !bytes.Equal(again.run(src), answer) {
			t.Error("the response after a second Prepare differs from the first")
		}
		if bytes.Contains(answer, []byte("The response exceeds")) ||
			bytes.Contains(answer, []byte("Further field errors")) {
			return
		}
		r := reference{s: s}
		want, err := r.run(text, "", variables)
		if err != nil {
			t.Fatalf("the reference executor rejects the document: %v", err)
		}
		data, paths := split(t, answer)
		if data != want || !reflect.DeepEqual(paths, pathsOf(r.errs)) {
			t.Errorf("got  %s with errors at %v\nwant %s with errors at %v", data, paths, want, r.errs)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\b\f\n\r\t", "\x00\x1f\x7f", "é漢🐈", "\u2028\u2029", "\xff\xc0\x80",
		"\xed\xa0\x80", "</script>", "a\xf0\x9f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := AppendString([]byte("x"), s)
		var back string
		if err := json.Unmarshal(text[1:], &back); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if want := string([]rune(s)); back != want {
			t.Errorf("got %q, want %q", back, want)
		}
		if !utf8.Valid(text) || bytes.ContainsAny(text[1:], "\x00\n\u2028\u2029") {
			t.Errorf("%q has invalid UTF-8 or a character that must be escaped", text)
		}
	})
}

func BenchmarkCachedQuery(b *testing.B) {
	for name, text := range map[string]string{
		"leaves": `{plain old}`, "object": `{cat{id name lives weight}}`,
		"list": `{pets{__typename ... on Cat{id lives kittens{id}}}}`, "resolver": `{int must}`,
	} {
		b.Run(name, func(b *testing.B) {
			c := testCache(b, defaultLimits)
			dst := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				bound, errs := c.Prepare(text, "", nil)
				if errs != nil {
					b.Fatal(errs)
				}
				dst, _ = bound.Run(context.Background(), world{}, dst[:0])
			}
		})
	}
}

func BenchmarkNewDocument(b *testing.B) {
	s := testSchema(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := NewCache(s, defaultLimits, masked,
			nil).Prepare(`query Q($n: Int = 1){node(n: $n){id name ... on Cat{lives}}}`, "", nil); errs != nil {
			b.Fatal(errs)
		}
	}
}

// FuzzAgainstGraphqlGo checks that the data equals that of graphql-go if graphql-go accepts a document and reports
// no errors. It skips documents with features that graphql-go is known to handle differently: variables, null,
// introspection, subscriptions, the argument mode, numbers of ten or more digits and numbers with an exponent.
func FuzzAgainstGraphqlGo(f *testing.F) {
	c := testCache(f, Limits{Depth: 8, Fields: 60, Tokens: 200, CacheBytes: 1 << 20})
	ql := c.schema.GraphQL()
	foreign := regexp.MustCompile(`\$|null|mode|subscription|__|[0-9]{10}|e[0-9]|[\x00-\x08\x0b-\x1f]`)
	g := &generator{Rand: rand.New(rand.NewPCG(11, 12)), s: c.schema}
	for range 300 {
		if text, _ := g.document(); len(text) < 1000 && !foreign.MatchString(text) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 || foreign.MatchString(text) {
			return
		}
		b, errs := c.Prepare(text, "", nil)
		if errs != nil {
			return
		}
		result := graphqlDo(ql, text, nil)
		if result == nil || len(result.Errors) > 0 {
			return
		}
		data, ours := split(t, b.run(world{}))
		theirs, err := json.Marshal(result.Data)
		must(t, err)
		var got, want any
		must(t, json.Unmarshal([]byte(data), &got))
		must(t, json.Unmarshal(theirs, &want))
		if len(ours) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("chaingql   %s %v\ngraphql-go %s", data, ours, theirs)
		}
	})
}
