package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// A hookRecorder records each call of a hook as a line.
type hookRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (d *hookRecorder) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// drain waits until the bubble is idle and returns the lines since the last call.
func (d *hookRecorder) drain() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *hookRecorder) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := d.drain(); !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// expectBoth is like expect for two lines in any order.
func (d *hookRecorder) expectBoth(t *testing.T, what, one, other string) {
	t.Helper()
	if got := d.drain(); !slices.Equal(got, []string{one, other}) && !slices.Equal(got, []string{other, one}) {
		t.Errorf("%s:\n got %s\nwant %s\n and %s", what, strings.Join(got, "\n     "), one, other)
	}
}

type spanKey struct{}

func operation(op chaingql.Operation) string {
	return fmt.Sprintf("%s %q by %s of %s", op.Type, op.Name, op.Transport, op.Project)
}

// hooks returns hooks that record their calls.
func (d *hookRecorder) hooks() chaingql.Hooks {
	return chaingql.Hooks{
		OperationStarted: func(ctx context.Context, op chaingql.Operation) context.Context {
			d.note("started %s", operation(op))
			return context.WithValue(ctx, spanKey{}, "span of "+op.Name)
		},
		OperationFinished: func(ctx context.Context, op chaingql.Operation, o chaingql.Outcome) {
			d.note("finished %s in %v, failed %v, reason %q, %d blocks to %q, %v",
				operation(op), o.Duration, o.Failed, o.Reason, o.Blocks, o.Cursor, ctx.Value(spanKey{}))
		},
		SocketOpened: func(_ context.Context, s chaingql.Socket) { d.note("opened %s of %s", s.Protocol, s.Project) },
		SocketClosed: func(_ context.Context, s chaingql.Socket, why chaingql.Reason, err error) {
			d.note("closed %s: %s (%v)", s.Protocol, why, err != nil)
		},
		BlockReceived: func(b chaingql.Block, lag time.Duration) { d.note("received %s after %v", b.Cursor, lag) },
		BlockDelivered: func(_ context.Context, del chaingql.Delivery) {
			d.note("delivered %s by %s after %v", del.Cursor, del.Operation.Transport, del.Lag)
		},
		SourceFailed: func(err error, wait time.Duration) {
			stalled, gap := errors.Is(err, chaingql.ErrSourceStalled), errors.Is(err, chaingql.ErrGap)
			d.note("failed: %v, silent %v, gap %v, waits %v", err, stalled, gap, wait > 0)
		},
		SourceRecovered: func(down time.Duration) { d.note("recovered after %v", down.Round(time.Second)) },
		LimitHit:        func(_ context.Context, limit string) { d.note("limit %s", limit) },
	}
}

// limitHook returns a LimitHit hook that records the limit's name.
func (d *hookRecorder) limitHook() chaingql.Hooks {
	return chaingql.Hooks{LimitHit: func(_ context.Context, limit string) { d.note("%s", limit) }}
}
