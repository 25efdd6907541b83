package chaingql_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// filtered subscribes with each payload and then commits the blocks. For each payload it returns the indexes of the
// blocks that the subscription received, or the message of its error.
func filtered(t *testing.T, blocks []chaingql.Block, payloads []string) []string {
	t.Helper()
	results := make([]string, len(payloads))
	synctest.Test(t, func(t *testing.T) {
		number := map[string]int{}
		for i, b := range blocks {
			number[string(b.Cursor)] = i
		}
		chain := memchain.New()
		h, _ := newHandler(t, chain, chaingql.Options{})
		n := serve(t, h)
		var sockets []*socket
		for from := 0; from < len(payloads); from += chaingql.DefaultLimits().SocketSubscriptions {
			s := n.socket(t)
			sockets = append(sockets, s)
			for i := from; i < min(len(payloads), from+chaingql.DefaultLimits().SocketSubscriptions); i++ {
				s.send(fmt.Sprintf(`{"id":%d,"type":"start","payload":%s}`, i, payloads[i]))
			}
		}
		synctest.Wait()
		if err := chain.Append(blocks...); err != nil {
			t.Fatal(err)
		}
		for _, s := range sockets {
			for _, frame := range s.receive() {
				var m struct {
					ID      int
					Type    string
					Payload struct {
						Message string
						Data    struct {
							Blocks struct {
								Order string `json:"chain_order"`
							}
						}
					}
				}
				if err := json.Unmarshal([]byte(frame), &m); err != nil {
					t.Fatalf("a frame is not valid JSON: %v: %s", err, frame)
				}
				if m.Type == "error" {
					results[m.ID] = m.Payload.Message
					continue
				}
				results[m.ID] = strings.TrimSpace(results[m.ID] + " " + fmt.Sprint(number[m.Payload.Data.Blocks.Order]))
			}
		}
	})
	return results
}

func filterBlocks() []chaingql.Block {
	at := func(workchain int32, shard uint64, seqNo uint32, first byte, utime int64) chaingql.Block {
		b := chaingql.Block{
			Workchain: workchain, Shard: shard, SeqNo: seqNo,
			Time: time.Unix(utime, 999), Cursor: chaingql.SeqCursor(uint64(utime)),
		}
		b.Hash[0] = first
		return b
	}
	return []chaingql.Block{
		at(-1, wholeShard, 10, 0xaa, 100),
		at(0, 0x4000000000000000, 10, 0x0b, 101),
		at(0, 0xc000000000000000, 11, 0xcc, 102),
		at(-1, wholeShard, 11, 0x99, 103),
		at(5, 0x4000000000000000, 4294967295, 0xff, 104),
	}
}

