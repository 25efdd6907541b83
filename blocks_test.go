package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestPagesMatchTheRecordedReference(t *testing.T) {
	const (
		page800 = `{"cursor":"2320m","node":{"id":` +
			`"block/3cd6c3102a839c4fdc85840a85d34ac6950de394b7761b156e216bccd14fb8ca",` +
			`"hash":"3cd6c3102a839c4fdc85840a85d34ac6950de394b7761b156e216bccd14fb8ca","seq_no":800,"workchain_id":-1}}`
		page801 = `{"cursor":"2321m","node":{"id":` +
			`"block/5e36fc5168b1219b9809825bec966102ec1c0fd849af479ab2a97b9d80981a66",` +
			`"hash":"5e36fc5168b1219b9809825bec966102ec1c0fd849af479ab2a97b9d80981a66","seq_no":801,"workchain_id":-1}}`
		page802 = `{"cursor":"2322m","node":{"id":` +
			`"block/c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0",` +
			`"hash":"c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0","seq_no":802,"workchain_id":-1}}`
	)
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for document, want := range map[string]string{
		`workchain:-1,last:3){edges{cursor node{id hash seq_no workchain_id}}
			pageInfo{startCursor endCursor hasNextPage hasPreviousPage}`: `{` +
			`"edges":[` + page800 + `,` + page801 + `,` + page802 + `],` +
			`"pageInfo":{"startCursor":"2320m","endCursor":"2322m","hasNextPage":false,"hasPreviousPage":false}}`,
		`workchain:7,last:3){edges{node{seq_no}}
			pageInfo{startCursor endCursor hasNextPage hasPreviousPage}`: `{"edges":[],` +
			`"pageInfo":{"startCursor":"","endCursor":"","hasNextPage":false,"hasPreviousPage":false}}`,
		`workchain:-1,last:1){edges{node{seq_no}}`: `{"edges":[{"node":{"seq_no":802}}]}`,
		`workchain:-1,last:1,allow_latest_inconsistent_data:true){edges{node{seq_no}}`: `{"edges":[` +
			`{"node":{"seq_no":802}}]}`,
		`last:1){edges{node{...on Node{__typename id} shard gen_utime chain_order}}`: `{"edges":[{"node":{` +
			`"__typename":"BlockchainBlock",` +
			`"id":"block/c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0",` +
			`"shard":"8000000000000000","gen_utime":1795205730,"chain_order":"2322m"}}]}`,
	} {
		got := query(h, "{blockchain{blocks("+document+"}}}", nil)
		equal(t, document, got, `{"data":{"blockchain":{"blocks":`+want+`}}}`)
	}
}

func TestInvalidBlocksArgumentsAreFieldErrors(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	const digits = "Invalid shard: 16 hex digits expected"
	for args, message := range map[string]string{
		`first:1,last:1`:                `"first" and "last" shouldn't be used simultaneously`,
		`first:0,last:1`:                `"first" and "last" shouldn't be used simultaneously`,
		`first:1,before:"2322m"`:        `"first" and "before" shouldn't be used simultaneously`,
		`first:1,before:""`:             `"first" and "before" shouldn't be used simultaneously`,
		`last:1,after:"2320m"`:          `"last" and "after" shouldn't be used simultaneously`,
		`first:0`:                       `"first" should not be less than 1`,
		`first:-1`:                      `"first" should not be less than 1`,
		`last:0`:                        `"last" should not be less than 1`,
		`workchain:-1,last:-2147483648`: `"last" should not be less than 1`,
		`shard:""`:                      digits,
		`shard:"8"`:                     digits,
		`shard:"80000000000000000"`:     digits,
		`shard:"0x80000000000000"`:      digits,
		`shard:"800000000000000g"`:      digits,
		`shard:"+800000000000000"`:      digits,
		`shard:"80000000_0000000"`:      digits,
		`shard:"8000000000000000 "`:     digits,
		`last:1,before:"ZZZ"`:           "Invalid cursor",
		`after:"ZZZ"`:                   "Invalid cursor",
		`first:1,after:"` + strings.Repeat("1", 100) + `"`: "Invalid cursor",
	} {
		body := query(h, `{blockchain{blocks(`+args+`){edges{cursor}}}}`, nil)
		quoted, _ := json.Marshal(message)
		equal(t, args, body, `{"data":{"blockchain":{"blocks":null}},"errors":[{"message":`+string(quoted)+
			`,"locations":[{"line":1,"column":13}],"path":["blockchain","blocks"],`+
			`"extensions":{"code":"BAD_USER_INPUT"}}]}`)
	}
}

// A connection is a decoded page, as clients receive it.
type connection struct {
	Edges []struct {
		Cursor string
		Node   struct {
			Hash  string
			Order string `json:"chain_order"`
		}
	}
	PageInfo struct {
		StartCursor, EndCursor       string
		HasNextPage, HasPreviousPage bool
	}
}

