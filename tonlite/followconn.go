package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A followConn is the connection on which Follow waits for new masterchain blocks.
type followConn struct {
	servers  *servers
	place    atomic.Int32 // index of server in servers.all, or -1 while switchServer looks for another one
	server   *server
	client   *lite.Client
	switched bool // the preferred server failed
	delayed  bool // the last proof took longer than minPollInterval
}

// errNoNewBlock is returned if a server does not have a new masterchain block yet.
var errNoNewBlock = errors.New("tonlite: no new masterchain block")

// errMoved is returned if the head moved while a Follow waited for a server to announce a block.
var errMoved = errors.New("tonlite: the head moved")

// errDropped ends a Follow if its newest masterchain block was dropped because no server has that
// block any more.
var errDropped = errors.New("tonlite: the newest masterchain block was dropped because no lite server has it any more")

// minPollInterval is the minimum time between queries to a server that has no new block.
const minPollInterval = 100 * time.Millisecond

// connect connects to the preferred server or, if that fails, to the next server that works.
func (l *followConn) connect(ctx context.Context) error {
	first := int(l.servers.preferred.Load())
	var failed error
	for i := range l.servers.all {
		err := l.use(ctx, (first+i)%len(l.servers.all))
		if err == nil {
			return nil
		}
		failed = joinErrors(failed, err)
	}
	return outage{fmt.Errorf("tonlite: %w", failed)}
}

// use connects to the server with the index place. It returns an error if the server fails or is
// not used for a while because of an earlier failure.
func (l *followConn) use(ctx context.Context, place int) error {
	s := l.servers.all[place]
	wait, err := s.backoffLeft()
	if wait == 0 {
		own, cancel := context.WithTimeout(ctx, l.servers.opts.Timeout)
		defer cancel()
		var client *lite.Client
		if client, err = s.connect(own, l.servers.ctx, &l.servers.group); err == nil {
			l.server, l.client = s, client
			l.place.Store(int32(place))
			return nil
		}
		if ctx.Err() == nil {
			l.servers.backOff(s, err)
		}
	}
	return fmt.Errorf("lite server %s: %w", s.addr, err)
}

// switchServer connects to the next server that works. The argument why is the error that caused
// the switch. If no other server works, switchServer returns this error. However, if the error is
// errNoNewBlock, or if moved is closed meanwhile, switchServer keeps the current server and returns nil.
func (l *followConn) switchServer(ctx context.Context, why error, moved <-chan struct{}) error {
	own, stop := until(ctx, moved)
	defer stop()
	from := l.place.Swap(-1)
	for i := 1; i < len(l.servers.all) && own.Err() == nil; i++ {
		if l.use(own, (int(from)+i)%len(l.servers.all)) == nil {
			l.switched = true
			return nil
		}
	}
	l.place.Store(from)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case own.Err() != nil:
		l.switched = false
	case !errors.Is(why, errNoNewBlock):
		return why
	}
	return nil
}

// until returns a context that is canceled when done is closed. The caller must call stop.
func until(ctx context.Context, done <-chan struct{}) (own context.Context, stop func()) {
	own, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
			cancel()
		case <-own.Done():
		}
	})
	return own, func() { cancel(); watching.Wait() }
}

// wait asks the server to respond when it has the masterchain block with the given seq_no, and
// returns the id of that block. If moved is closed before the server responds, wait returns errMoved.
func (l *followConn) wait(ctx context.Context, seqNo uint32, moved <-chan struct{}) (id lite.BlockID, err error) {
	patience, begin := l.servers.opts.Timeout, time.Now()
	own, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	own, stop := until(own, moved)
	defer stop()
	answer, err := l.client.Ask(own, lite.Wait{
		SeqNo: seqNo, Timeout: uint32(patience.Milliseconds()),
		Then: lite.LookupBlock{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo},
	})
	if err == nil {
		if id, err = lookedUp(answer, seqNo); err == nil {
			l.server.announce(seqNo) // so that the time of queries for the block counts, see servers.query
			return id, nil
		}
	}
	select {
	case <-moved:
		return id, errMoved
	default:
	}
	var serverErr lite.Error
	if errors.As(err, &serverErr) && (serverErr.Code == lite.CodeTimeout || serverErr.Code == lite.CodeNotFound) {
		pause(ctx, minPollInterval-time.Since(begin)) // do not poll in a tight loop if the server does not wait
		return id, errNoNewBlock
	}
	if ctx.Err() == nil {
		if own.Err() != nil {
			l.client.Close() // the server did not even report a timeout
		}
		if !errors.Is(err, lite.ErrLost) { // after ErrLost, the next call may reconnect at once
			l.servers.backOff(l.server, err)
		}
	}
	return id, fmt.Errorf("tonlite: lite server %s: %w", l.server.addr, err)
}

// overtaken records that the server with the index late, on which a Follow waits, reports new blocks later than the one
// with the index by. late may be -1.
func (set *servers) overtaken(late, by int) {
	set.overtaker.Store(uint32(by))
	if late >= 0 && late != by {
		s := set.all[late]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.overtaken = time.Now()
	}
}

// firstAnnouncer returns the index of the server on which a Follow waits: the preferred one, unless another one
// overtook it in the last minute. A server that is near, but reports new blocks late, is preferred again whenever it
// sends data.
func (set *servers) firstAnnouncer() int {
	first := set.preferred.Load()
	s := set.all[first]
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.overtaken) < time.Minute {
		first = set.overtaker.Load()
	}
	return int(first)
}

// connected reports whether there is an open connection to the server.
func (s *server) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOpen()
}
