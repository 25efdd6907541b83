package chaingql

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// plainBodies are read without a tree; others are left to the strict reader,
// whether it takes them or not.
var plainBodies = map[string]bool{
	`{"query":"{a}"}`: true,
	` { "query" : "{a}" , "variables" : { "a" : "x" , "n" : -1.5e3 } , "operationName" : "A" , "extensions" : null } `: true,
	`{"variables":{},"query":"{a}"}`:                                                      true,
	`{"variables":null,"operationName":null,"query":"{a}"}`:                               true,
	`{"query":"{a(s:\"x\")\n\t\r\\\/}","operationName":""}`:                               true,
	`{"query":"{a}","variables":{"f":{"in":[1,{"a":[true,false,null]}]},"s":"\u00e9 é"}}`: true,
	`{"query":"é"}`:                                      false,
	`{"query":"\u0061"}`:                                 false,
	`{"query":"{a}","id":1}`:                             false,
	`{"query":"{a}","extensions":{}}`:                    false,
	`{"query":"{a}","variables":{"\u0061":1}}`:           false,
	`{"query":""}`:                                       false,
	`{"query":null}`:                                     false,
	`{"query":"{a}"}x`:                                   false,
	`{"query":"{a}"`:                                     false,
	`{"query":"{a}",}`:                                   false,
	`{"query":"{a}","query":"{a}"}`:                      false,
	`{"query":"{a}","variables":{"a":1,"a":1}}`:          false,
	`{"query":"{a}","variables":{"a":{"b":1,"b":1}}}`:    false,
	`{"query":"{a}","variables":{"a":1,}}`:               false,
	`{"query":"{a}","variables":[]}`:                     false,
	`{"query":"{a}","operationName":5}`:                  false,
	"{\"query\":\"{a}\x01\"}":                            false,
	"{\"query\":\"{\\n \\n}\"}":                          true,
	"{\"query\":\"{\\n \x80\"}":                          false,
	"{\"query\":\"{\\n \x1f\"}":                          false,
	`{"query":"{\n a}`:                                   false,
	`{"query":"{\n a}\`:                                  false,
	"{\"query\":\"{a}\xff\"}":                            false,
	"{\"query\":\"{a}\",\"variables\":{\"a\":\"\xff\"}}": false,
	"{\"query\":\"{a}\",\"variables\":{\"a\":\"\n\"}}":   false,
	"{\"query\":\"{a}\"}\x00":                            false,
	`[{"query":"{a}"}]`:                                  false,
	`null`:                                               false,
	``:                                                   false,
}

// judged holds what a scan finds against what decodeRequest does.
func judged(t *testing.T, body []byte, depth int) (found bool) {
	t.Helper()
	var s scan
	if !s.read(bytes.Clone(body), depth) {
		return false
	}
	got := s.request()
	want, refused := decodeRequest(body, depth)
	if refused != nil {
		t.Fatalf("%q is taken, and refused with %q", body, refused.Message)
	}
	if len(want.Variables) == 0 {
		want.Variables = nil // which is the same to those who ask for one
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is scanned as %+v, and is %+v", body, got, want)
	}
	return true
}

func TestPlainBodiesAreFoundWithoutATree(t *testing.T) {
	for body, plain := range plainBodies {
		if found := judged(t, []byte(body), 20); found != plain {
			t.Errorf("%q is plain: %v", body, found)
		}
	}
	many := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"query":"{a}","variables":{`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + strings.Repeat("v", i+1) + `":1`)
		}
		return b.String() + "}}"
	}
	if !judged(t, []byte(many(mostGiven)), 20) || judged(t, []byte(many(mostGiven+1)), 20) {
		t.Error("the number of variables is not bounded as it says")
	}
	deep := []byte(`{"query":"{a}","variables":{"a":[[1]]}}`)
	for depth, plain := range map[int]bool{0: true, 1: false, 2: false, 3: false, 4: true, 5: true} {
		if found := judged(t, deep, depth); found != plain {
			t.Errorf("with a depth of %d: %v", depth, found)
		}
	}
}

func TestEveryByteThatIsNotPlainIsSeen(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte("~"), length)
				text[at] = byte(c)
				if got, want := isPlain(text), c >= ' ' && c < 0x80 && c != '\\'; got != want {
					t.Fatalf("byte %#x at %d of %d: plain %v", c, at, length, got)
				}
			}
		}
	}
}

// FuzzScan: what a scan takes, the strict reader takes, and reads the same.
func FuzzScan(f *testing.F) {
	for _, body := range slices.Sorted(maps.Keys(plainBodies)) {
		f.Add([]byte(body), 20)
	}
	for _, seed := range []string{
		`{"query":"a","variables":{"":"\\","b":[]}}`, `{"query":"a\"","variables":{"a":"\"","a\"":1}}`, `{"query":"a","variables":{"a":01}}`,
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, depth int) {
		judged(t, body, min(depth, 100))
		var plain map[string]json.RawMessage
		if json.Unmarshal(body, &plain) == nil && judged(t, body, 20) && plain["query"] == nil {
			t.Fatalf("%q has no query", body)
		}
	})
}

// BenchmarkScan shows what the scan brings against the strict reader.
func BenchmarkScan(b *testing.B) {
	body := []byte(`{"query":"query balance($address: String!) { blockchain { account(address: $address) { info { address balance(format: DEC) } } } }","variables":{"address":"0:83dfd552e63729b472fcbcc8c45ebcc6691702558b68ec7527e1ba403a0f31a8"}}`)
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		var s scan
		for b.Loop() {
			if !s.read(body, 20) {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("strict reader", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, refused := decodeRequest(body, 20); refused != nil {
				b.Fatal(refused)
			}
		}
	})
}
