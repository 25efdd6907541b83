package blocklog

import (
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

// ErrClosed is returned by Join and Next after the Log, or the Reader, has been closed.
var ErrClosed = errors.New("blocklog: closed")

// ErrGap ends a Reader that cannot receive a block in its place: the block was found to be missing after later blocks
// had been delivered to the Reader, or could not be found. The client must join again with the cursor of the [Lost].
var ErrGap = errors.New("blocklog: a block is missing")

// A Lost ends a Reader whose stream cannot continue: the source does not have the blocks after the Reader's position
// (any more), a block is missing, or the Reader's Eval panicked. The Reader has received every matching block up to
// Cursor and none after it, unless Err is ErrGap: then it may have received blocks after Cursor, and a Reader that
// joins with Cursor receives all of those again.
type Lost struct {
	Cursor string // the position from which to resume
	Err    error  // the cause: the error of the source, ErrGap or ErrNoPosition, or the panic

	number uint32 // of the lasting gap that ended the Reader; 0 if none did
}

func (e *Lost) Error() string {
	return fmt.Sprintf("blocklog: stream lost after cursor %q: %v", e.Cursor, e.Err)
}

func (e *Lost) Unwrap() error { return e.Err }

// Options configure a Log. A field that is zero or negative means the default, except that a negative Silence disables
// it.
type Options[B any] struct {
	Window     int           // number of blocks kept for slow readers; DefaultWindow
	KeptBytes  int           // maximum bytes of unread Eval results; others are evaluated again; DefaultKeptBytes
	MinBackoff time.Duration // minimum wait before a failed source is called again; DefaultMinBackoff
	MaxBackoff time.Duration // maximum wait, at least MinBackoff; DefaultMaxBackoff
	Silence    time.Duration // time without a block after which the stream is not live; DefaultSilence; negative: never
	Logger     *slog.Logger  // receives failures of the source, gaps and panics; slog.Default()
	Events     Events[B]     // receives events of the stream
}

// A Log follows one source for all its readers. All its methods are safe for concurrent use. Create it with [New] and
// end it with [Log.Close].
type Log[B any] struct {
	src        Source[B]
	opts       Options[B]
	ctx        context.Context // passed to the source; done when the Log is closed
	cancel     context.CancelFunc
	done       chan struct{} // closed when busy is 0
	catchingUp atomic.Int64  // number of readers that are catching up

	view          atomic.Pointer[view[B]] // replaced under mu, by the following goroutine
	reached       atomic.Pointer[string]  // highest cursor shown, if it was after the newest block at that time
	lateGaps      atomic.Pointer[[]lateGap[B]]
	gaps          atomic.Uint32             // number of the newest gap, from 1 on; changes under mu
	pageEnd       atomic.Uint64             // number of readers that ended at a gap in stored blocks
	lastingNumber atomic.Uint32             // number of the newest lasting gap, from 1 on; changes under mu
	openGaps      atomic.Pointer[[]openGap] // remain if the log is closed during a search

	workchains atomic.Pointer[[]int32] // all that had a block; written by the following goroutine

	kept         atomic.Int64  // bytes that groups keep
	nextToShrink atomic.Uint64 // counter that selects the next group to discard its items (see shrink)

	// Only the following goroutine uses these. The first two exist to deliver without allocating.
	delivering   []*shareGroup[B]
	wakes        []func()
	startCursor  string // the cursor at which the log started: heads may lack shards without a block since
	recentCalled bool   // Recent has been called before
	rechecks     rechecks[B]

	// eventMu guards these fields, and keeps the Failed and Recovered events in order. It is not acquired while another
	// lock is held, and mu is not acquired while it is held, except to log.
	eventMu      sync.Mutex
	downSince    time.Time // when the first failure since the last block occurred
	lastHeard    time.Time // when the last block came, or the present attempt began
	silenceTimer *time.Timer
	silent       bool // the silence has been reported

	// mu is acquired before a group's own lock. It is never held during an Eval, a Wake or a call to the source.
	mu         sync.Mutex
	started    bool
	busy       int        // goroutines and timers that Close waits for, plus 1 until Close
	positioned bool       // the log has a position in the source; false until Recent has returned, and after reset
	heads      shardHeads // shard heads; written under mu by the following goroutine, which reads them without it
	learned    shardHeads // heads of further shards, from readers that became live since the last block
	delivered  mark       // the mark that every group has reached; before the newest only during a delivery
	first      string     // cursor of the first block of a chain that was empty; else ""
	byKey      map[string]*shareGroup[B]
	groups     []*shareGroup[B] // the groups of byKey in any order, fast to copy
	stats      Stats

	pages        map[string]*page[B]   // pages that are not done, by the cursor that they follow
	future       pageHeap[B]           // pages after the newest block
	queue        pageQueue[B]          // pages that wait for a call of the source
	held         heldPages[B]          // pages that were read, and that their readers may not have finished
	calls        int                   // number of goroutines that read pages
	reading      int                   // number of pages that they are reading
	roomTimer    *time.Timer           // set while queued pages wait until held pages may be dropped
	lastingGaps  map[string]lastingGap // gaps in the source, by the cursor of the block after each
	pageFailures int                   // number since the last log line
	nextPageLine time.Time             // no log line before this time
}

// New returns a Log of src. It does nothing until the first Join or Start.
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
	l.openGaps.Store(new([]openGap))
	l.byKey, l.pages = make(map[string]*shareGroup[B]), make(map[string]*page[B])
	l.lastingGaps = make(map[string]lastingGap)
	l.future.lowest, l.held.limit = true, maxHeldPages
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start starts to follow the source, for hosts that need only [Log.Window]. It returns at once. If the Log already runs
// or is closed, Start does nothing.
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

// An Interest describes the blocks that a Reader needs.
type Interest[B any] struct {
	// Key identifies the evaluation. Readers with equal keys share one Eval per block, that of the first of them, and
	// must have equal Concerns.
	Key string

	// After is the cursor from which to resume. Any cursor is allowed. If it is after the newest block, the Reader
	// waits for the blocks after it. If the source reports that it does not have the cursor, the Reader ends with a
	// [*Lost].
	//
	// Nil means every block that arrives from now on. If the Log does not know its position in the source (it has just
	// been started, or has lost its history), nil means every block after the newest that the source then returns.
	After *string

	// Mark is the Mark of After, as returned by [Reader.Mark], else zero.
	Mark Mark

	// Eval returns the payload of a block, or nil if the block does not match. It must be pure and safe for concurrent
	// use: it is called on goroutines of the Log for a new block, and by Next for an older one. Many Readers share the
	// payload, and must not change it. If Eval panics, its Readers end with a [*Lost].
	Eval func(B) []byte

	// Concerns reports whether a block of a workchain may match. If not, a block that is missing there is no gap for
	// the Reader. Nil means all workchains. It must be pure.
	Concerns func(workchain int32) bool

	// Wake, if not nil, is called when Next may have something new or the Reader has ended. It may be called before
	// Join has returned, for no reason, and once more shortly after the Reader was closed. No lock is held during the
	// call, so it may call the Reader and Join, but it must not block: it delays the next block of all Readers. The
	// Wakes of different Readers may run concurrently.
	//
	// If After is set, blocks may be available from the start: call Next once without waiting for a Wake.
	Wake func()
}

// Join returns a Reader of the payloads of every block after the cursor: first the stored blocks, then each as it
// arrives. It waits neither for the source nor for blocks. The first Join starts to follow the source.
//
// A client may have received its cursor while an earlier block was missing, and left before the gap was found. The
// Reader then ends with ErrGap before its first block.
//
// Join returns ErrClosed if the Log is closed. The caller must close the Reader.
func (l *Log[B]) Join(i Interest[B]) (*Reader[B], error) {
	gaps := l.lateGaps.Load()
	before, gap := firstLateGap(gaps, &i)
	l.mu.Lock()
	for now := l.lateGaps.Load(); now != gaps; now = l.lateGaps.Load() {
		l.mu.Unlock()
		gaps = now
		before, gap = firstLateGap(gaps, &i)
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, ErrClosed
	}
	l.start()
	newest := l.view.Load().newest
	g := l.byKey[i.Key]
	if g == nil {
		g = &shareGroup[B]{key: i.Key, eval: i.Eval, concerns: i.Concerns, slot: len(l.groups)}
		g.keep, g.kept, g.matched = min(groupItems, l.opts.Window), &l.kept, newest.next
		l.byKey[i.Key] = g
		l.groups = append(l.groups, g)
	}
	r := &Reader[B]{log: l, group: g, at: newest, start: newest.cursor, wake: i.Wake, fresh: i.After == nil}
	if r.from = newest.cursor; i.After != nil {
		r.from, r.at, r.start, r.lastReturned = *i.After, mark{catchingUp, *i.After}, "", *i.After
		if r.reportedGap, r.reportedLasting = i.Mark.gaps(), i.Mark.lastings(); i.Mark&markHere != 0 {
			r.sentBack = *i.After
		}
		l.catchingUp.Add(1)
		l.stats.Resumed++
	}
	switch {
	case gap:
		r.at.cursor, r.lost = before, ErrGap
		r.reportedGap = l.gaps.Load()
		l.stats.EndedByGap++
	case i.Mark != 0:
		r.reportedGap = max(r.reportedGap, l.gaps.Load()) // from here on it lacks no block that was found before now
	}
	g.add(r)
	l.stats.Readers++
	return r, nil
}

// Close ends Follow and every Reader: Next returns ErrClosed, and Cursor still returns the position from which to
// resume. Close waits until the source has returned from all calls. If ctx is done first, it returns ctx.Err() and
// leaves the calls to end by themselves; call Close again to continue waiting. It must not be called from a Wake.
func (l *Log[B]) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.ctx.Err() == nil {
		l.cancel()
		for _, p := range l.pages {
			l.stopDelay(p)
		}
		if l.roomTimer != nil && l.roomTimer.Stop() {
			l.taskDone()
		}
		l.taskDone()
	}
	wakes := l.endAll(ErrClosed, nil)
	l.mu.Unlock()
	l.callAll(wakes)
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

// taskDone ends one of the goroutines and timers that Close waits for. Called with mu held.
func (l *Log[B]) taskDone() {
	if l.busy--; l.busy == 0 {
		close(l.done)
	}
}
