package blocklog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// These constants are the default values of the fields of [Options] with the same names.
const (
	DefaultWindow      = 1024
	DefaultWindowBytes = 64 << 20
	DefaultKeptBytes   = 32 << 20
	DefaultMinBackoff  = 100 * time.Millisecond
	DefaultMaxBackoff  = 2 * time.Second
	DefaultSilence     = 30 * time.Second
)

// ErrClosed is returned by [Log.Join] after the Log is closed, and by [Reader.Next] after the Log or the Reader is
// closed.
var ErrClosed = errors.New("blocklog: the log or the reader is closed")

// ErrOutage is the cause of a [Lost] if the source was not live for Options.Outage.
var ErrOutage = errors.New("blocklog: the source has been lost for too long")

// ErrGap is the cause of a [Lost] if a Reader cannot receive a missing block in its place: the Log found the gap only
// after it had delivered later blocks to the Reader, or the source does not have the block. The client must join again
// with Lost.Cursor.
var ErrGap = errors.New("blocklog: a block is missing")

// A Lost is the error that ends a Reader because its stream cannot continue. Possible causes are: the source no longer
// has the blocks after the Reader's position, a block is missing, the Log did not know its position in the source, or
// the Reader's Eval panicked.
//
// The Reader has received every matching block up to Cursor and no block after it. The exception is ErrGap: then the
// Reader may have received blocks after Cursor. A Reader that joins with Cursor receives all of those blocks again.
type Lost struct {
	// Cursor is the position from which to resume.
	Cursor string

	// Err is the cause: the error of the source, ErrGap, ErrNoPosition, or the recovered panic.
	Err error

	number uint32 // number of the permanent gap that ended the Reader; 0 if another cause did
}

// Error returns the cursor and the cause as text.
func (e *Lost) Error() string {
	return fmt.Sprintf("blocklog: stream lost after cursor %q: %v", e.Cursor, e.Err)
}

// Unwrap returns Err.
func (e *Lost) Unwrap() error { return e.Err }

// Options configures a [Log]. A field that is zero or negative has its default value, except that a negative Silence
// disables the detection of silence.
type Options[B any] struct {
	// Window is the number of the newest blocks that the Log keeps in memory, for slow Readers.
	Window int

	// WindowAge is the time for which the Log keeps a block that arrived, even if there are more than Window newer
	// ones. Zero turns it off.
	WindowAge time.Duration

	// WindowBytes is the maximum memory in bytes of the blocks that are kept because of Window and WindowAge. The
	// newest block is kept even if it is larger.
	WindowBytes int

	// KeptBytes is the maximum size in bytes of all Eval results that Readers have not read yet. If there are more, the
	// Log discards results, and slow Readers evaluate those blocks again.
	KeptBytes int

	// MinBackoff is the minimum wait before a failed source is called again.
	MinBackoff time.Duration

	// MaxBackoff is the maximum wait before a failed source is called again. The wait grows with each failure. If
	// MaxBackoff is less than MinBackoff, MinBackoff is used. See also [Log.Retry].
	MaxBackoff time.Duration

	// Silence is the time without a new block after which the source counts as stalled. A source that is not live is
	// checked in any case.
	Silence time.Duration

	// DownSince is the time from which the source counts as failed. When the first block arrives, Recovered is called,
	// as after any failure. Zero means that the source has not failed.
	DownSince time.Time

	// Outage is the time after which Readers end with ErrOutage if the source is not live. Zero means that they wait
	// for it. Readers that join later end after that time again.
	Outage time.Duration

	// Logger receives log lines about failures of the source, gaps and panics. Default: slog.Default().
	Logger *slog.Logger

	// Events contains the functions that the Log calls when something happens in the stream.
	Events Events[B]
}

