package tonlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// How long a server that failed is left alone: twice as long each time.
const (
	minRest = 100 * time.Millisecond
	maxRest = 5 * time.Second
)

// A server is one of those in the configuration, connected or not.
type server struct {
	peer
	zero    hashes
	timeout time.Duration

	mu     sync.Mutex
	client *lite.Client // the newest; it may be lost
	dial   *dialling    // one that is under way
	until  time.Time    // left alone till then
	rest   time.Duration
	cause  error     // why it is
	well   time.Time // when it last did well
	head   uint32    // the newest masterchain block when it was connected
}

type dialling struct {
	done   chan struct{}
	client *lite.Client
	err    error
}

var errNetwork = errors.New("it serves another network than the configuration's")

// connect returns a connection that stands, and makes one where there is none.
// Whoever comes while one is made waits for the same. The group owns the
// attempt, which outlives a caller that does not wait.
func (s *server) connect(ctx context.Context, life context.Context, group *sync.WaitGroup) (*lite.Client, error) {
	s.mu.Lock()
	if s.client != nil {
		select {
		case <-s.client.Lost():
			s.client = nil
		default:
			defer s.mu.Unlock()
			return s.client, nil
		}
	}
	d := s.dial
	if d == nil {
		if err := life.Err(); err != nil {
			s.mu.Unlock()
			return nil, errClosed
		}
		d = &dialling{done: make(chan struct{})}
		s.dial = d
		group.Go(func() {
			var head uint32
			d.client, head, d.err = s.greet(life)
			s.mu.Lock()
			s.client, s.dial, s.head = d.client, nil, head
			s.mu.Unlock()
			close(d.done)
		})
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.client, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// greet connects, and sees that it is the right network, and how far it is.
func (s *server) greet(ctx context.Context) (client *lite.Client, head uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if client, err = lite.Dial(ctx, s.addr, s.key); err != nil {
		return nil, 0, err
	}
	answer, err := client.Ask(ctx, lite.GetMasterchainInfo{})
	if err == nil {
		info, ok := answer.(lite.MasterchainInfo)
		switch {
		case !ok:
			err = errAnswer
		case s.zero != hashes{} && s.zero != hashes{info.ZeroRoot, info.ZeroFile}:
			err = errNetwork
		}
		head = info.Last.SeqNo
	}
	if err != nil {
		client.Close()
		return nil, 0, err
	}
	return client, head, nil
}

func (s *server) height() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// ready is zero for a server that may be asked, and else how long it is still
// left alone, and why.
func (s *server) ready() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.until)), s.cause
}

func (s *server) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = min(max(minRest, 2*s.rest), maxRest)
	s.until, s.cause = time.Now().Add(s.rest), err
}

func (s *server) succeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest, s.until, s.cause, s.well = 0, time.Time{}, nil, time.Now()
}

// lately says of a server that fails whether it did well in the last minute.
func (s *server) lately() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.well) < time.Minute
}

// drop closes a connection on which nothing was heard since: it may be dead
// without either end knowing.
func (s *server) drop(client *lite.Client, since time.Time) {
	if client.Heard().Before(since) {
		client.Close()
	}
}

func (s *server) close() {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
}
