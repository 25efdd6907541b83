package chaingql_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

type infoSeen struct {
	Version       string
	Time          int64
	Latency       int64
	BlocksLatency int64
	LastBlockTime *int64
	Endpoints     []string
	RempEnabled   *bool
}

func askInfo(t *testing.T, h *chaingql.Handler) infoSeen {
	t.Helper()
	r := parse(t, query(h, `{info{version time latency blocksLatency lastBlockTime endpoints rempEnabled}}`, nil))
	if len(r.Errors) > 0 {
		t.Fatalf("the query for info failed: %+v", r.Errors)
	}
	var data struct{ Info infoSeen }
	if err := json.Unmarshal(r.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data.Info
}

func TestInfoDescribesTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := memchain.New()
		h, _ := newHandler(t, chain, chaingql.Options{})
		i := askInfo(t, h)
		equal(t, "version", i.Version, chaingql.Version)
		equal(t, "time", i.Time, time.Now().UnixMilli())
		equal(t, "endpoints", fmt.Sprint(i.Endpoints), "[example.com/demo/graphql]")
		equal(t, "latency of an empty chain", i.Latency, 0)
		equal(t, "REMP", *i.RempEnabled, false)
		if i.LastBlockTime != nil {
			t.Errorf("an empty chain has a last block at %d", *i.LastBlockTime)
		}
		for n := range uint32(3) {
			b := chaingql.Block{
				Workchain: -1, SeqNo: n, Time: time.UnixMilli(1_700_000_000_000 + int64(n)),
				Cursor: chaingql.SeqCursor(uint64(2*n + 1)),
			}
			later := chaingql.Block{
				Workchain: 0, SeqNo: n, Time: b.Time.Add(time.Hour),
				Cursor: chaingql.SeqCursor(uint64(2*n + 2)),
			}
			if err := chain.Append(b, later); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		equal(t, "time of the newest masterchain block", *askInfo(t, h).LastBlockTime, 1_700_000_000_002)
	})
}

func TestEndpointsComeFromOptionsOrRequest(t *testing.T) {
	for _, c := range []struct {
		given []string
		want  string
	}{
		{nil, "[example.com/demo/graphql]"},
		{[]string{}, "[example.com/demo/graphql]"},
		{[]string{"a.example/x", "b.example/y"}, "[a.example/x b.example/y]"},
	} {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Endpoints: c.given})
		if len(c.given) > 0 {
			c.given[0] = "changed later"
		}
		equal(t, "endpoints", fmt.Sprint(askInfo(t, h).Endpoints), c.want)
	}
}

// The chain has a block every three seconds, and then none.
func TestInfoLatencyGrowsWhenBlocksAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := memchain.New()
		h, _ := newHandler(t, chain, chaingql.Options{})
		n := uint32(0)
		commit := func(generated time.Time) {
			n++
			b := chaingql.Block{Workchain: -1, SeqNo: n, Time: generated, Cursor: chaingql.SeqCursor(uint64(n))}
			if err := chain.Append(b); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		usual := func() {
			t.Helper()
			for range 3 {
				i := askInfo(t, h)
				equal(t, "latency at the usual pace", [2]int64{i.Latency, i.BlocksLatency}, [2]int64{0, 0})
				time.Sleep(time.Second)
			}
		}
		commit(time.Now().Add(-3 * time.Second)) // a single block has no pace
		askInfo(t, h)                            // starts the stream
		synctest.Wait()
		for range 20 {
			commit(time.Now())
			usual()
		}
		for late := range 5 {
			i := askInfo(t, h)
			want := [2]int64{int64(late) * 1000, int64(late) * 1000}
			equal(t, "latency of a late block", [2]int64{i.Latency, i.BlocksLatency}, want)
			time.Sleep(time.Second)
		}
		// A constant delay between generation and arrival is not latency.
		for i := range 20 {
			commit(time.Now().Add(-time.Hour))
			if i > 10 {
				usual()
			} else {
				time.Sleep(3 * time.Second)
			}
		}
	})
}

func TestInfoLatencyGrowsWhileFollowIsStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 10 * time.Second
		var stalled chaingql.Cursor
		blocks := weave(strings.Repeat("m", 100))
		for i := range blocks {
			blocks[i].Time = time.Now().Add(time.Duration(i-30) * time.Second)
		}
		stalled = blocks[40].Cursor
		l := laggingChain{
			&pageCounter{Chain: chainOf(t, blocks[:30])},
			func() chaingql.Cursor { return stalled },
			make(chan struct{}),
		}
		h, _ := newHandler(t, l, chaingql.Options{StallTimeout: silence})
		askInfo(t, h)
		synctest.Wait()
		tick := func(from, to int) {
			for i := from; i < to; i++ {
				time.Sleep(time.Until(blocks[i].Time))
				commit(t, l.Chain, blocks[i])
				synctest.Wait()
			}
		}
		tick(30, 41)
		equal(t, "latency while all is well", askInfo(t, h).Latency, 0)
		tick(41, 50)
		equal(t, "latency before StallTimeout has passed", askInfo(t, h).Latency, 8_000)
		tick(50, 60)
		i := askInfo(t, h)
		equal(t, "latency during a stall, although the Backend has new blocks", i.Latency, 18_000)
		equal(t, "time of the newest block, from the Backend", *i.LastBlockTime, blocks[59].Time.UnixMilli())
		stalled = blocks[99].Cursor
		l.more <- struct{}{}
		synctest.Wait()
		equal(t, "latency after a block", askInfo(t, h).Latency, 0)
		l.Interrupt(nil)
		synctest.Wait()
		time.Sleep(90 * time.Millisecond) // a little less than the time until Follow is called again
		if got := askInfo(t, h).Latency; got > 90 {
			t.Errorf("90 ms after Follow has failed, the latency is %d ms", got)
		}
	})
}
