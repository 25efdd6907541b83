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

// Follow yields every block after a cursor, as [chaingql.Backend] describes it:
// it reads up to the newest masterchain block, and then has a server wait for
// each next one. When the connection to that server is lost, another one takes
// its place; where there is none Follow ends.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.follow(ctx, after, yield); err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// follow returns why it ended, nil where it was left.
func (b *Backend) follow(ctx context.Context, after chaingql.Cursor, yield func(chaingql.Block, error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.servers.life, func() { cancel(errClosed) })()
	next, err := b.beginning(ctx, after)
	if err != nil {
		return b.cause(ctx, err)
	}
	l := &line{servers: b.servers}
	if err := l.connect(ctx); err != nil {
		return b.cause(ctx, err)
	}
	for {
		head, _ := b.newest()
		for next <= head.SeqNo {
			to := next + min(abreast-1, head.SeqNo-next)
			steps, err := b.steady(ctx, chaingql.BlocksQuery{}, stretch{next, to})
			if errors.Is(err, errMissing) {
				err = b.tooOld(ctx, next, err)
			}
			if err != nil {
				return b.cause(ctx, err)
			}
			for _, block := range slices.Concat(steps...) {
				if block.Cursor <= after {
					continue
				}
				if err := ctx.Err(); err != nil {
					return b.cause(ctx, err)
				}
				if !yield(block, nil) {
					return nil
				}
				after = block.Cursor
			}
			next = to + 1
		}
		if err := b.await(ctx, l, head.SeqNo+1); err != nil {
			return b.cause(ctx, err)
		}
		next = max(next, head.SeqNo+1)
	}
}

// beginning is the masterchain block to begin with.
func (b *Backend) beginning(ctx context.Context, after chaingql.Cursor) (uint32, error) {
	if after == "" {
		_, err := b.current(ctx)
		return 1, err
	}
	r, err := b.stretch(ctx, chaingql.BlocksQuery{After: after})
	return r.from, err
}

// await returns when the masterchain has a block with a seq_no. While it waits
// the newest block is known without asking.
func (b *Backend) await(ctx context.Context, l *line, seqNo uint32) error {
	b.waits(1)
	defer b.waits(-1)
	for {
		switch head, _ := b.newest(); {
		case head.SeqNo >= seqNo:
			return nil
		case head.SeqNo+1 < seqNo:
			return errDropped
		}
		id, err := l.wait(ctx, seqNo)
		if err == nil {
			if err = safely(func() error { return b.advance(ctx, id) }); err == nil {
				b.servers.first.Store(uint32(l.place)) // which has what others may not have yet
				return nil
			}
			if ctx.Err() == nil {
				b.servers.fail(l.server, err)
			}
			err = fmt.Errorf("tonlite: lite server %s: %w", l.server.addr, err)
		}
		if b.opts.Unproven && ctx.Err() == nil && b.dropHead(ctx) {
			continue
		}
		if err := l.move(ctx, err); err != nil {
			return err
		}
	}
}

func (b *Backend) waits(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live += n
}

// cause tells why a context is done, where that is why a call failed.
func (b *Backend) cause(ctx context.Context, err error) error {
	if b.servers.life.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A line is the connection that a Follow waits on.
type line struct {
	servers *servers
	place   int
	server  *server
	client  *lite.Client
}

// errQuiet says that the masterchain had no new block, as far as a server knows.
var errQuiet = errors.New("tonlite: no new masterchain block")

// errDropped ends a Follow that waits for the block after a head that no server
// has.
var errDropped = errors.New("tonlite: no server has the newest masterchain block that was known")

// minQuiet is how often a server is asked at most that has nothing new.
const minQuiet = 100 * time.Millisecond

// connect takes the preferred server, or the next one that does well.
func (l *line) connect(ctx context.Context) error {
	first := int(l.servers.first.Load())
	var failed error
	for i := range l.servers.all {
		err := l.take(ctx, (first+i)%len(l.servers.all))
		if err == nil {
			return nil
		}
		failed = also(failed, err)
	}
	return fmt.Errorf("tonlite: %w", failed)
}

func (l *line) take(ctx context.Context, place int) error {
	s := l.servers.all[place]
	wait, err := s.ready()
	if wait == 0 {
		own, cancel := context.WithTimeout(ctx, l.servers.opts.Timeout)
		defer cancel()
		var client *lite.Client
		if client, err = s.connect(own, l.servers.life, &l.servers.group); err == nil {
			l.place, l.server, l.client = place, s, client
			return nil
		}
		if ctx.Err() == nil {
			l.servers.fail(s, err)
		}
	}
	return fmt.Errorf("lite server %s: %w", s.addr, err)
}

// move goes on with the next other server, and where there is none returns why
// it had to. A server that has nothing new is kept where there is no other.
func (l *line) move(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := 1; i < len(l.servers.all); i++ {
		if l.take(ctx, (l.place+i)%len(l.servers.all)) == nil {
			return nil
		}
	}
	if errors.Is(why, errQuiet) {
		return nil
	}
	return why
}

// wait has the server wait for a masterchain block, and tell which it is.
func (l *line) wait(ctx context.Context, seqNo uint32) (id lite.BlockID, err error) {
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
	var said lite.Error
	if errors.As(err, &said) && (said.Code == lite.CodeTimeout || said.Code == lite.CodeNotFound) {
		select { // a server that does not wait is not asked in a circle
		case <-time.After(minQuiet - time.Since(begin)):
		case <-ctx.Done():
		}
		return id, errQuiet
	}
	if ctx.Err() == nil {
		if own.Err() != nil {
			l.client.Close() // it has not even said that it waited in vain
		}
		if !errors.Is(err, lite.ErrLost) { // else it may be made anew at once
			l.servers.fail(l.server, err)
		}
	}
	return id, fmt.Errorf("tonlite: lite server %s: %w", l.server.addr, err)
}
