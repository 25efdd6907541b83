package chaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
)

// events is the client side of an event stream. It buffers the received lines.
type events struct {
	t        *testing.T
	res      *http.Response
	lines    chan string
	position atomic.Value // the last id that came with a comment, as a string; not in lines
}

// stream opens an event stream by GET. pairs are names and values of headers.
func (n *network) stream(t *testing.T, document string, pairs ...string) *events {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	target := "http://api.example/demo/graphql?query=" + url.QueryEscape(document)
	r, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	res, err := n.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, res, leave)
}

// listen reads the lines of an event stream until the test ends.
func listen(t *testing.T, res *http.Response, leave context.CancelFunc) *events {
	e := &events{t: t, res: res, lines: make(chan string, 1000)}
	go func() {
		defer close(e.lines)
		comment := false // no event has begun since the last comment
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			line := sc.Text()
			comment = line == ":" || comment && !strings.HasPrefix(line, "event:")
			if id, ok := strings.CutPrefix(line, "id: "); ok && comment {
				e.position.Store(id)
			} else if line != "" {
				e.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		leave()
		_ = res.Body.Close()
		for range e.lines { // until the reader has returned
		}
	})
	return e
}

// reportedGaps matches the reported gaps in cursors of STREAM_GAP errors. The expect methods remove them before they
// compare.
var reportedGaps = regexp.MustCompile(`![0-9a-z]+\.[0-9a-z]{15}`)

// expect waits until the bubble is idle and compares the lines received since the last call.
func (e *events) expect(what string, want ...string) {
	e.t.Helper()
	synctest.Wait()
	var got []string
	for {
		select {
		case line, ok := <-e.lines:
			if ok {
				got = append(got, line)
				continue
			}
			got = append(got, "END")
		default:
		}
		break
	}
	equal(e.t, what, reportedGaps.ReplaceAllString(strings.Join(got, "\n"), ""), strings.Join(want, "\n"))
}

// streamEnd returns the lines of a stream that ends with an error.
func streamEnd(message string, c chaingql.Cursor) []string {
	data := fmt.Sprintf(`data: {"errors":[{"message":%q,"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":%q}}]}`,
		message, c)
	return []string{"event: next", "id: " + string(c), data, "END"}
}

// next returns the lines of the event for a block.
func next(b chaingql.Block) []string {
	data := fmt.Sprintf(`data: {"data":{"blocks":{"chain_order":%q}}}`, b.Cursor)
	return []string{"event: next", "id: " + string(b.Cursor), data}
}

func nexts(blocks []chaingql.Block) (lines []string) {
	for _, b := range blocks {
		lines = append(lines, next(b)...)
	}
	return lines
}

const allBlocks = "subscription{blocks{chain_order}}"
