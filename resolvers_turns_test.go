package chaingql_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// Calls of a client do not wait for the hundreds of calls of another one.
func TestClientsReceiveSlotsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20 * time.Millisecond
		h, _ := newHandler(t, slowBalances(each), chaingql.Options{Limits: chaingql.Limits{InFlight: 2}})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				equal(t, "status", postFrom(h, fmt.Sprintf("192.0.2.1:%d", 1000+i), body(manyBalances(10), nil)), 200)
			})
		}
		time.Sleep(each / 2)
		began := time.Now()
		equal(t, "status", postFrom(h, "192.0.2.2:80", body(manyBalances(20), nil)), 200)
		if took := time.Since(began); took > 2*20*each { // 20 calls alone take half as long
			t.Errorf("20 calls took %v while another client had 100 queries in progress", took)
		}
		all.Wait()
	})
}

// postFrom sends a query from a network address, and returns the status of the response.
func postFrom(h http.Handler, remote, body string) int {
	r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(body))
	r.RemoteAddr = remote
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestSharedReadDoesNotWaitInTheTurnOfItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, slowDisk{memchain.New()}, chaingql.Options{
			Limits: chaingql.Limits{InFlight: 8}, WindowSize: -1})
		for i := range 30 {
			go postFrom(h, "192.0.2.1:80", pageOf(i))
			synctest.Wait()
		}
		began := time.Now()
		equal(t, "status", postFrom(h, "192.0.2.2:80", pageOf(29)), 200)
		equal(t, "time of a page that another client requested after 29 others", time.Since(began), 2*time.Second)
	})
}
