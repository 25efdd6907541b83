package blocklog

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of [Options].
const (
	DefaultWindow     = 1024
	DefaultKeptBytes  = 32 << 20
	DefaultMinBackoff = 100 * time.Millisecond
	DefaultMaxBackoff = 10 * time.Second
	DefaultSilence    = 30 * time.Second
)

// ErrClosed is what Join and Next return once the Log, or the Reader, is closed.
var ErrClosed = errors.New("blocklog: closed")

// ErrGap is why a Reader ends that cannot be given a block in its place: a block turned out to be missing when the
// Reader had had others from behind it, or could not be found. It is to join again with the [Lost]'s cursor.
var ErrGap = errors.New("blocklog: a block is missing")

// Lost ends a Reader whose stream cannot go on: the source does not have what follows the Reader's position (any
// more), a block is missing, or the Reader's eval panicked. The Reader has had everything it matches up to Cursor,
// and nothing from behind it, unless Err is ErrGap: then it may have had blocks from behind Cursor, all of which come
// again to whoever goes on from there.
type Lost struct {
	Cursor string // the position from which to go on
	Err    error  // why: what the source said, ErrGap, or the panic

	number uint32 // of a gap that stays
}

func (e *Lost) Error() string {
	return fmt.Sprintf("blocklog: stream lost after cursor %q: %v", e.Cursor, e.Err)
}

func (e *Lost) Unwrap() error { return e.Err }

// Options of a Log. The zero value, and any field that is zero or negative, means the default.
type Options[B any] struct {
	Window     int           // how many blocks are kept for readers that are slow; DefaultWindow
	KeptBytes  int           // of what Evals made of them, kept until it is read, or made again; DefaultKeptBytes
	MinBackoff time.Duration // the shortest wait before a failed source is asked again; DefaultMinBackoff
	MaxBackoff time.Duration // the longest, at least MinBackoff; DefaultMaxBackoff
	Silence    time.Duration // without a block, until the stream is not live any more; DefaultSilence; negative: never
	Logger     *slog.Logger  // told of failures of the source, of holes and of each panic; slog.Default()
	Events     Events[B]     // told of what happens to the stream
}

// Log follows one source for all its readers. All its methods are safe for concurrent use. Make one with [New], end
// it with [Log.Close].
type Log[B any] struct {
	src    Source[B]
	opts   Options[B]
	ctx    context.Context // the source's; done when the Log is closed
	cancel context.CancelFunc
	done   chan struct{} // closed when busy is 0
	behind atomic.Int64  // readers

	view     atomic.Pointer[view[B]] // replaced under mu, by the following goroutine
	reached  atomic.Pointer[string]  // highest cursor shown, if that was past the newest then
	doubts   atomic.Pointer[[]doubt[B]]
	gaps     atomic.Uint32           // the number of the newest doubt, from 1 on; changes under mu
	pageEnd  atomic.Uint64           // readers that ended at a gap in stored blocks
	lastings atomic.Uint32           // the number of the newest gap that stays, from 1 on; changes under mu
	openGap  atomic.Pointer[openGap] // set while a gap is searched for; stays if the log is closed meanwhile

	workchains atomic.Pointer[[]int32] // all that had a block; written by the following goroutine

	kept atomic.Int64  // bytes that feeds keep
	hand atomic.Uint64 // the feed in turn that was spared last

	// Only the following goroutine uses these, the first two to deliver without allocating.
	turn  []*feed[B]
	wakes []func()
	begun string // where the log began: of what was before, lines know little
	asked bool   // for the newest block, before
	later rechecks[B]

	// telling guards these, and puts the events of trouble in order. It is taken under no other lock, nor mu under it
	// but to log.
	telling   sync.Mutex
	downSince time.Time // of the first failure that no block came after
	lastHeard time.Time // when a block came, or the present attempt began
	quiet     *time.Timer
	silent    bool // it has been told

	// mu comes before a feed's own lock. It is never held during an eval, a wake or a call to the source.
	mu         sync.Mutex
	started    bool
	busy       int    // goroutines and timers, and 1 until Close
	positioned bool   // the window is of places in the source; false until Recent has answered
	lines      lines  // the newest block of each shard; written by the following goroutine, which reads it without a lock
	delivered  mark   // how far every feed has got; behind the newest only while a block is handed round
	first      string // the first block of a chain that was empty; else ""
	byKey      map[string]*feed[B]
	feeds      []*feed[B] // byKey's, in any order, quick to copy
	stats      Stats

	pages        map[string]*page[B] // those that are not done, by the cursor they come after
	ahead        pageHeap[B]         // those past the newest block
	queue        pageQueue[B]        // those that the source has still to be asked for
	held         list.List           // those that have been read, and that readers may not have read to the end
	maxHeld      int                 // heldPages but in tests
	calls        int                 // goroutines that ask
	lasting      map[string]lasting  // gaps in the source, by the block after each
	pageFailures int                 // since the last line in the log
	nextPageLine time.Time           // before it there is none
}