func (c connection) cursors() []string {
	cursors := []string{}
	for _, e := range c.Edges {
		cursors = append(cursors, e.Cursor)
	}
	return cursors
}

// askPage queries a page and passes args as variables.
func askPage(t *testing.T, h *chaingql.Handler, args map[string]any) connection {
	t.Helper()
	const document = `query($workchain:Int $shard:String $first:Int $after:String $last:Int $before:String){
		blockchain{blocks(workchain:$workchain shard:$shard first:$first after:$after last:$last before:$before){
		edges{cursor node{hash chain_order}} pageInfo{startCursor endCursor hasNextPage hasPreviousPage}
	}}
	}`
	r := parse(t, query(h, document, args))
	if len(r.Errors) > 0 {
		t.Fatalf("the query for page %v failed: %+v", args, r.Errors)
	}
	var data struct {
		Blockchain struct{ Blocks connection }
	}
	if err := json.Unmarshal(r.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data.Blockchain.Blocks
}

func cursorsOf(blocks []chaingql.Block) []string {
	cursors := []string{}
	for _, b := range blocks {
		cursors = append(cursors, string(b.Cursor))
	}
	return cursors
}

func TestPagesOfRandomChainsMatchPageOf(t *testing.T) {
	for _, size := range []int{0, 1, 50, 51, 170} {
		if raceEnabled && size > 51 {
			continue // these pages are read in the same way
		}
		blocks := randomBlocks(uint64(size), size)
		h, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{})
		places := []any{nil, "", string(chaingql.SeqCursor(1)), string(chaingql.SeqCursor(1e6))}
		for i := 0; i < size; i += 1 + size/3 {
			places = append(places, string(blocks[i].Cursor), string(chaingql.SeqCursor(uint64(10*i+15))))
		}
		for _, where := range []struct {
			workchain, shard any
			matches          func(chaingql.Block) bool
		}{
			{nil, nil, func(chaingql.Block) bool { return true }},
			{-1, nil, func(b chaingql.Block) bool { return b.Workchain == -1 }},
			{0, nil, func(b chaingql.Block) bool { return b.Workchain == 0 }},
			{0, "C000000000000000", func(b chaingql.Block) bool {
				return b.Workchain == 0 && b.Shard == 0xc000000000000000
			}},
			{nil, "8000000000000000", func(b chaingql.Block) bool { return b.Shard == wholeShard }},
			{0, "2000000000000000", func(chaingql.Block) bool { return false }},
			{99, nil, func(chaingql.Block) bool { return false }},
		} {
			var matching []chaingql.Block
			for _, b := range blocks {
				if where.matches(b) {
					matching = append(matching, b)
				}
			}
			for _, place := range places {
				for _, count := range []any{nil, 1, 49, 50, 51, 2147483647} {
					args := map[string]any{"workchain": where.workchain, "shard": where.shard}
					cursor, given := place.(string)
					n, asked := count.(int)
					if n = min(n, 50); !asked {
						n = 50
					}
					forward := args
					if asked {
						forward = with(args, "first", count)
					}
					if given || asked {
						q := chaingql.BlocksQuery{After: chaingql.Cursor(cursor), First: 1000}
						all := chaingql.PageOf(matching, q)
						checkPage(t, h, with(forward, "after", place), all[:min(n, len(all))], len(all) > n, false)
					}
					backward := args
					if asked {
						backward = with(args, "last", count)
					}
					all := chaingql.PageOf(matching, chaingql.BlocksQuery{Before: chaingql.Cursor(cursor), Last: 1000})
					checkPage(t, h, with(backward, "before", place), all[max(0, len(all)-n):], false, len(all) > n)
				}
			}
		}
	}
}

func with(args map[string]any, name string, value any) map[string]any {
	more := map[string]any{name: value}
	for k, v := range args {
		more[k] = v
	}
	return more
}

func checkPage(t *testing.T, h *chaingql.Handler, args map[string]any, want []chaingql.Block, next, previous bool) {
	t.Helper()
	c := askPage(t, h, args)
	if !slices.Equal(c.cursors(), cursorsOf(want)) {
		t.Fatalf("page %v has the blocks %v, want %v", args, c.cursors(), cursorsOf(want))
	}
	for i, e := range c.Edges {
		if e.Node.Hash != want[i].Hash.String() || e.Node.Order != e.Cursor {
			t.Fatalf("page %v has a wrong edge %d: %+v", args, i, e)
		}
	}
	first, last := "", ""
	if len(want) > 0 {
		first, last = string(want[0].Cursor), string(want[len(want)-1].Cursor)
	}
	p := c.PageInfo
	if p.StartCursor != first || p.EndCursor != last || p.HasNextPage != next || p.HasPreviousPage != previous {
		t.Fatalf("page %v has pageInfo %+v, want %q, %q, %v, %v", args, p, first, last, next, previous)
	}
}