// A Log follows one source for all its readers. All its methods are safe for concurrent use. Create a Log with [New]
// and end it with [Log.Close].
type Log[B any] struct {
	src        Source[B]
	opts       Options[B]
	ctx        context.Context // passed to the source; canceled when the Log is closed
	cancel     context.CancelFunc
	done       chan struct{} // closed when busy is 0
	retry      chan struct{} // a failed source may answer again; see Retry
	catchingUp atomic.Int64  // number of readers that are catching up

	view            atomic.Pointer[view[B]]     // replaced under mu by run's goroutine
	state           atomic.Pointer[SourceState] // replaced under eventMu
	retryable       atomic.Bool                 // run waits, and Retry may end the wait
	reached         atomic.Pointer[string]      // highest cursor that clients may have seen before it was in the window
	lateGaps        atomic.Pointer[[]lateGap[B]]
	gaps            atomic.Uint32             // number of the newest gap, at first 1; changes under mu
	pageEnd         atomic.Uint64             // number of readers that ended because of a gap in stored blocks
	permanentNumber atomic.Uint32             // number of the newest permanent gap, at first 0; changes under mu
	openGaps        atomic.Pointer[[]openGap] // not cleared if the log is closed during a search

	workchains atomic.Pointer[[]int32] // all workchains that had a block; written by run's goroutine

	kept         atomic.Int64  // size of the payloads that all groups keep, in bytes
	nextToShrink atomic.Uint64 // counter with which shrink selects the next group
	postponed    postponedList[B]

	// Only run's goroutine uses these fields. It reuses delivering and wakes to deliver without allocating.
	delivering   []*shareGroup[B]
	wakes        []xsync.Waker
	startCursor  string // the newest cursor when the log started; heads may lack shards without a block after it
	recentCalled bool   // Recent has been called before
	gone         bool   // Follow has reported that the log's position is gone, and has yielded no new block since
	rechecks     rechecks[B]

	// eventMu guards these fields and keeps the Failed and Recovered events in order. It is acquired before any other
	// lock. The host's logger and event functions run while it is held.
	eventMu      sync.Mutex
	downSince    time.Time // time of the first failure since the last block; zero if there was none
	lastHeard    time.Time // arrival of the last block or, if later, start of the current attempt
	silenceTimer *time.Timer
	silent       bool        // the silence has been reported
	outageTimer  *time.Timer // set while the source is not live, if Options.Outage is set

	// mu is acquired before the lock of a group. It is never held during an Eval, a Wake or a call of the source.
	mu         sync.Mutex
	started    bool
	busy       int        // number of goroutines and timers that Close waits for, plus 1 until Close is called
	positioned bool       // the log has a position in the source; false until Recent has returned, and after reset
	heads      shardHeads // written under mu by run's goroutine, which reads it without mu
	shared     shardHeads // an immutable copy of heads for pages; outdated if it differs
	learned    shardHeads // heads of shards that heads lacks, from readers that became live since the last block
	delivered  position   // the position that all groups have reached; before view.newest only during a delivery
	first      string     // cursor of the chain's first block if the log saw the chain empty; otherwise ""
	byKey      map[string]*shareGroup[B]
	groups     []*shareGroup[B] // the groups of byKey, the active ones first; a slice is fast to copy
	active     int              // number of groups to which the next block is delivered; all others are postponed
	stats      Stats

	pages         map[string]*page[B]         // pages that are not done, by page.after
	clients       map[*Client]*clientPages[B] // the clients with counted pages
	future        pageHeap[B]                 // pages with a cursor after the newest block
	deliveries    pageLane[B]                 // pages for readers that find blocks, or have just begun
	searches      pageLane[B]                 // pages for readers that search
	calls         int                         // number of goroutines that read pages
	roomTimer     *time.Timer                 // set while queued pages wait until held pages may be dropped
	permanentGaps map[string]permanentGap     // gaps in stored blocks, by the cursor of the block after the gap
	pageFailures  int                         // number of failed page reads since the last log line about them
	nextPageLine  time.Time                   // earliest time of the next log line about failed page reads
}

