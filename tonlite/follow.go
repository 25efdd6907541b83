package tonlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
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
	size := uint32(concurrency) // maximum number of masterchain blocks that are read at once
	for {
		head, moved := b.watchHead()
		for next <= head.SeqNo {
			to := next + min(size-1, head.SeqNo-next)
			begun, waited := time.Now(), false
			steps, err := b.readSteps(ctx, chaingql.BlocksQuery{}, masterRange{next, to})
			late := func() bool { return errors.Is(err, errMissing) || isLag(err) }
			if late() && next < to { // servers may have the first of these blocks
				size = 1
				continue
			}
			// The server that announced the block may withhold it, and the others may have it soon.
			lagging := head.SeqNo-next < maxLag
			for d := minPollInterval; lagging && late() && time.Since(begun) < 2*b.opts.Timeout; {
				size, waited = 1, true
				pause(ctx, d)
				d = min(2*d, b.opts.Timeout/16)
				steps, err = b.readSteps(ctx, chaingql.BlocksQuery{}, masterRange{next, to})
			}
			if errors.Is(err, errMissing) {
				err = b.whyMissing(ctx, next)
			}
			if err != nil {
				return b.followError(ctx, err)
			}
			if size == 1 && time.Since(begun) >= minPollInterval {
				b.setReached(next)
			}
			if !waited { // one block at a time may take longer than new blocks need to come
				size = min(2*size, concurrency)
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
		if newest, _ := b.knownHead(); newest == head { // servers do not lag any more
			size = concurrency
			b.setReached(0)
		}
		select {
		case <-moved:
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
	ended chan struct{} // closed when the headTracker ends
	err   error         // why the headTracker ended; read only after ended is closed
}

// trackHead starts a headTracker, which ends if ctx is done or no server works.
func (b *Backend) trackHead(ctx context.Context, l *followConn) *headTracker {
	t := &headTracker{ended: make(chan struct{})}
	head, _ := b.knownHead()
	b.addFollowing(1)
	go func() {
		defer close(t.ended)
		defer b.addFollowing(-1)
		var checking sync.WaitGroup
		defer checking.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		checking.Go(func() { b.checkOthers(ctx, l) })
		for seqNo := head.SeqNo; ; {
			if t.err = b.await(ctx, l, seqNo+1); t.err != nil {
				return
			}
			head, _ := b.knownHead()
			seqNo = max(seqNo+1, head.SeqNo)
		}
	}()
	return t
}

// checkOthers asks, four times per timeout, one of the servers other than that of l for its newest block. Otherwise a
// server that reports each new block late would delay all blocks. checkOthers does not wait for a response before it
// asks the next server. It returns when ctx is done.
func (b *Backend) checkOthers(ctx context.Context, l *followConn) {
	n := len(b.servers.all)
	if n == 1 {
		return
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	ticker := time.NewTicker(b.opts.Timeout / 4)
	defer ticker.Stop()
	for place := int(l.place.Load()); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if place = (place + 1) % n; place == int(l.place.Load()) {
			place = (place + 1) % n
		}
		checks.Go(func() {
			if b.overtakes(ctx, place) {
				b.servers.preferred.Store(uint32(place))
				b.servers.overtaken(int(l.place.Load()), place)
			}
		})
	}
}

// overtakes reports whether the server with the index place has a newer block than the head, and the head does not
// reach that block within an eighth of the timeout. In this case, overtakes moves the head to that block.
func (b *Backend) overtakes(ctx context.Context, place int) (overtakes bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(b.opts.Timeout/2, cancel).Stop() // a server that takes longer than that has not failed
	q, order := lite.GetMasterchainInfo{}, []int{place}
	err := b.servers.askIn(ctx, order, q, func(ctx context.Context, answer lite.Message) error {
		id, err := announced(answer)
		if head, _ := b.knownHead(); err != nil || id.SeqNo <= head.SeqNo {
			return err
		}
		pause(ctx, b.opts.Timeout/8)
		if head, _ := b.knownHead(); id.SeqNo <= head.SeqNo {
			return nil
		}
		overtakes = true
		return b.advance(ctx, id)
	})
	return overtakes && err == nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
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

// await waits until the head has at least the given seq_no. It asks firstAnnouncer. If that server fails or does not
// wait for the block, await switches to another one, which becomes the preferred server when it announces a block. If
// proofs take so long that the server already has the block, await moves the head to the newest one.
func (b *Backend) await(ctx context.Context, l *followConn, seqNo uint32) error {
	for {
		head, moved := b.watchHead()
		switch {
		case head.SeqNo >= seqNo:
			return nil
		case head.SeqNo+1 < seqNo:
			return errDropped
		}
		first := b.servers.firstAnnouncer() // if it is not connected, checkOthers connects to it
		if first != int(l.place.Load()) && !l.switched && b.servers.all[first].connected() {
			_ = l.use(ctx, first) // if it fails, l keeps its server
		}
		begin := time.Now()
		id, err := l.wait(ctx, seqNo, moved)
		if errors.Is(err, errMoved) {
			l.switched = false
			continue
		}
		if err == nil {
			if l.delayed && time.Since(begin) < minPollInterval && !b.opts.Unproven {
				// The block is not new, so there may be newer ones. One proof of the newest block is enough.
				_, _ = b.readHead(ctx) // if it fails, the head advances by one block
			}
			begin = time.Now()
			if err = recoverPanics(func() error { return b.advance(ctx, id) }); err == nil {
				l.server.succeeded(nil)
				l.delayed = time.Since(begin) >= minPollInterval
				if l.switched { // the preferred server may not have the block
					b.servers.preferred.Store(uint32(l.place.Load()))
					l.switched = false
				}
				return nil
			}
			if ctx.Err() == nil {
				b.servers.backOff(l.server, err)
			}
			err = fmt.Errorf("tonlite: lite server %s: %w", l.server.addr, err)
		}
		if errors.Is(err, errNoNewBlock) && !b.opts.Unproven {
			// All servers may have only later blocks. If readHead fails, there is no newer head to continue with.
			if head, failed := b.readHead(ctx); failed == nil && head.SeqNo >= seqNo {
				continue
			}
		}
		if b.opts.Unproven && ctx.Err() == nil && b.dropHead(ctx) {
			continue
		}
		if errors.Is(err, errNoNewBlock) && time.Since(begin) >= b.opts.Timeout/2 && ctx.Err() == nil {
			continue // the server works; checkOthers finds the servers that have a new block
		}
		if err := l.switchServer(ctx, err, moved); err != nil {
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
