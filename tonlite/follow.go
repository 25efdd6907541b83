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

// Follow yields every block after a cursor, as [chaingql.Backend] describes it. It reads up
// to the newest masterchain block and then asks a server to wait for each next one. If the
// connection to that server is lost, it continues with another server. If no server works,
// Follow ends with an error.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.follow(ctx, after, yield); err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// follow returns the error that ended it, nil if the caller stopped it.
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

// A headTracker follows the newest masterchain block while a Follow yields blocks, which may
// take any time. Meanwhile no call has to query a server for that block.
type headTracker struct {
	moved chan struct{} // receives a value after the head moved
	ended chan struct{}
	err   error // read after ended
}

// trackHead starts a tracker. It ends with ctx, or with an error if no server works.
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

// firstMaster returns the masterchain block to begin with.
func (b *Backend) firstMaster(ctx context.Context, after chaingql.Cursor) (uint32, error) {
	if after == "" {
		_, err := b.currentHead(ctx)
		return 1, err
	}
	r, err := b.masterRange(ctx, chaingql.BlocksQuery{After: after}, nil)
	return r.from, err
}

// await waits until the masterchain has a block with the given seq_no.
func (b *Backend) await(ctx context.Context, l *followConn, seqNo uint32) error {
	for {
		switch head, _ := b.knownHead(); {
		case head.SeqNo >= seqNo:
			return nil
		case head.SeqNo+1 < seqNo:
			return errDropped
		}
		id, err := l.wait(ctx, seqNo)
		if err == nil {
			if err = recoverPanics(func() error { return b.advance(ctx, id) }); err == nil {
				b.servers.preferred.Store(uint32(l.place)) // the others may not have the block yet
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

// followError returns errClosed if the Backend was closed, the cause of ctx if that ended,
// and err otherwise.
func (b *Backend) followError(ctx context.Context, err error) error {
	if b.servers.ctx.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A followConn is the connection on which a Follow waits for blocks.
type followConn struct {
	servers *servers
	place   int
	server  *server
	client  *lite.Client
}

// errNoNewBlock is returned if a server knows no new block of the masterchain.
var errNoNewBlock = errors.New("tonlite: no new masterchain block")

// errDropped ends a Follow that waits for the block after a head that was dropped because
// no server has it.
var errDropped = errors.New("tonlite: no server has the newest known masterchain block")

// minPollInterval is the minimum time between queries to a server that has no new block.
const minPollInterval = 100 * time.Millisecond

// connect uses the preferred server, or the next one that works.
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
	return fmt.Errorf("tonlite: %w", failed)
}

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

// switchServer continues with the next server that works. If there is none, it returns why,
// except for errNoNewBlock: then it keeps the server.
func (l *followConn) switchServer(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := 1; i < len(l.servers.all); i++ {
		if l.use(ctx, (l.place+i)%len(l.servers.all)) == nil {
			return nil
		}
	}
	if errors.Is(why, errNoNewBlock) {
		return nil
	}
	return why
}

// wait asks the server to wait for a masterchain block, and returns its id.
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
		select { // a server that does not wait is not polled in a tight loop
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
