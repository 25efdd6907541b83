package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// subscribeAll subscribes to all blocks on a socket, so that the Handler answers from its window after the next block.
func subscribeAll(t *testing.T, h *chaingql.Handler) {
	t.Helper()
	serve(t, mounted(h)).socket(t).send(start("1", allBlocks))
	synctest.Wait()
}

func TestPageWithAGapIsNotImmutableAndHasNoETag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := minute(100)
		missing := blocks[30].Cursor
		s := newGappyChain(t, blocks[:60], missing)
		s.permanent = true
		h, _ := newHandler(t, s, chaingql.Options{})
		subscribeAll(t, h)
		commit(t, s.Chain, blocks[60:]...)
		synctest.Wait()
		pages := []string{
			fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(28)),           // in the middle
			fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(30)),           // at the beginning
			fmt.Sprintf(`{blockchain{blocks(after:%q,before:%q){edges{cursor}}}}`, at(28), at(32)), // at the end
			fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(34)),
			fmt.Sprintf(`{blockchain{blocks(workchain:0,first:2,after:%q){edges{cursor}}}}`, at(30)),
		}
		for _, page := range pages {
			w := get(h, page)
			if strings.Contains(caching(w), "immutable") || w.Header().Get("ETag") != "" {
				t.Errorf("%s has Cache-Control %s and ETag %q", page, caching(w), w.Header().Get("ETag"))
			}
			if strings.Contains(w.Body.String(), string(missing)) {
				t.Fatalf("%s has the missing block", page)
			}
		}
		s.permanent = false
		for _, page := range pages {
			if w := get(h, page); !strings.Contains(w.Body.String(), `"`+string(missing)+`"`) {
				t.Errorf("%s lacks a block that was stored late: %s", page, w.Body)
			}
		}
		after := fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(36))
		equal(t, "a page after the gap", caching(get(h, after)), immutable)
	})
}

func TestPageIsImmutableOnceAllShardsShowThatItIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Shard b is quiet for longer than a page takes to settle, and Follow skips its block within the page.
		blocks := weave(strings.Repeat("mab", 5) + "mamabma" +
			strings.Repeat("mma", 40) + "b" + strings.Repeat("ma", 5))
		find := func(seqNo uint32) int {
			return slices.IndexFunc(blocks, func(b chaingql.Block) bool {
				return b.Shard == 0xc000000000000000 && b.SeqNo == seqNo
			})
		}
		left, next := find(6), find(7)
		s := newGappyChain(t, blocks[:15], blocks[left].Cursor)
		h, _ := newHandler(t, s, chaingql.Options{})
		subscribeAll(t, h)
		commit(t, s.Chain, blocks[15:next]...)
		synctest.Wait()
		around := fmt.Sprintf(`after:%q,before:%q){edges{cursor}}}}`, blocks[left-3].Cursor, blocks[left+3].Cursor)
		all, shards := `{blockchain{blocks(`+around, `{blockchain{blocks(workchain:0,`+around
		master := `{blockchain{blocks(workchain:-1,` + around
		tags := map[string]string{}
		for page, final := range map[string]bool{all: false, shards: false, master: true} {
			w := get(h, page)
			equal(t, page+" is immutable", caching(w) == immutable, final)
			tags[page] = w.Header().Get("ETag")
			w = get(h, page, "If-None-Match", tags[page])
			equal(t, page+" is known", w.Code, 304)
		}
		commit(t, s.Chain, blocks[next]) // reveals the gap
		synctest.Wait()
		for page, status := range map[string]int{all: 200, shards: 200, master: 304} {
			w := get(h, page, "If-None-Match", tags[page])
			equal(t, page+" after the gap was found", w.Code, status)
			if status == 200 && !strings.Contains(w.Body.String(), string(blocks[left].Cursor)) {
				t.Errorf("%s lacks the block that Follow skipped: %s", page, w.Body)
			}
			equal(t, page+" is immutable now", caching(w), immutable)
		}
	})
}

// To prove that a page is complete takes much longer than to read it, so this is done for one page of a response.
func TestResponseWithSeveralPagesIsNotImmutable(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		page := fmt.Sprintf(`blocks(after:%q,before:%q){edges{cursor}}`, at(3), at(20))
		empty := fmt.Sprintf(`blocks(after:%q,before:%q){edges{cursor}}`, at(3), at(4))
		block := fmt.Sprintf(`block(hash:"%s"){seq_no}`, minute(11)[10].Hash)
		for fields, want := range map[string]string{
			page: immutable, empty: immutable, page + " " + block: immutable,
			"a:" + page + " b:" + page: "public, max-age=2", "a:" + empty + " b:" + empty: "public, max-age=2",
		} {
			w := get(h, "{blockchain{"+fields+"}}")
			equal(t, fields, caching(w), want)
			again := get(h, "{blockchain{"+fields+"}}", "If-None-Match", w.Header().Get("ETag"))
			equal(t, "status of "+fields+" with its ETag", again.Code, 304)
		}
	})
}

