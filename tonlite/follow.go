package tonlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// Follow yields every block after a cursor, as [chaingql.Backend] specifies. It reads all blocks
// up to the newest masterchain block. After that, it waits for each new masterchain block with a
// query that a server answers once the block exists. If the connection to that server is lost,
// Follow continues with another server. If no server works, Follow yields an error and ends.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.follow(ctx, after, yield); err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// follow implements Follow. It returns the error that ended it, or nil if yield returned false.
func (b *Backend) follow(ctx context.Context, after chaingql.Cursor, yield func(chaingql.Block, error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.servers.ctx, func() { cancel(errClosed) })()
	next, err := b.firstMaster(ctx, after)
	if err != nil {
		return b.followError(ctx, err)
	}
	l := &followConn{servers: b.servers}
	if err := l.connect(ctx); err != nil {
		return b.followError(ctx, err)
	}
	heads := b.trackHead(ctx, l)
	defer func() { cancel(nil); <-heads.ended }()
	for {
		head, _ := b.knownHead()
		for next <= head.SeqNo {
			to := next + min(concurrency-1, head.SeqNo-next)
			steps, err := b.readSteps(ctx, chaingql.BlocksQuery{}, masterRange{next, to})
			if errors.Is(err, errMissing) {
				err = b.missingError(ctx, next, err)
			}
			if err != nil {
				return b.followError(ctx, err)
			}
			for _, block := range slices.Concat(steps...) {
				if block.Cursor <= after {
					continue
				}
				if err := ctx.Err(); err != nil {
					return b.followError(ctx, err)
				}
				if !yield(block, nil) {
					return nil
				}
				after = block.Cursor
			}
			next = to + 1
		}
		select {
		case <-heads.moved:
		case <-heads.ended:
			return b.followError(ctx, heads.err)
		}
		next = max(next, head.SeqNo+1)
	}
}

// A headTracker keeps the Backend's head, the newest masterchain block, up to date while Follow
// yields blocks, which may take any time. While a headTracker runs, other calls do not need to
// query a server for the newest block.
type headTracker struct {
	moved chan struct{} // receives a value after the head moved
	ended chan struct{} // closed when the headTracker ends
	err   error         // why the headTracker ended; read only after ended is closed
}

// trackHead starts a headTracker, which ends if ctx is done or no server works.
func (b *Backend) trackHead(ctx context.Context, l *followConn) *headTracker {
	t := &headTracker{moved: make(chan struct{}, 1), ended: make(chan struct{})}
	head, _ := b.knownHead()
	b.addFollowing(1)
	go func() {
		defer close(t.ended)
		defer b.addFollowing(-1)
		for seqNo := head.SeqNo; ; {
			if t.err = b.await(ctx, l, seqNo+1); t.err != nil {
				return
			}
			head, _ := b.knownHead()
			seqNo = max(seqNo+1, head.SeqNo)
			select {
			case t.moved <- struct{}{}:
			default:
			}
		}
	}()
	return t
}

// firstMaster returns the seq_no of the first masterchain block that Follow must read if it
// starts after the given cursor.
func (b *Backend) firstMaster(ctx context.Context, after chaingql.Cursor) (uint32, error) {
	if after == "" {
		_, err := b.currentHead(ctx)
		return 1, err
	}
	r, err := b.masterRange(ctx, chaingql.BlocksQuery{After: after}, nil)
	return r.from, err
}

// await waits until the head has at least the given seq_no. It asks the preferred server. If that
// server fails or has no new block in time, await switches to another one, which becomes the
// preferred server when it announces a block. If proofs take so long that the server already has the
// block, await moves the head to the newest one.
func (b *Backend) await(ctx context.Context, l *followConn, seqNo uint32) error {
	for {
		switch head, _ := b.knownHead(); {
		case head.SeqNo >= seqNo:
			return nil
		case head.SeqNo+1 < seqNo:
			return errDropped
		}
		if preferred := int(b.servers.preferred.Load()); preferred != l.place && !l.switched {
			_ = l.use(ctx, preferred) // if it fails, l keeps its server
		}
		begin := time.Now()
		id, err := l.wait(ctx, seqNo)
		if err == nil {
			if l.delayed && time.Since(begin) < minPollInterval && !b.opts.Unproven {
				// The block is not new, so there may be newer ones. One proof of the newest block is enough.
				_, _ = b.readHead(ctx) // if it fails, the head advances by one block
			}
			begin = time.Now()
			if err = recoverPanics(func() error { return b.advance(ctx, id) }); err == nil {
				l.delayed = time.Since(begin) >= minPollInterval
				if l.switched { // the preferred server may not have the block
					b.servers.preferred.Store(uint32(l.place))
					l.switched = false
				}
				return nil
			}
			if ctx.Err() == nil {
				b.servers.backOff(l.server, err)
			}
			err = fmt.Errorf("tonlite: lite server %s: %w", l.server.addr, err)
		}
		if b.opts.Unproven && ctx.Err() == nil && b.dropHead(ctx) {
			continue
		}
		if err := l.switchServer(ctx, err); err != nil {
			return err
		}
	}
}

func (b *Backend) addFollowing(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.following += n
}

// followError returns errClosed if the Backend was closed, the cause of ctx if ctx is done, and
// err otherwise.
func (b *Backend) followError(ctx context.Context, err error) error {
	if b.servers.ctx.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A followConn is the connection on which Follow waits for new masterchain blocks.
type followConn struct {
	servers  *servers
	place    int // index of server in servers.all
	server   *server
	client   *lite.Client
	switched bool // the preferred server failed or had no new block
	delayed  bool // the last proof took longer than minPollInterval
}

// errNoNewBlock is returned if a server does not have a new masterchain block yet.
var errNoNewBlock = errors.New("tonlite: no new masterchain block")

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
			l.place, l.server, l.client = place, s, client
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
// errNoNewBlock, switchServer keeps the current server and returns nil.
func (l *followConn) switchServer(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := 1; i < len(l.servers.all); i++ {
		if l.use(ctx, (l.place+i)%len(l.servers.all)) == nil {
			l.switched = true
			return nil
		}
	}
	if errors.Is(why, errNoNewBlock) {
		return nil
	}
	return why
}

// wait asks the server to respond when it has the masterchain block with the given seq_no, and
// returns the id of that block.
func (l *followConn) wait(ctx context.Context, seqNo uint32) (id lite.BlockID, err error) {
	patience, begin := l.servers.opts.Timeout, time.Now()
	own, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	answer, err := l.client.Ask(own, lite.Wait{
		SeqNo: seqNo, Timeout: uint32(patience.Milliseconds()),
		Then: lite.LookupBlock{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo},
	})
	if err == nil {
		if id, err = lookedUp(answer, seqNo); err == nil {
			l.server.succeeded()
			return id, nil
		}
	}
	var serverErr lite.Error
	if errors.As(err, &serverErr) && (serverErr.Code == lite.CodeTimeout || serverErr.Code == lite.CodeNotFound) {
		select { // do not poll in a tight loop if the server does not wait
		case <-time.After(minPollInterval - time.Since(begin)):
		case <-ctx.Done():
		}
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