func TestFilterOperatorsSelectMatchingBlocks(t *testing.T) {
	aa := "aa" + strings.Repeat("0", 62)
	const all = "0 1 2 3 4"
	table := [][2]string{
		{``, all},
		{`filter:null`, all},
		{`filter:{}`, all},
		{`filter:{workchain_id:null}`, all},
		{`filter:{workchain_id:{}}`, all},
		{`filter:{workchain_id:{eq:-1}}`, "0 3"},
		{`filter:{workchain_id:{ne:-1}}`, "1 2 4"},
		{`filter:{workchain_id:{gt:-1}}`, "1 2 4"},
		{`filter:{workchain_id:{lt:0}}`, "0 3"},
		{`filter:{workchain_id:{ge:0}}`, "1 2 4"},
		{`filter:{workchain_id:{le:-1}}`, "0 3"},
		{`filter:{workchain_id:{eq:null}}`, ""},
		{`filter:{workchain_id:{ne:null}}`, all},
		{`filter:{workchain_id:{gt:null}}`, ""},
		{`filter:{workchain_id:{in:[]}}`, ""},
		{`filter:{workchain_id:{notIn:[]}}`, all},
		{`filter:{workchain_id:{in:[0]}}`, "1 2"},
		{`filter:{workchain_id:{in:0}}`, "1 2"},
		{`filter:{workchain_id:{in:[5,null,-1]}}`, "0 3 4"},
		{`filter:{workchain_id:{in:[null]}}`, ""},
		{`filter:{workchain_id:{notIn:[0,5]}}`, "0 3"},
		{`filter:{workchain_id:{notIn:[null]}}`, all},
		{`filter:{workchain_id:{in:null}}`, `workchain_id: "in" must not be null`},
		{`filter:{seq_no:{notIn:null}}`, `seq_no: "notIn" must not be null`},
		{`filter:{OR:{shard:{in:null}}}`, `shard: "in" must not be null`},
		{`filter:{seq_no:{gt:10}}`, "2 3 4"},
		{`filter:{seq_no:{ge:10.5}}`, "2 3 4"},
		{`filter:{seq_no:{eq:10.0}}`, "0 1"},
		{`filter:{seq_no:{eq:4294967295}}`, "4"},
		{`filter:{seq_no:{gt:1e1,lt:4.294967295e9}}`, "2 3"},
		{`filter:{seq_no:{gt:10,ne:11}}`, "4"},
		{`filter:{gen_utime:{ge:101,le:103}}`, "1 2 3"},
		{`filter:{gen_utime:{eq:104}}`, "4"},
		{`filter:{seq_no:{eq:10},workchain_id:{eq:0}}`, "1"},
		{`filter:{seq_no:{eq:10},workchain_id:{eq:7}}`, ""},
		{`filter:{id:{eq:"` + aa + `"}}`, "0"},
		{`filter:{id:{eq:"` + strings.ToUpper(aa) + `"}}`, "0"},
		{`filter:{id:{in:["` + strings.ToUpper(aa) + `","x"]}}`, "0"},
		{`filter:{id:{ne:"` + strings.ToUpper(aa) + `"}}`, "1 2 3 4"},
		{`filter:{id:{eq:"aa"}}`, ""},
		{`filter:{id:{gt:"9A"}}`, "0 2 4"},
		{`filter:{id:{lt:"9A"}}`, "1 3"},
		{`filter:{id:{le:"` + aa + `0"}}`, "0 1 3"},
		{`filter:{id:{gt:"` + aa[:63] + `"}}`, "0 2 4"},
		{`filter:{seq_no:{in:[12,11,10.5,-1,11]}}`, "2 3"},
		{`filter:{seq_no:{lt:null}}`, ""},
		{`filter:{id:{ge:"aa"}}`, "0 2 4"},
		{`filter:{shard:{eq:"4000000000000000"}}`, "1 4"},
		{`filter:{shard:{eq:"C000000000000000"}}`, "2"},
		{`filter:{shard:{notIn:["C000000000000000"]}}`, "0 1 3 4"},
		{`filter:{shard:{gt:"4000000000000000"}}`, "0 2 3"},
		{`filter:{chain_order:{gt:"` + string(chaingql.SeqCursor(101)) + `"}}`, "2 3 4"},
		{`filter:{chain_order:{eq:"` + string(chaingql.SeqCursor(101)) + `"}}`, "1"},
		{`filter:{workchain_id:{eq:-1},OR:{seq_no:{eq:10}}}`, "0 1 3"},
		{`filter:{workchain_id:{eq:7},OR:{seq_no:{eq:7},OR:{gen_utime:{eq:104}}}}`, "4"},
		{`filter:{workchain_id:{eq:7},OR:null}`, ""},
		{`filter:{workchain_id:{eq:7},OR:{}}`, all},
		{`filter:{OR:{workchain_id:{eq:-1}}}`, all},
		{`filter:{workchain_id:{eq:7},OR:{id:null}}`, all},
		{`filter:{workchain_id:{in:[0,-1]},seq_no:{gt:0},OR:{id:{eq:"zz"}}}`, "0 1 2 3"}, // from the recording
		{`after:null`, all},
		{`filter:{workchain_id:{eq:"x"}}`, `Int cannot represent non-integer value: "x"`},
		{`filter:{workchain_id:{like:1}}`,
			`Expected value of type "IntFilter" not to include unknown field "like", found: {...}.`},
		{`filter:{nope:{eq:1}}`,
			`Expected value of type "BlockFilter" not to include unknown field "nope", found: {...}.`},
		{`filter:{workchain_id:{eq:2147483648}}`, `Int cannot represent non 32-bit signed integer value: 2147483648`},
	}
	payloads := make([]string, len(table))
	for i, row := range table {
		document := "subscription{blocks{chain_order}}"
		if row[0] != "" {
			document = "subscription{blocks(" + row[0] + "){chain_order}}"
		}
		text, _ := json.Marshal(map[string]any{"query": document})
		payloads[i] = string(text)
	}
	for i, got := range filtered(t, filterBlocks(), payloads) {
		equal(t, table[i][0], got, table[i][1])
	}
}

