package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// linesPerSecond is the maximum number of log lines per second for equal failures. One more line then counts all
	// others.
	linesPerSecond = 3

	// maxFailureKinds is the maximum number of different failures that are distinguished within a second, and
	// maxRequestFailures the maximum within a request. All others count as equal.
	maxFailureKinds    = 16
	maxRequestFailures = 8

	// maxFailureKey is the maximum size in bytes of the text by which failures are compared.
	maxFailureKey = 200
)

// A FailureLog logs failures of the host's code. Because a database that is down makes every request fail, the
// FailureLog limits the lines for equal failures. A failure without a line of its own has the id of the line that
// counts it.
type FailureLog struct {
	log *slog.Logger

	mu      sync.Mutex
	kinds   map[string]*failureKind
	writing int       // number of held lines that are being written
	written sync.Cond // signals that writing is 0
}

// A failureKind counts the lines for equal failures within a second.
type failureKind struct {
	ends  time.Time
	lines int
	held  *failureLine // counts the failures beyond linesPerSecond; nil if there are none
	timer *time.Timer  // writes held
}

// A failureLine is a log line for one or more equal failures. FailureLog.mu guards the counts.
type failureLine struct {
	level      slog.Level
	message    string
	id         string // what the clients received; empty if none did
	attrs      []slog.Attr
	err        error
	ctx        context.Context
	held       bool
	failures   int // number of failures
	suppressed int // number of lines that this line replaces, if it is held
}

// NewFailureLog returns a FailureLog that writes to log.
func NewFailureLog(log *slog.Logger) *FailureLog {
	l := &FailureLog{log: log, kinds: map[string]*failureKind{}}
	l.written.L = &l.mu
	return l
}

// Report logs one failure outside of a request.
func (l *FailureLog) Report(ctx context.Context, message string, err error, attrs ...slog.Attr) {
	if line := l.open(ctx, slog.LevelError, message, "", err, attrs...); !line.held {
		l.write(line)
	}
}

// open returns the log line that counts a failure: a new one with this id, which the caller must write, or the one that
// is held back until the end of the second.
func (l *FailureLog) open(
	ctx context.Context, level slog.Level, message, id string, err error, attrs ...slog.Attr,
) *failureLine {
	key := fmt.Sprint(message, attrs, failureKey(err))
	line := &failureLine{level: level, message: message, id: id, attrs: attrs, err: err, ctx: ctx, failures: 1}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kindOf(key, now)
	switch {
	case k.lines < linesPerSecond:
		k.lines++
		return line
	case k.held == nil:
		line.held, k.held = true, line
		k.timer = time.AfterFunc(k.ends.Sub(now), func() { l.release(k) })
	default:
		k.held.failures++
	}
	k.held.suppressed++
	return k.held
}

// kindOf returns the kind of failures with this key. Called with mu held.
func (l *FailureLog) kindOf(key string, now time.Time) *failureKind {
	over := func(k *failureKind) bool { return k.held == nil && !now.Before(k.ends) }
	if k := l.kinds[key]; k != nil && !over(k) {
		return k
	}
	delete(l.kinds, key)
	if len(l.kinds) >= maxFailureKinds {
		for other, k := range l.kinds {
			if over(k) {
				delete(l.kinds, other)
			}
		}
	}
	if len(l.kinds) >= maxFailureKinds && key != "" {
		return l.kindOf("", now)
	}
	k := &failureKind{ends: now.Add(time.Second)}
	l.kinds[key] = k
	return k
}

// again counts another failure in a log line.
func (l *FailureLog) again(line *failureLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.failures++
}

// release writes the held line of k, if there is one.
func (l *FailureLog) release(k *failureKind) {
	l.mu.Lock()
	line := k.held
	if line == nil { // Flush was faster than the timer
		l.mu.Unlock()
		return
	}
	k.held = nil
	k.timer.Stop()
	l.writing++
	l.mu.Unlock()
	l.write(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing--; l.writing == 0 {
		l.written.Broadcast()
	}
}

func (l *FailureLog) write(line *failureLine) {
	l.mu.Lock()
	failures, suppressed := line.failures, line.suppressed
	l.mu.Unlock()
	attrs := slices.Clip(line.attrs)
	if line.id != "" {
		attrs = append(attrs, slog.String("id", line.id))
	}
	attrs = append(attrs, Error(line.err), slog.Int("failures", failures), Stack(line.err))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	l.log.LogAttrs(line.ctx, line.level, line.message, attrs...)
}

// Flush writes the held lines, and waits for those that are being written.
func (l *FailureLog) Flush() {
	l.mu.Lock()
	kinds := slices.Collect(maps.Values(l.kinds))
	l.mu.Unlock()
	for _, k := range kinds {
		l.release(k)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.writing > 0 {
		l.written.Wait()
	}
}

// A FailureReport has the lines for the failures of one request.
type FailureReport struct {
	log   *FailureLog
	keys  []string
	lines []*failureLine
}

// NewReport returns the report of one request. The caller must call its Done.
func (l *FailureLog) NewReport() *FailureReport { return &FailureReport{log: l} }

// Add counts a failure of the request, which is logged with this level and message. It returns the id of the line that
// counts the failure, which the client may receive.
func (r *FailureReport) Add(ctx context.Context, level slog.Level, message string, err error) (id string) {
	key := message + failureKey(err)
	i := slices.Index(r.keys, key)
	if i < 0 && len(r.keys) == maxRequestFailures {
		i = 0
	}
	if i >= 0 {
		r.log.again(r.lines[i])
		return r.lines[i].id
	}
	line := r.log.open(ctx, level, message, newFailureID(), err)
	r.keys, r.lines = append(r.keys, key), append(r.lines, line)
	return line.id
}

// Done writes the lines of the request.
func (r *FailureReport) Done(context.Context) {
	for _, line := range r.lines {
		if !line.held {
			r.log.write(line)
		}
	}
}

// failureKey returns a text that is the same for equal failures. It is the error without words that contain digits,
// because these may be addresses, numbers or times. For a panic, it also has the place in the code.
func failureKey(err error) string {
	text := ""
	_ = Run(func() { text = err.Error() })
	key := make([]byte, 0, maxFailureKey)
	for len(text) > 0 && len(key) < maxFailureKey {
		word := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		switch {
		case word == 0:
			word = 1
		case word < 0:
			word = len(text)
		}
		if !strings.ContainsAny(text[:word], "0123456789") {
			key = append(key, text[:word]...)
		}
		text = text[word:]
	}
	return string(key[:min(len(key), maxFailureKey)]) + Place(err)
}

func newFailureID() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}