// New makes a Log of src. It does nothing until the first Join or Start.
func New[B any](src Source[B], o Options[B]) *Log[B] {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = DefaultMinBackoff
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = DefaultMaxBackoff
	}
	if o.KeptBytes <= 0 {
		o.KeptBytes = DefaultKeptBytes
	}
	o.MaxBackoff = max(o.MaxBackoff, o.MinBackoff)
	if o.Silence == 0 {
		o.Silence = DefaultSilence
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if src.Gone == nil {
		src.Gone = func(error) bool { return false }
	}
	l := &Log[B]{src: src, opts: o, done: make(chan struct{}), busy: 1}
	l.view.Store(&view[B]{})
	l.gaps.Store(1)
	l.workchains.Store(new([]int32))
	l.byKey, l.pages = make(map[string]*feed[B]), make(map[string]*page[B])
	l.lasting = make(map[string]lasting)
	l.ahead.lowest, l.maxHeld = true, heldPages
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start begins to follow the source if nobody has joined yet, for those who only need [Log.Window]. It returns at
// once, and does nothing on a Log that runs or is closed.
func (l *Log[B]) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
}

func (l *Log[B]) start() {
	if !l.started && l.ctx.Err() == nil {
		l.started = true
		l.busy++
		go l.run()
	}
}

// Interest is what a Reader is to read.
type Interest[B any] struct {
	// Key is equal for Readers that share one Eval per block, that of the first of them, and have equal Concerns.
	Key string

	// After is the cursor to go on from. It may be any: one past the newest block waits for the blocks past it, one that
	// the source says it does not have ends the Reader with a [*Lost]. Nil is for every block that arrives from now on;
	// where the Log does not know its place in the source yet (it has just been started, or has lost its history), for
	// every block after the newest that the source then names.
	After *string

	// Mark is the one that belongs to After, as [Reader.Mark] returned it, else zero.
	Mark Mark

	// Eval makes the payload of a block, nil where it does not match. It must be pure and safe for concurrent use: it
	// is called on the Log's goroutines for a new block, and from Next for an older one. What it returns is given to
	// many Readers, who may not change it. If it panics, its Readers end with a [*Lost].
	Eval func(B) []byte

	// Concerns tells whether a block of a workchain may match: if not, one that is missing there is not missed. Nil is
	// for all workchains. It must be pure.
	Concerns func(workchain int32) bool

	// Wake, which may be nil, is called when Next may have something new or the Reader has ended, perhaps already
	// before Join has returned, at times for nothing, and once more shortly after the Reader was closed. No lock is
	// held during the call, so it may call the Reader and Join, but it must not block: everybody's next block waits
	// for it. The Wakes of different Readers may be called at once. With a cursor there may be something to read from
	// the start: Next has to be called once without it.
	Wake func()
}

// Join returns a Reader of what Eval makes of every block past the cursor: the stored ones first, then each as it
// arrives. It does not wait for the source, nor for the blocks. The first Join starts to follow the source.
//
// A cursor may be that of somebody who was given it when a block from before it was missing, and left before that
// showed: the Reader then ends with ErrGap before it begins.
//
// Join returns ErrClosed on a closed Log. The Reader must be closed.
func (l *Log[B]) Join(i Interest[B]) (*Reader[B], error) {
	doubts := l.doubts.Load()
	before, gap := doubted(doubts, &i)
	l.mu.Lock()
	for now := l.doubts.Load(); now != doubts; now = l.doubts.Load() {
		l.mu.Unlock()
		doubts = now
		before, gap = doubted(doubts, &i)
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, ErrClosed
	}
	l.start()
	newest := l.view.Load().newest
	f := l.byKey[i.Key]
	if f == nil {
		f = &feed[B]{key: i.Key, eval: i.Eval, concerns: i.Concerns, slot: len(l.feeds)}
		f.keep, f.kept, f.matched = min(feedItems, l.opts.Window), &l.kept, newest.next
		l.byKey[i.Key] = f
		l.feeds = append(l.feeds, f)
	}
	r := &Reader[B]{log: l, feed: f, at: newest, start: newest.cursor, wake: i.Wake, fresh: i.After == nil}
	if i.After != nil {
		r.at, r.start, r.handed = mark{behind, *i.After}, "", *i.After
		if r.told, r.known = i.Mark.gaps(), i.Mark.lastings(); i.Mark&markHere != 0 {
			r.sentBack = *i.After
		}
		l.behind.Add(1)
		l.stats.Resumed++
	}
	switch {
	case gap:
		r.at.cursor, r.lost = before, ErrGap
		r.told = l.gaps.Load()
		l.stats.Gaps++
	case i.Mark != 0:
		r.told = max(r.told, l.gaps.Load()) // from here on it lacks nothing that has turned up by now
	}
	f.add(r)
	l.stats.Readers++
	return r, nil
}

// Close ends the Follow and every Reader (their Next returns ErrClosed, their Cursor still tells where to go on) and
// waits until the source has come back from all calls. If that takes longer than ctx lasts it returns ctx.Err(), and
// the calls are left to end by themselves; Close may then be called again to go on waiting. It must not be called from
// a wake.
func (l *Log[B]) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.ctx.Err() == nil {
		l.cancel()
		for _, p := range l.pages {
			l.stop(p)
		}
		l.left()
	}
	wakes := l.endAll(ErrClosed, nil)
	l.mu.Unlock()
	l.call(wakes)
	select {
	case <-l.done:
		return nil
	default:
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// left is called when something that Close waits for has ended.
func (l *Log[B]) left() {
	if l.busy--; l.busy == 0 {
		close(l.done)
	}
}