// The test sends random filters as variables, as the SDK does, and compares the results with a simple implementation.
func TestFiltersMatchANaiveImplementation(t *testing.T) {
	blocks := randomBlocks(5, 40)
	r := rand.New(rand.NewPCG(7, 7))
	var payloads, want []string
	for range 600 {
		filter := randomFilter(r, blocks, 0)
		text, err := json.Marshal(map[string]any{
			"query":     "subscription blocks($filter: BlockFilter) {blocks(filter: $filter) {chain_order}}",
			"variables": map[string]any{"filter": filter},
		})
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, string(text))
		want = append(want, naive(filter, blocks))
	}
	errs := 0
	for i, got := range filtered(t, blocks, payloads) {
		if want[i] == "error" {
			if errs++; !strings.HasSuffix(got, "must not be null") {
				t.Errorf("%s: got %q, want an error", payloads[i], got)
			}
		} else if got != want[i] {
			t.Errorf("%s:\n got %q\nwant %q", payloads[i], got, want[i])
		}
	}
	slices.Sort(want)
	if kinds := len(slices.Compact(want)); errs < 10 || kinds < 100 {
		t.Errorf("the filters are too similar: %d errors, %d different results", errs, kinds)
	}
}

var filterFields = []string{"id", "seq_no", "workchain_id", "shard", "gen_utime", "chain_order"}

// value returns the value of a block with which a field of a filter is compared.
func value(field string, b chaingql.Block) any {
	return map[string]any{
		"id": b.Hash.String(), "seq_no": float64(b.SeqNo), "workchain_id": float64(b.Workchain),
		"shard": fmt.Sprintf("%016x", b.Shard), "gen_utime": float64(b.Time.Unix()), "chain_order": string(b.Cursor),
	}[field]
}

func randomFilter(r *rand.Rand, blocks []chaingql.Block, depth int) map[string]any {
	filter := map[string]any{}
	for range r.IntN(3) {
		field := filterFields[r.IntN(len(filterFields))]
		some := func() any {
			v := value(field, blocks[r.IntN(len(blocks))])
			if s, ok := v.(string); ok && field != "chain_order" && r.IntN(2) == 0 {
				v = strings.ToUpper(s)
			}
			if r.IntN(12) == 0 {
				v = nil
			}
			return v
		}
		operators := map[string]any{}
		for range r.IntN(3) {
			name := []string{"eq", "ne", "gt", "lt", "ge", "le", "in", "notIn"}[r.IntN(8)]
			if name != "in" && name != "notIn" {
				operators[name] = some()
			} else if operators[name] = nil; r.IntN(8) > 0 {
				list := []any{}
				for range r.IntN(8) {
					list = append(list, some())
				}
				operators[name] = list
			}
		}
		if filter[field] = operators; r.IntN(15) == 0 {
			filter[field] = nil
		}
	}
	if depth < 3 && r.IntN(3) == 0 {
		if filter["OR"] = randomFilter(r, blocks, depth+1); r.IntN(5) == 0 {
			filter["OR"] = nil
		}
	}
	return filter
}

// naive returns the indexes of the blocks that a filter matches, or "error" if the filter is invalid.
func naive(filter map[string]any, blocks []chaingql.Block) string {
	for f := filter; f != nil; f, _ = f["OR"].(map[string]any) {
		for name, operators := range f {
			operators, _ := operators.(map[string]any)
			for operator, operand := range operators {
				if name != "OR" && operand == nil && (operator == "in" || operator == "notIn") {
					return "error"
				}
			}
		}
	}
	var matching []string
	for i, b := range blocks {
		for f := filter; f != nil; f, _ = f["OR"].(map[string]any) {
			if naiveFields(f, b) {
				matching = append(matching, fmt.Sprint(i))
				break
			}
		}
	}
	return strings.Join(matching, " ")
}

func naiveFields(filter map[string]any, b chaingql.Block) bool {
	for _, field := range filterFields {
		operators, _ := filter[field].(map[string]any)
		for name, operand := range operators {
			if !naiveOperator(name, value(field, b), operand, field == "id" || field == "shard") {
				return false
			}
		}
	}
	return true
}

func naiveOperator(name string, have, operand any, hex bool) bool {
	switch name {
	case "in", "notIn":
		found := false
		for _, item := range operand.([]any) {
			found = found || naiveOperator("eq", have, item, hex)
		}
		return found == (name == "in")
	case "ne":
		return !naiveOperator("eq", have, operand, hex)
	}
	if operand == nil {
		return false
	}
	order := 0
	if s, ok := operand.(string); ok {
		if hex {
			s = strings.ToLower(s)
		}
		order = strings.Compare(have.(string), s)
	} else if have.(float64) != operand.(float64) {
		order = map[bool]int{true: 1, false: -1}[have.(float64) > operand.(float64)]
	}
	return map[string]bool{"eq": order == 0, "gt": order > 0, "lt": order < 0, "ge": order >= 0, "le": order <= 0}[name]
}