// A repaired gap changes pages of its workchain, although the newest block stays the same.
func TestETagChangesWhenAGapIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mababmm")
		merged := chaingql.Block{Shard: wholeShard, SeqNo: 3, Time: blocks[6].Time, Cursor: chaingql.SeqCursor(8)}
		then := chaingql.Block{Workchain: -1, Shard: wholeShard, SeqNo: 4, Cursor: chaingql.SeqCursor(9)}
		s := newGappyChain(t, blocks[:3], blocks[3].Cursor)
		down := true
		h, _ := newHandler(t, failingPages(s, func(q chaingql.BlocksQuery) error {
			if q.Before != "" && down {
				return errors.New("down")
			}
			return nil
		}), chaingql.Options{})
		subscribeAll(t, h)
		// Follow skips the second block of shard a. The merged shard's block does not reveal this.
		commit(t, s.Chain, append(blocks[3:], merged)...)
		time.Sleep(10 * time.Second)
		const page = `{blockchain{blocks(workchain:0,last:3){edges{cursor}}}}`
		w := get(h, page)
		tag := w.Header().Get("ETag")
		equal(t, "before", get(h, page, "If-None-Match", tag).Code, 304)
		if strings.Contains(w.Body.String(), string(blocks[3].Cursor)) || tag == "" {
			t.Fatalf("before the repair, the ETag is %q and the page is %s", tag, w.Body)
		}
		down = false
		time.Sleep(10 * time.Second)
		commit(t, s.Chain, then) // of another workchain
		time.Sleep(time.Second)
		w = get(h, page, "If-None-Match", tag)
		equal(t, "after the repair", w.Code, 200)
		if !strings.Contains(w.Body.String(), string(blocks[3].Cursor)) {
			t.Errorf("after the repair, the page still lacks the block: %s", w.Body)
		}
	})
}

// Each Handler knows only the gaps that it has found itself, so the ETag of a page is valid only for the Handler that
// sent it.
func TestPageETagIsSpecificToOneHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := minute(60)
		chain := chainOf(t, blocks[:59])
		one, _ := newHandler(t, chain, chaingql.Options{})
		other, _ := newHandler(t, chain, chaingql.Options{})
		subscribeAll(t, one)
		subscribeAll(t, other)
		commit(t, chain, blocks[59])
		synctest.Wait()
		for document, status := range map[string]int{masterLatest: 200, askRich: 304} {
			tag := get(one, document).Header().Get("ETag")
			equal(t, document+" of the same Handler", get(one, document, "If-None-Match", tag).Code, 304)
			equal(t, document+" of another Handler", get(other, document, "If-None-Match", tag).Code, status)
		}
	})
}

// A changingChain is a chain that calls change before it reads a balance.
type changingChain struct {
	*memchain.Chain
	change func()
}

func (c *changingChain) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	c.change()
	return c.Chain.Balance(ctx, a)
}

// If a block arrives during a request, the response must not have the ETag of a response from before the block.
func TestResponseProducedWhileABlockArrivesIsNotCacheable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := minute(64)
		c := &changingChain{Chain: chainOf(t, blocks[:60]), change: func() {}}
		h, _ := newHandler(t, c, chaingql.Options{})
		subscribeAll(t, h)
		commit(t, c.Chain, blocks[60])
		synctest.Wait()
		before := get(h, askRich)
		c.change = func() {
			rich, err := chaingql.ParseAddress("-1:" + strings.Repeat("3", 64))
			if err != nil {
				t.Error(err)
			}
			c.SetBalance(rich, big.NewInt(7))
			commit(t, c.Chain, blocks[61:]...)
			time.Sleep(time.Nanosecond) // until the Handler has received them
			c.change = func() {}
		}
		meanwhile, after := get(h, askRich), get(h, askRich)
		if before.Body.String() == meanwhile.Body.String() || meanwhile.Body.String() != after.Body.String() {
			t.Fatalf("the responses before, meanwhile and after are %s, %s, %s",
				before.Body, meanwhile.Body, after.Body)
		}
		tag := before.Header().Get("ETag")
		if tag == "" || tag == meanwhile.Header().Get("ETag") || tag == after.Header().Get("ETag") {
			t.Errorf("the ETags before, meanwhile and after are %q, %q, %q",
				tag, meanwhile.Header().Get("ETag"), after.Header().Get("ETag"))
		}
		equal(t, "Cache-Control of the response in between", caching(meanwhile), "no-store")
	})
}
