package postgres_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// serve serves a backend on 127.0.0.1 until the test ends.
func serve(t testing.TB, b chaingql.Backend) (url string) {
	t.Helper()
	h := chaingql.New(b, nil)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server.URL + "/demo/graphql"
}

// subscribe receives n blocks through event streams. If a stream ends, subscribe opens another one that
// resumes after the last received block.
func subscribe(ctx context.Context, address string, after chaingql.Cursor, n int) (got []chaingql.Cursor) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for len(got) < n && ctx.Err() == nil {
		if len(got) > 0 {
			after = got[len(got)-1]
		}
		query := url.Values{
			"query":     {`subscription($after:String){blocks(after:$after){chain_order}}`},
			"variables": {`{"after":"` + string(after) + `"}`},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
		if err != nil {
			return got
		}
		req.Header.Set("Accept", "text/event-stream")
		res, err := transport.RoundTrip(req)
		if err != nil {
			sleep(ctx, 5*time.Millisecond)
			continue
		}
		lines := bufio.NewScanner(res.Body)
		for len(got) < n && lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), `"chain_order":"`); ok {
				cursor, _, _ := strings.Cut(rest, `"`)
				got = append(got, chaingql.Cursor(cursor))
			}
		}
		_ = res.Body.Close()
	}
	return got
}