func TestPagingReturnsEveryBlockOnce(t *testing.T) {
	blocks := randomBlocks(3, 333)
	h, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{})
	want := cursorsOf(blocks)
	for _, size := range []int{1, 7, 37, 50, 333} {
		var up, down []string
		for args := map[string]any{"first": size}; ; {
			c := askPage(t, h, args)
			up = append(up, c.cursors()...)
			if !c.PageInfo.HasNextPage {
				break
			}
			args["after"] = c.PageInfo.EndCursor
		}
		for args := map[string]any{"last": size}; ; {
			c := askPage(t, h, args)
			down = append(c.cursors(), down...)
			if !c.PageInfo.HasPreviousPage {
				break
			}
			args["before"] = c.PageInfo.StartCursor
		}
		if !slices.Equal(up, want) || !slices.Equal(down, want) {
			t.Errorf("pages of %d have %d blocks forwards and %d backwards, want %d",
				size, len(up), len(down), len(want))
		}
	}
}

func TestCursorTooOldErrorHasTheOldestCursor(t *testing.T) {
	blocks := randomBlocks(4, 20)
	chain := chainOf(t, blocks)
	chain.Prune(blocks[10].Cursor)
	h, _ := newHandler(t, chain, chaingql.Options{})
	ask := func(cursor chaingql.Cursor) string {
		const document = `query($c:String){blockchain{blocks(first:2,after:$c){edges{cursor}}}}`
		return query(h, document, map[string]any{"c": cursor})
	}
	tooOld := fmt.Sprintf(`{"data":{"blockchain":{"blocks":null}},"errors":[{`+
		`"message":"The blocks after this cursor are no longer kept.","locations":[{"line":1,"column":29}],`+
		`"path":["blockchain","blocks"],"extensions":{"code":"CURSOR_TOO_OLD","oldest":%q}}]}`, blocks[10].Cursor)
	equal(t, "after a pruned block", ask(blocks[8].Cursor), tooOld)
	want := fmt.Sprintf(`{"data":{"blockchain":{"blocks":{"edges":[{"cursor":%q},{"cursor":%q}]}}}}`,
		blocks[10].Cursor, blocks[11].Cursor)
	equal(t, "the newest pruned block", ask(blocks[9].Cursor), want)
	equal(t, "no cursor", ask(""), want)

	chain.Prune("ffff")
	if oldest := parse(t, ask(blocks[1].Cursor)).Errors[0].Extensions["oldest"]; oldest != string(blocks[19].Cursor) {
		t.Errorf("the oldest block is %v, want the newest block, which is never pruned", oldest)
	}
}

// An emptiedBackend has pruned all its blocks, which the Backend contract forbids.
type emptiedBackend struct{ *memchain.Chain }

func (b emptiedBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if q.After != "" {
		return nil, chaingql.ErrCursorTooOld
	}
	return nil, ctx.Err()
}

func TestCursorTooOldErrorOfAnEmptyChainHasNoCursor(t *testing.T) {
	h, _ := newHandler(t, emptiedBackend{memchain.New()}, chaingql.Options{})
	r := parse(t, query(h, `{blockchain{blocks(first:2,after:"01m"){edges{cursor}}}}`, nil))
	equal(t, "code", r.code(), "CURSOR_TOO_OLD")
	if oldest, ok := r.Errors[0].Extensions["oldest"]; ok {
		t.Errorf("the error names the oldest block %v of an empty chain", oldest)
	}
}

func TestPagesOfOneRequestHaveTheirOwnPageInfo(t *testing.T) {
	chain := chainOf(t, randomBlocks(35, 20))
	h, _ := newHandler(t, chain, chaingql.Options{})
	const parts = `{pageInfo{hasNextPage hasPreviousPage}}`
	const document = `{blockchain{a:blocks(first:1)` + parts + ` b:blocks(last:1)` + parts +
		` c:blocks(first:1,workchain:77)` + parts + ` d:blocks(last:2)` + parts + `}}`
	equal(t, "pages", query(h, document, nil), `{"data":{"blockchain":{`+
		`"a":{"pageInfo":{"hasNextPage":true,"hasPreviousPage":false}},`+
		`"b":{"pageInfo":{"hasNextPage":false,"hasPreviousPage":true}},`+
		`"c":{"pageInfo":{"hasNextPage":false,"hasPreviousPage":false}},`+
		`"d":{"pageInfo":{"hasNextPage":false,"hasPreviousPage":true}}}}}`)
}