// New returns a Log that follows src. The Log does not call src before the first Join or Start.
func New[B any](src Source[B], o Options[B]) *Log[B] {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.WindowBytes <= 0 {
		o.WindowBytes = DefaultWindowBytes
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
	switch {
	case o.Silence == 0:
		o.Silence = DefaultSilence
	case o.Silence < 0:
		o.Silence = 1 << 62 // 146 years
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if src.Gone == nil {
		src.Gone = func(error) bool { return false }
	}
	l := &Log[B]{src: src, opts: o, done: make(chan struct{}), retry: make(chan struct{}, 1), downSince: o.DownSince}
	l.view.Store(&view[B]{})
	l.state.Store(&SourceState{Since: time.Now()})
	l.gaps.Store(1)
	l.workchains.Store(new([]int32))
	l.openGaps.Store(new([]openGap))
	l.byKey, l.pages = make(map[string]*shareGroup[B]), make(map[string]*page[B])
	l.permanentGaps, l.clients = make(map[string]permanentGap), make(map[*Client]*clientPages[B])
	l.busy, l.future.lowest = 1, true
	l.deliveries.held.limit, l.searches.held.limit = maxHeldPages, maxHeldSearches
	l.deliveries.calls, l.searches.calls = pageCalls, searchCalls
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start makes the Log follow the source and returns at once. The first Join does the same, so only hosts that use
// [Log.Window] without a Reader need Start. If the Log has been started or closed, Start does nothing.
func (l *Log[B]) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
}

func (l *Log[B]) start() {
	if !l.started && l.ctx.Err() == nil {
		l.started = true
		l.state.Store(&SourceState{Since: time.Now()})
		l.busy++
		go l.run()
	}
}

// Join returns a Reader that yields the payload of every matching block after i.After: first of the stored blocks, then
// of each new block as it arrives. Join waits neither for the source nor for blocks. The first Join makes the Log
// follow the source.
//
// A client may have received its cursor while an earlier block was missing, and left before the gap was found. When the
// client resumes, its Reader ends with ErrGap before the first block.
//
// Join returns ErrClosed if the Log is closed. The caller must close the Reader.
func (l *Log[B]) Join(i Interest[B]) (*Reader[B], error) {
	if i.After != nil { // it may be part of a long string, and pages that outlive the Reader keep it
		own := strings.Clone(*i.After)
		i.After = &own
	}
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
		g = &shareGroup[B]{log: l, key: i.Key, eval: i.Eval, concerns: i.Concerns, slot: len(l.groups)}
		g.keep, g.matched = int32(min(groupItems, l.opts.Window)), newest.next
		g.search = int32(min(cmp.Or(i.SearchBlocks, maxSearchBlocks), maxSearchBlocks))
		l.byKey[i.Key] = g
		l.groups = append(l.groups, g)
		l.setActive(g, true)
	}
	r := i.Reader
	if r == nil {
		r = new(Reader[B])
	}
	*r = Reader[B]{group: g, at: newest, start: newest.cursor, wake: i.Wake, client: i.Client, fresh: i.After == nil}
	if r.from = newest.cursor; i.After != nil {
		r.from, r.at, r.start, r.lastReturned = *i.After, position{catchingUp, *i.After}, "", *i.After
		r.reportedGap, r.reportedPermanent = i.Reported.newest(), i.Reported.permanent()
		r.sentBack = i.Reported&sentBackHere != 0
		l.catchingUp.Add(1)
		l.stats.Resumed++
	}
	switch {
	case gap:
		r.at.cursor, r.lost = before, ErrGap
		r.reportedGap = l.gaps.Load()
		l.stats.EndedByGap++
	case i.Reported != 0:
		r.reportedGap = max(r.reportedGap, l.gaps.Load()) // no gap found before now can affect it any more
	}
	g.add(r)
	l.stats.Readers++
	return r, nil
}

// Close stops following the source and ends every Reader: Next returns ErrClosed, and Cursor still returns the position
// from which to resume. Close waits until all calls of the source have returned. If ctx is done first, Close returns
// ctx.Err() and does not wait for the remaining calls; call Close again to wait for them. Wake functions must not call
// Close.
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
