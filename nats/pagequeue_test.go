package natschain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// A holdingReads dials connections that receive nothing while its mutex is locked.
type holdingReads struct{ sync.RWMutex }

type heldReads struct {
	net.Conn
	*holdingReads
}

func (h *holdingReads) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return heldReads{conn, h}, err
}

func (c heldReads) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.RLock()
	defer c.RUnlock()
	return n, err
}

// TestResponsesInFlightForPagesAreBounded requests pages of large messages while no response arrives. The server must
// not be asked for more than 2 MiB at the same time. Reads of one block must not wait for the pages. When responses
// arrive again, all pages must follow.
func TestResponsesInFlightForPagesAreBounded(t *testing.T) {
	s, all := newBroker(t), numbered(1, 60)
	open(t, s.ClientURL(), nil)
	js, prev := raw(t, s.ClientURL()), chaingql.Cursor("")
	for i := range all {
		text := payloadOf(&all[i])
		text = fmt.Appendf(text[:len(text)-1], `,"prev":%q,"more":"%s"}`, prev, bytes.Repeat([]byte("0"), 16_000))
		if _, err := js.Publish(t.Context(), subjectOf(&all[i]), text); err != nil {
			t.Fatal(err)
		}
		prev = all[i].Cursor
	}
	reads := &holdingReads{}
	b := open(t, s.ClientURL(),
		&natschain.Options{Timeout: time.Minute, Connect: []nats.Option{nats.SetCustomDialer(reads)}})
	expectPage(t, b, chaingql.BlocksQuery{First: 60}, all)
	subscribe := func(subject string) *nats.Subscription {
		sub, err := js.Conn().SubscribeSync(subject)
		if err == nil {
			err = js.Conn().FlushTimeout(patience)
		}
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	batches, singles := subscribe("$JS.API.DIRECT.GET.chain_blocks"), subscribe("$JS.API.STREAM.MSG.GET.chain_blocks")
	var pages sync.WaitGroup
	reads.Lock()
	for range 8 {
		pages.Go(func() {
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 50, After: all[4].Cursor})
			if err != nil || !slices.Equal(page, all[5:55]) {
				t.Errorf("page of 50 blocks: got %d blocks and error %v", len(page), err)
			}
		})
	}
	requested := 0
	for wait := patience; ; wait = 100 * time.Millisecond {
		if _, err := batches.NextMsg(wait); err != nil {
			break
		}
		requested += 50 * 16_000
	}
	if requested == 0 || requested > 2<<20 {
		t.Errorf("requested %d bytes at the same time, want 1 to %d", requested, 2<<20)
	}
	for range 2 {
		pages.Go(func() { expectPage(t, b, chaingql.BlocksQuery{Last: 1}, all[59:]) })
		if _, err := singles.NextMsg(patience); err != nil {
			t.Errorf("a read of one block waits for the pages: %v", err)
		}
	}
	reads.Unlock()
	pages.Wait()
}

// TestPagesWaitInTurn lets pages of 1 MB enter, one after another. Only two of them may be read at the same time, and
// the others must follow in order. A page that waits for more than three quarters of the timeout must fail.
func TestPagesWaitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := natschain.Bare(nil, nil)
		b.Received(10_000)
		var mu sync.Mutex
		var order []int
		failed := 0
		read := func(i, n int, d time.Duration) {
			leave, err := b.EnterPage(t.Context(), chaingql.BlocksQuery{First: n})
			mu.Lock()
			if err == nil {
				order = append(order, i)
			} else if failed++; !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("a page that waited too long: got error %v, want ErrUnavailable", err)
			}
			mu.Unlock()
			if err == nil {
				time.Sleep(d)
				leave()
				leave() // a page that searches leaves earlier
			}
		}
		var pages sync.WaitGroup
		began := time.Now()
		for i := range 10 {
			d := time.Second
			if i == 0 { // so that no two pages end at the same time
				d /= 2
			}
			pages.Go(func() { read(i, 200, d) })
			synctest.Wait()
		}
		if read(100, 1, 0); time.Since(began) > 0 {
			t.Errorf("a page of one block waited %v", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.EnterPage(ctx, chaingql.BlocksQuery{First: 2}); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled call: got error %v, want context.Canceled", err)
		}
		pages.Wait()
		if want := []int{0, 1, 100, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(order, want) || failed != 1 {
			t.Errorf("pages entered in the order %d, and %d failed; want the order %d and 1 failure",
				order, failed, want)
		}
	})
}

// TestPagesForSubscriptionsOvertakePages lets a page for subscriptions enter while ten pages of clients wait. It must
// wait for at most one of those.
func TestPagesForSubscriptionsOvertakePages(t *testing.T) {
	marked := forSubscriptions(t)
	synctest.Test(t, func(t *testing.T) {
		b := natschain.Bare(nil, nil)
		b.Received(10_000)
		var pages sync.WaitGroup
		defer pages.Wait()
		for range 12 { // two of them fit at a time
			pages.Go(func() {
				if leave, err := b.EnterPage(t.Context(), chaingql.BlocksQuery{First: 200}); err == nil {
					time.Sleep(time.Second)
					leave()
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		leave, err := b.EnterPage(marked, chaingql.BlocksQuery{First: 100})
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the page for subscriptions waited %v, want at most 1s", waited)
		}
	})
}

// TestWaitingSearchesDoNotDelayPages fills the search queue with long pages of a chain without an index. Other pages
// must not wait for them.
func TestWaitingSearchesDoNotDelayPages(t *testing.T) {
	all := uneven(2_000)
	s, _, _ := indexedChain(t, all)
	if err := raw(t, s.ClientURL()).DeleteStream(t.Context(), "chain_index"); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), &natschain.Options{Timeout: patience})
	end, err := b.Search(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, workchain := make(chan error, 17), int32(6)
	for range cap(ended) {
		go func() {
			_, err := b.Blocks(ctx, chaingql.BlocksQuery{Workchain: &workchain, Last: 300})
			ended <- err
		}()
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many searches") { // the others wait
		t.Errorf("search above the limit: got error %v, want one because of too many searches", err)
	}
	expectPage(t, b, chaingql.BlocksQuery{First: 1000}, all[:1000])
	cancel()
	for range 16 {
		<-ended
	}
	end()
}
