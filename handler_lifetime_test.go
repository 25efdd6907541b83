package chaingql_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// Sockets and streams end one after another, between half of the lifetime and all of it, and can resume.
func TestConnectionsEndWithTheirCursorWithinConnectionLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lifetime = 10 * time.Minute
		b := newBreakable()
		b.grow(t, 1)
		h, _ := newHandler(t, b, chaingql.Options{ConnectionLifetime: lifetime, KeepAliveInterval: -1})
		n := serve(t, mounted(h))
		var sockets []*socket
		var streams []*events
		for i := range 20 {
			s := n.socket(t)
			s.send(`{"type":"connection_init"}`)
			if i%2 == 0 {
				s.send(`{"id":"1","type":"start","payload":{"query":"subscription{blocks{chain_order}}"}}`)
			}
			sockets = append(sockets, s)
			streams = append(streams, n.stream(t, allBlocks))
		}
		synctest.Wait()
		b.grow(t, 1)
		for _, s := range sockets {
			s.receive()
		}
		for _, s := range streams {
			s.expect("a stream", ":", "event: next", "id: 02", `data: {"data":{"blocks":{"chain_order":"02"}}}`)
		}
		open := func() (sum int) {
			synctest.Wait()
			for _, s := range sockets {
				if len(s.frames) == 0 {
					sum++
				}
			}
			for _, s := range streams {
				if len(s.lines) == 0 {
					sum++
				}
			}
			return sum
		}
		time.Sleep(lifetime/2 - time.Second)
		equal(t, "connections before half of the lifetime", open(), 40)
		time.Sleep(lifetime / 4)
		if n := open(); n == 0 || n == 40 {
			t.Errorf("%d of 40 connections are open after three quarters of the lifetime, want some", n)
		}
		time.Sleep(lifetime/4 + 2*time.Second)
		for i, s := range sockets {
			got := fmt.Sprint(s.receive())
			if !strings.Contains(got, "SERVICE_UNAVAILABLE") || !strings.Contains(got, "CLOSE 1001") ||
				strings.Contains(got, `"cursor":"02"`) != (i%2 == 0) {
				t.Errorf("socket %d ended with %s, want SERVICE_UNAVAILABLE, the cursor 02, and 1001", i, got)
			}
		}
		for _, s := range streams {
			s.expect("the end of a stream", streamEnd("Service is shutting down", "02")...)
		}
		late := n.stream(t, allBlocks, "Last-Event-ID", "02")
		b.grow(t, 1)
		late.expect("a stream that resumes",
			":", "event: next", "id: 03", `data: {"data":{"blocks":{"chain_order":"03"}}}`)
	})
}

func TestNewWarnsIfTheFileLimitIsTooSmall(t *testing.T) {
	const line = "the file limit is too small"
	_, log := newHandler(t, newBreakable(), chaingql.Options{Limits: chaingql.Limits{Connections: math.MaxInt32}})
	if !strings.Contains(log.String(), line) {
		t.Errorf("with many connections, the log lacks %q:\n%s", line, log)
	}
	_, log = newHandler(t, newBreakable(), chaingql.Options{Limits: chaingql.Limits{Connections: 10}})
	if strings.Contains(log.String(), line) {
		t.Errorf("with ten connections, the log contains %q:\n%s", line, log)
	}
}

// asFewFiles is an environment variable. If it is set, the test runs in a process with a small file limit.
const asFewFiles = "CHAINGQL_TEST_FEW_FILES"

func TestConnectionsAreRefusedNearTheOpenFileLimit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("Windows has no file limit")
		return
	}
	if os.Getenv(asFewFiles) == "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		child := exec.CommandContext(ctx, "sh", "-c", `ulimit -n 128 && exec "$0" "$@"`,
			os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.count=1")
		child.Env = append(os.Environ(), asFewFiles+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("with 128 files: %v\n%s", err, out)
		}
		return
	}
	for connections, warns := range map[int]bool{96: false, 97: true} { // a quarter of the files is the reserve
		_, log := newHandler(t, newBreakable(), chaingql.Options{Limits: chaingql.Limits{Connections: connections}})
		equal(t, fmt.Sprint("warning of ", connections), strings.Contains(log.String(), "the file limit"), warns)
	}
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, newBreakable(), chaingql.Options{})
		n := serve(t, mounted(h))
		n.socket(t)
		for range 2 * 128 { // each one is checked, which must leave no file open
			equal(t, "status of a handshake without a connection", openedSocket(h), http.StatusInternalServerError)
		}
		var files []*os.File
		defer func() {
			for _, f := range files {
				f.Close()
			}
		}()
		for { // as the connections of many clients
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatalf("opening %d files failed before a socket was refused: %v", len(files), err)
			}
			files = append(files, f)
			s, res, err := n.open(t, "/demo/graphql")
			if err == nil {
				s.CloseNow()
				continue
			}
			equal(t, "status of a refused socket", res.StatusCode, http.StatusServiceUnavailable)
			equal(t, "its Retry-After", res.Header.Get("Retry-After"), "1")
			break
		}
		stream := n.stream(t, allBlocks)
		equal(t, "status of an event stream", stream.res.StatusCode, http.StatusServiceUnavailable)
		for range 16 { // the Backend can connect
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatalf("after a socket was refused, opening a file failed: %v", err)
			}
			files = append(files, f)
		}
		equal(t, "a query", query(h, "{__typename}", nil), `{"data":{"__typename":"Query"}}`)
		for err := error(nil); err == nil; {
			var f *os.File
			if f, err = os.Open(os.DevNull); err == nil {
				files = append(files, f)
			}
		}
		equal(t, "status if no file is left", openedSocket(h), http.StatusServiceUnavailable)
		for _, f := range files {
			f.Close()
		}
		files = nil
		n.socket(t)
	})
}
