package gqlws

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 2*time.Second) }

var testOptions = Options{
	KeepAliveInterval: 15 * time.Second,
	InitTimeout:       10 * time.Second,
	UnusedTimeout:     60 * time.Second,
	FrameTimeout:      5 * time.Second,
	WriteTimeout:      10 * time.Second,
	MaxMessage:        512,
	MaxSubscriptions:  3,
	MaxQueries:        3,
	QueryWait:         20 * time.Second,
	MaxID:             16,
	MaxSockets:        10,
}

// loggerTo returns a logger that writes records of level INFO and above to log.
func loggerTo(log *testkit.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// shutdown shuts s down. It fails the test if this takes more than a minute.
func shutdown(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown returned %v, want nil", err)
	}
}

// remainingSockets waits until all goroutines are blocked and then returns the number of the server's connections.
func remainingSockets(s *Server) int {
	synctest.Wait()
	return s.sockets.Members()
}
