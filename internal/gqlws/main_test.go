package gqlws

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m, 2*time.Second) }

var testOptions = Options{
	KeepAlive:        15 * time.Second,
	InitTimeout:      10 * time.Second,
	UnusedTimeout:    60 * time.Second,
	FrameTimeout:     5 * time.Second,
	WriteTimeout:     10 * time.Second,
	MaxMessage:       512,
	MaxSubscriptions: 3,
	MaxQueries:       3,
	QueryWait:        20 * time.Second,
	MaxID:            16,
	MaxSockets:       10,
}

// A notebook is a log that tests look into.
type notebook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notebook) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

func (n *notebook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// logged checks that the log has one line about a connection that was cut, and
// that it contains what is wanted; nothing is no line.
func logged(t *testing.T, n *notebook, want string) {
	t.Helper()
	got := n.String()
	lines := strings.Count(got, "connection cut")
	if want == "" && lines > 0 || want != "" && (lines != 1 || !strings.Contains(got, want)) {
		t.Errorf("logged %q\nwant   %q", got, want)
	}
}

// shutdown ends a server, which must not take long.
func shutdown(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// left waits for a server's connections to be gone, without ending any.
func left(s *Server) int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets
}
