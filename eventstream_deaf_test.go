package chaingql_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Each stream that resumes keeps a page of stored blocks, and the server keeps 384 pages. An honest client that
// resumes must not wait until the others have read theirs.
func TestEventStreamsThatAreNotReadDoNotDelayOthers(t *testing.T) {
	for _, protocol := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const streams = 500
				blocks := randomBlocks(5, 501)
				chain := chainOf(t, blocks[:500])
				slow := stubBackend{Backend: chain, blocks: func(
					ctx context.Context, q chaingql.BlocksQuery,
				) ([]chaingql.Block, error) {
					time.Sleep(time.Millisecond)
					return chain.Blocks(ctx, q)
				}}
				h, _ := newHandler(t, slow, chaingql.Options{WindowSize: 5})
				protocols := new(http.Protocols)
				protocols.SetHTTP1(true)
				protocols.SetUnencryptedHTTP2(true)
				n := serveBy(t, &http.Server{Handler: mounted(h), Protocols: protocols})
				live := n.stream(t, allBlocks)
				time.Sleep(time.Second)
				live.expect("a comment", ":")

				tr := &http.Transport{
					DialContext: func(context.Context, string, string) (net.Conn, error) { return n.dial() },
					HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: 4 << 10},
				}
				if protocol == "HTTP/2" {
					tr.Protocols = new(http.Protocols)
					tr.Protocols.SetUnencryptedHTTP2(true)
				}
				defer tr.CloseIdleConnections()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				fields := ""
				for i := range 10 {
					fields += fmt.Sprintf("%s%d:seq_no ", strings.Repeat("a", 200), i) // large events
				}
				for i := range streams {
					after := fmt.Sprintf("%s%x", blocks[200].Cursor, i) // each stream needs a page of its own
					document := fmt.Sprintf("subscription{blocks(after:%q){%s}}", after, fields)
					req, err := http.NewRequestWithContext(ctx, "POST", "http://x/demo/graphql",
						strings.NewReader(fmt.Sprintf(`{"query":%q}`, document)))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Accept", "text/event-stream")
					res, err := tr.RoundTrip(req)
					if err != nil || res.StatusCode != http.StatusOK {
						t.Fatal(res, err)
					}
					defer res.Body.Close()
				}
				begun := time.Now()
				resumes := n.stream(t, fmt.Sprintf("subscription{blocks(after:%q){seq_no}}", blocks[100].Cursor))
				for line := range resumes.lines {
					if line == "id: "+string(blocks[499].Cursor) {
						break
					}
				}
				if took := time.Since(begun); took > 500*time.Millisecond {
					t.Errorf("a resume took %s", took)
				}
				if err := chain.Append(blocks[500]); err != nil {
					t.Fatal(err)
				}
				live.expect("a live block", next(blocks[500])...)
			})
		})
	}
}
