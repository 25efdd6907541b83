package chain_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	client "github.com/chaingql/chaingql/examples/clients/go"
)

// collect returns a function that records blocks, and a function that waits until n blocks are recorded and returns
// their cursors.
func collect(t *testing.T) (each func(client.SDKBlock), wait func(n int) []string) {
	cursors, ctx := make(chan string, 10_000), soon(t)
	var got []string
	return func(b client.SDKBlock) { cursors <- b.ChainOrder }, func(n int) []string {
		t.Helper()
		for len(got) < n {
			select {
			case c := <-cursors:
				got = append(got, c)
			case <-ctx.Done():
				t.Fatalf("received only %d of %d blocks", len(got), n)
			}
		}
		return got
	}
}

// neverEnded returns a function that fails the test if it is called.
func neverEnded(t *testing.T) func(error) {
	return func(err error) { t.Errorf("the subscription ended: %v", err) }
}

func TestFollowFromDropsRepeatedBlocks(t *testing.T) {
	s := serve(t)
	s.grow(100)
	sdk := newModelSDK(t, s.address, func(int) {})
	each, wait := collect(t)
	unsubscribe, err := client.FollowFrom(sdk, "", each, neverEnded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unsubscribe()
	for n := 200; n < 260; n += 20 {
		wait(n)
		s.restart()
		s.grow(10)
	}
	got := wait(260)
	if !slices.Equal(got, s.cursors(all)) {
		t.Errorf("the %d received blocks differ from those of the chain", len(got))
	}
	if repeated := sdk.events.Load() - 260; repeated < 200 {
		t.Errorf("the service repeated %d blocks after three restarts, want at least 200", repeated)
	}
}

func TestFollowFromEndsIfCursorIsPruned(t *testing.T) {
	s := serve(t)
	s.grow(10)
	sdk := newModelSDK(t, s.address, func(int) {})
	each, wait := collect(t)
	ended := make(chan error, 1)
	after := s.cursors(all)[0]
	if _, err := client.FollowFrom(sdk, after, each, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	wait(19)
	s.chain.Prune(chaingql.Cursor(s.cursors(all)[10]))
	s.restart() // the SDK subscribes again with the pruned cursor
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "608") {
			t.Errorf("the subscription ended with %v, want code 608", err)
		}
	case <-soon(t).Done():
		t.Error("the subscription continues although its cursor is too old")
	}
}

func TestFollowNewReadsBlocksMissedDuringInterruption(t *testing.T) {
	s := serve(t)
	s.grow(5)
	have := s.cursors(all)
	var growing sync.Mutex
	grow := func(rounds int) {
		growing.Lock()
		defer growing.Unlock()
		s.grow(rounds)
	}
	line := newBadLine(t, s.address, 5_000, 20_000, false) // queries are cut too
	sdk := newModelSDK(t, line.Addr().String(), func(connection int) {
		if connection > 0 {
			grow(60) // more than a page of blocks, which no subscription receives
		}
	})
	each, wait := collect(t)
	unsubscribe, err := client.FollowNew(t.Context(), sdk, have[len(have)-1], each, neverEnded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unsubscribe()
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() {
		for ctx.Err() == nil {
			grow(1)
			time.Sleep(2 * time.Millisecond) // interval of new blocks
		}
	})
	n := 0
	for range 3 {
		n = len(wait(n + 100))
		s.restart()
	}
	got := wait(n + 200)
	stop()
	running.Wait()
	if want := s.cursors(all)[len(have):]; !slices.Equal(got, want[:len(got)]) {
		t.Errorf("the %d received blocks differ from those of the chain", len(got))
	}
	if read := int64(len(got)) - sdk.events.Load(); read < 100 {
		t.Errorf("%d blocks were read after interruptions, want at least 100", read)
	}
}
