package chaingql_test

import (
	"bytes"
	"io"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"unsafe"
)

// If a query needs a larger stack than the connection's goroutine has, the runtime copies the stack, and the next
// garbage collection makes it small again. For queries that take microseconds, that costs several percent.
func TestQueryDoesNotEnlargeTheStackOfItsConnection(t *testing.T) {
	if raceEnabled || testing.CoverMode() != "" {
		t.Log("not measured: the race detector and coverage make the stack larger")
		return
	}
	if bits.UintSize == 32 {
		t.Log("not measured: queries enlarge the stack on processors with 32 bits, which servers rarely have")
		return
	}
	c, account := newCaller(t)
	moved := 0
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("project", "demo")
		var local byte // the runtime changes its address if it copies the stack
		before := uintptr(unsafe.Pointer(&local))
		c.handler.ServeHTTP(w, r)
		if uintptr(unsafe.Pointer(&local)) != before {
			moved++
		}
	}))
	defer served.Close()
	for name, body := range measuredBodies(account) {
		const warmup = 3 // the stack grows to its usual size
		for i := range warmup + 5 {
			if i == warmup {
				moved = 0
			}
			response, err := served.Client().Post(served.URL+"/demo/graphql", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || response.Body.Close() != nil || !bytes.HasPrefix(text, []byte(`{"data":`)) {
				t.Fatalf("%s: response %.200q, error %v", name, text, err)
			}
			runtime.GC()
		}
		if moved > 0 {
			t.Errorf("%s: %d of 5 requests enlarged the stack", name, moved)
		}
	}
}
