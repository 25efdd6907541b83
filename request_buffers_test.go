package chaingql_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A slowBody is a body of which nothing arrives until free is closed.
type slowBody struct {
	reading chan<- struct{}
	free    <-chan struct{}
}

func (b slowBody) Read([]byte) (int, error) {
	b.reading <- struct{}{}
	<-b.free
	return 0, io.EOF
}

// A slowWriter is a ResponseWriter. Its first Write blocks until free is closed.
type slowWriter struct {
	*httptest.ResponseRecorder
	once    *sync.Once
	writing chan<- struct{}
	free    <-chan struct{}
}

func (w slowWriter) Write(text []byte) (int, error) {
	w.once.Do(func() {
		w.writing <- struct{}{}
		<-w.free
	})
	return len(text), nil
}

// Buffers that have grown for long responses are reused. Requests whose bodies arrive slowly must not collect them,
// because only the memory of the bodies is counted.
func TestArrivingBodiesKeepNoBuffersOfResponses(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const n, each = 200, 24 << 10 // a stack, the request and buffers
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	types := ":__schema{types{name fields{name description args{name description}}}}"
	long := body("{"+strings.Join([]string{"a", "b", "c", "d", "e", "f"}, types)+types+"}", nil)
	var all sync.WaitGroup
	serve := func(w http.ResponseWriter, body io.Reader) {
		r := httptest.NewRequest(http.MethodPost, "/demo/graphql", body)
		r.Header.Set("Content-Type", "application/json")
		all.Go(func() { h.ServeHTTP(w, r) })
	}
	before := heapInUse()
	begun, free := make(chan struct{}), make(chan struct{})
	for range n { // long responses at the same time
		serve(slowWriter{httptest.NewRecorder(), new(sync.Once), begun, free}, strings.NewReader(long))
		<-begun
	}
	close(free)
	all.Wait()
	free = make(chan struct{})
	for range n {
		serve(httptest.NewRecorder(), slowBody{begun, free})
		<-begun
	}
	counted, _ := h.Pending()
	kept := heapInUse() - before
	t.Logf("%d arriving bodies keep %d bytes, of which %d are counted", n, kept, counted)
	if kept-counted > n*each {
		t.Errorf("an arriving body keeps %d bytes more than are counted", (kept-counted)/n)
	}
	close(free)
	all.Wait()
}
