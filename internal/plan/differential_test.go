package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql/internal/testkit"
)

// findQuery returns the Bound that Find has bound, or nil if Find reports false.
func findQuery(c *Cache, text string, variables map[string]any) *Bound {
	var given []Variable
	for name, v := range variables {
		given = append(given, Variable{[]byte(name), v})
	}
	var b Bound
	if !c.Find(&b, []byte(text), "", given) {
		return nil
	}
	return &b
}

func TestRandomDocumentsMatchReferenceExecutor(t *testing.T) {
	c := testCache(t, Limits{CacheBytes: 8 << 20})
	g := &generator{Rand: rand.New(rand.NewPCG(1, 2)), s: c.schema}
	accepted, withErrors, rejected := 0, 0, map[string]int{}
	documents := testkit.Sample(t, 12_000)
	for i := range documents {
		text, variables := g.document()
		b, errs := c.Prepare(text, "", variables)
		if errs != nil && errs[0].Code == CodeValidation {
			rejected[strings.Join(strings.Fields(errs[0].Message)[:1], "")]++
			continue
		}
		r := reference{s: c.schema}
		want, err := r.run(text, "", variables)
		if (errs != nil) != (err != nil) {
			t.Fatalf("document %d: got error %v, reference executor got %v\n%s\n%v", i, errs, err, text, variables)
		}
		if errs != nil {
			rejected["variables"]++
			continue
		}
		accepted++
		if into := findQuery(c, text, variables); into == nil {
			if c.find(textKey(text)) != nil && b.plan.size < c.limits.CacheBytes*9/10 { // both fit in the cache
				t.Fatalf("document %d is cached but Find reports false\n%s", i, text)
			}
		} else if got := into.run(world{}); !bytes.Equal(got, b.run(world{})) {
			t.Fatalf("document %d: the responses after Find and after Prepare differ\n%s", i, text)
		}
		if data, paths := split(t, b.run(world{})); data != want || !reflect.DeepEqual(paths, pathsOf(r.errs)) {
			t.Fatalf("document %d:\n%s\n%v\ngot  %s %v\nwant %s %v", i, text, variables, data, paths, want, r.errs)
		}
		if len(r.errs) > 0 {
			withErrors++
		}
	}
	t.Logf("%d documents, %d accepted and equal byte for byte, %d of them with errors; rejected: %v",
		documents, accepted, withErrors, rejected)
	if accepted < documents*6/10 {
		t.Errorf("only %d documents were compared, want at least %d", accepted, documents*6/10)
	}
}

// The test compares responses with those of graphql-go for documents that both accept. It skips documents that
// graphql-go is known to handle wrongly:
//   - It uses a default although null was passed, does not use a default if a variable in an object is absent, and
//     drops null within values (generator.foreign).
//   - It turns 2^40 into null or true (mode: 5).
//
// If an error makes an object or a list null, the test does not compare the errors, because graphql-go visits
// fields in random order and stops at the first error.
//
// The conformance suite compares 6,000 documents with graphql-js. graphql-go is slow, so fewer documents are
// compared with it than with the reference executor.
func TestRandomDocumentsMatchGraphqlGo(t *testing.T) {
	c := testCache(t, Limits{CacheBytes: 1 << 20})
	g := &generator{Rand: rand.New(rand.NewPCG(3, 4)), s: c.schema}
	documents := testkit.Sample(t, 3000)
	accepted, both, compared, paths := 0, 0, 0, 0
	for i := range documents {
		text, variables := g.document()
		b, errs := c.Prepare(text, "", variables)
		if errs != nil {
			continue
		}
		accepted++
		result := graphqlDo(c.schema.GraphQL(), text, variables)
		if result == nil || result.Data == nil && len(result.Errors) > 0 && len(result.Errors[0].Path) == 0 {
			continue // graphql-go rejects it
		}
		both++
		r := reference{s: c.schema}
		_, err := r.run(text, "", variables)
		if err != nil {
			t.Fatal(err)
		}
		five := func(v any) bool { return v == json.Number("5") }
		if g.foreign || strings.Contains(text, "mode: 5") || slices.ContainsFunc(mapValues(variables), five) {
			continue
		}
		compared++
		data, ours := split(t, b.run(world{}))
		var got, want any
		theirs, err := json.Marshal(result.Data)
		if err != nil {
			t.Fatal(err)
		}
		must(t, json.Unmarshal([]byte(data), &got))
		must(t, json.Unmarshal(theirs, &want))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("document %d:\n%s\n%v\nchaingql   %s\ngraphql-go %s", i, text, variables, data, theirs)
		}
		if r.raised {
			continue
		}
		paths++
		var their []string
		for _, e := range result.Errors {
			their = append(their, fmt.Sprint(e.Path))
		}
		slices.Sort(ours)
		slices.Sort(their)
		if !slices.Equal(ours, their) {
			t.Fatalf("document %d:\n%s\n%v\nchaingql   has errors at %v\ngraphql-go has errors at %v",
				i, text, variables, ours, their)
		}
	}
	t.Logf("%d documents, %d accepted by chaingql, %d by both, %d compared, %d of them with their error paths",
		documents, accepted, both, compared, paths)
	if compared < documents/3 || paths < documents/4 {
		t.Error("too few documents were compared")
	}
}

// graphqlDo runs a document with graphql-go. It returns nil if graphql-go panics.
func graphqlDo(s graphql.Schema, text string, variables map[string]any) (result *graphql.Result) {
	defer func() {
		if recover() != nil {
			result = nil
		}
	}()
	plain, _ := ordinary(variables).(map[string]any)
	return graphql.Do(graphql.Params{Schema: s, RequestString: text, VariableValues: plain,
		RootObject: map[string]any{}, Context: context.Background()})
}

// ordinary converts the numbers in variables to types that graphql-go accepts: int and float64.
func ordinary(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		f, _ := v.Float64()
		return f
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = ordinary(v[i])
		}
		return items
	case map[string]any:
		object := map[string]any{}
		for k := range v {
			object[k] = ordinary(v[k])
		}
		return object
	}
	return v
}

func mapValues(m map[string]any) (values []any) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

// split returns the data of a response as text, and the paths of its errors.
func split(t testing.TB, answer []byte) (data string, paths []string) {
	t.Helper()
	var a struct {
		Data   json.RawMessage
		Errors []struct{ Path []any }
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, e := range a.Errors {
		paths = append(paths, fmt.Sprint(e.Path))
	}
	return string(a.Data), paths
}

func pathsOf(errs [][]any) (paths []string) {
	for _, path := range errs {
		paths = append(paths, fmt.Sprint(path))
	}
	return paths
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
