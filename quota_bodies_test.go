package chaingql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestShutdownWaitsForSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
		w := serve(t, h).wire(t)
		w.post("/demo/graphql", request802[:10], len(request802))
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- h.Shutdown(t.Context()) }()
		time.Sleep(time.Second)
		select {
		case <-down:
			t.Error("Shutdown returned before the response was sent")
		default:
		}
		if _, err := w.Write([]byte(request802[10:])); err != nil {
			t.Fatal(err)
		}
		status, _ := w.response()
		equal(t, "status", status, 200)
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

func TestOldestIncompleteBodiesAreEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{
			Limits: chaingql.Limits{PendingBodyBytes: 64 << 10},
			Hooks:  d.limitHook(),
		})
		n := serve(t, h)
		slow := make([]*wire, 20) // each counts as at least 4 KiB, so 16 fit
		for i := range slow {
			slow[i] = n.wire(t)
			slow[i].post("/demo/graphql", "{", 1000)
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		w := n.wire(t)
		w.post("/demo/graphql", request802, len(request802))
		status, _ := w.response()
		equal(t, "status of an honest query", status, 200)
		for i, w := range slow {
			status, body := w.response()
			if i < 5 {
				equal(t, "status of a slow body", status, 503)
				equal(t, "body", body, refusalBody("Too many bodies at once.", "SERVICE_UNAVAILABLE"))
				equal(t, "time", time.Since(began), 0)
			} else {
				equal(t, "status of a slow body that had room", status, 408)
			}
		}
		want := slices.Repeat([]string{"PendingBodyBytes"}, 5)
		d.expect(t, "limits", append(want, slices.Repeat([]string{"BodyTimeout"}, 15)...)...)
	})
}

func TestLargeBodiesDoNotEndSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{PendingBodyBytes: 64 << 10}})
		n := serve(t, h)
		slow := n.wire(t)
		slow.post("/demo/graphql", request802[:100], len(request802))
		synctest.Wait()
		for range 9 {
			time.Sleep(100 * time.Millisecond)
			n.wire(t).post("/demo/graphql", strings.Repeat(" ", 30_000), 100_000)
			synctest.Wait()
		}
		if _, err := slow.Write([]byte(request802[100:])); err != nil {
			t.Fatal(err)
		}
		status, _ := slow.response()
		equal(t, "status of a small body that takes 0.9 s", status, 200)
	})
}

// Clients with many large bodies have their own ended, not the large ones of others that arrive slowly.
func TestBodiesOfClientsWithManyAreEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{PendingBodyBytes: 1 << 20}})
		n := serve(t, addressed(h))
		begin := func(address, part string, size int) *wire {
			w := n.wire(t)
			w.post("/demo/graphql", part, size, "X-Forwarded-For: "+address)
			synctest.Wait()
			return w
		}
		large := strings.Repeat(" ", 120_000)
		for i := range 9 {
			begin(fmt.Sprintf("192.0.2.%d", i%3), large, 125_000)
		}
		padded := strings.Repeat(" ", 30_000) + request802
		slow := begin("192.0.2.9", padded[:1000], len(padded))
		for i := range 60 {
			time.Sleep(30 * time.Millisecond)
			begin(fmt.Sprintf("192.0.2.%d", i%3), large, 125_000)
		}
		if _, err := slow.Write([]byte(padded[1000:])); err != nil {
			t.Fatal(err)
		}
		status, _ := slow.response()
		equal(t, "status of a body of 30 kB that takes 1.8 s", status, 200)
	})
}

func TestArrivingBodyCountsWithItsCurrentSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{PendingBodyBytes: 64 << 10}})
		n := serve(t, h)
		first, second := n.wire(t), n.wire(t)
		first.post("/demo/graphql", strings.Repeat(" ", 30_000), 100_000)
		synctest.Wait()
		second.post("/demo/graphql", strings.Repeat(" ", 50_000), 100_000)
		status, _ := first.response()
		equal(t, "status of the slowest", status, 503)
	})
}
