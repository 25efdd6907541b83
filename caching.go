package chaingql

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// Values of headers that all answers share, as those of answer.go.
var (
	varies  = []string{"Authorization, Accept, Origin"}
	noStore = []string{"no-store"}
)

// vary says what answers depend on beside the URL, in addition to what the host
// has said: in one line, for of several nginx 1.22 obeys the last alone.
func vary(header http.Header) {
	if own := header["Vary"]; len(own) > 0 {
		header["Vary"] = []string{strings.Join(own, ", ") + ", " + varies[0]}
		return
	}
	header["Vary"] = varies
}

// A head is what a field's value depends on beside the document: the newest
// block of a workchain, or of all.
type head struct {
	workchain int32
	all       bool
	balance   bool // of all where there is none of the workchain
	blocks    bool // and on gaps before it that are repaired
	page      bool // no longer, once it is known to be final
}

var (
	ofTheChain = func(plan.Args) any { return head{workchain: masterchain, balance: true} } // which are final with its blocks
	ofNothing  = func(plan.Args) any { return nil }
)

// ofItsBlocks is what a page depends on, unless it lies between blocks that are
// there.
func ofItsBlocks(args plan.Args) any {
	on := head{all: true, blocks: true, page: args[argAfter] != nil || args[argBefore] != nil}
	if workchain, ok := args[argWorkchain].(int); ok {
		on.workchain, on.all = int32(workchain), false
	}
	return on
}

// settling is how far behind the newest block a page must lie to be taken for
// final: a source that left out a block may still bring it.
const settling = time.Minute

// settled returns the cursor up to which nothing will change; "" is not known.
func settled(w blocklog.Window[Block]) Cursor {
	for i := len(w.Blocks) - 1; i >= 0 && w.Live; i-- {
		if w.Blocks[len(w.Blocks)-1].Time.Sub(w.Blocks[i].Time) >= settling {
			return w.Blocks[i].Cursor
		}
	}
	return "" // what is before the window may be as new as its first block
}

// final reports whether a page will never change. It lies between two blocks, those at its end are old, and the window
// that it was read from proves that it lacks none: a page of the Backend may have a hole that is filled later. A page
// that begins with the oldest block is not final: earlier ones may have been pruned, or be still to come.
func (r *resolvers) final(q BlocksQuery, blocks []Block, more bool, w blocklog.Window[Block]) bool {
	if q.After == "" && (q.First > 0 || !more) {
		return false
	}
	begin, end := q.After, q.Before
	switch {
	case q.Last > 0 && more:
		begin = blocks[0].Cursor
	case end == "" && q.First > 0 && more:
		end = blocks[len(blocks)-1].Cursor
	}
	return end != "" && end <= settled(w) && r.recent.Complete(w, q.Workchain, string(begin), string(end))
}

// A freshness is how long the answer to a GET may be kept, and how it is known
// again.
type freshness struct {
	public bool
	// The tags of an answer that is final, and of one that is true as long as no block
	// comes and no gap is found; "" if there is none. A page that is not final has a tag
	// only if it was read from the window.
	lasting, passing string
	age              time.Duration // of the latter
	reached          string        // by the window, and how many gaps it had
	gaps             uint64
	static           bool // it depends on nothing but the service itself
}

// fresh judges what an operation depends on, before it is run: what it reads
// may only be newer.
func (h *Handler) fresh(op *plan.Bound, media, project string) freshness {
	w := h.blocks.Window()
	f := freshness{public: h.open(project), static: true, reached: w.Reached, gaps: w.Gaps}
	mayLast := true
	var heads strings.Builder
	var known head
	blocks := false
	for what := range op.Depends() {
		on, ok := what.(head)
		if !ok {
			return freshness{} // anything may have changed
		}
		mayLast, blocks = mayLast && on.page, blocks || on.blocks
		if on.page = false; !f.static && on == known {
			continue // as those of many accounts are
		}
		known = on
		cursor, pace := newest(w, on)
		heads.WriteString(cursor)
		heads.WriteByte(' ')
		if f.static || pace < f.age {
			f.age = pace
		}
		f.static = false
	}
	sum := sha256.Sum256(op.Identity([]byte(h.edition + media + " ")))
	identity := hex.EncodeToString(sum[:16])
	if mayLast {
		f.lasting = `"` + identity + `"`
	}
	if blocks { // which a repair changes, as this process knows it
		fmt.Fprint(&heads, h.id, " ", w.Gaps)
	}
	if w.Live && !f.static {
		sum := sha256.Sum256([]byte(heads.String()))
		f.passing = `"` + identity + "-" + hex.EncodeToString(sum[:8]) + `"`
	}
	return f
}

// recheck drops the tag of an answer during whose production a block came that it depends on: the answer may be of before
// or after that block, and a tag names one answer. A final answer has a tag of its own.
func (h *Handler) recheck(f *freshness, op *plan.Bound, media, project string) {
	if w := h.blocks.Window(); w.Reached == f.reached && w.Gaps == f.gaps {
		return
	}
	if now := h.fresh(op, media, project); now.passing != f.passing {
		f.passing = ""
	}
}

// newest returns the newest block of a window that counts, and how fast they
// come, leaving the longest time between two aside, in which the chain may have
// stood; where there is no block, the window's beginning, which is another one
// before such a block can have come and gone.
func newest(w blocklog.Window[Block], on head) (cursor string, pace time.Duration) {
	var first, last *Block
	var longest time.Duration
	n := 0
	for i := len(w.Blocks) - 1; i >= 0 && n < paceBlocks; i-- {
		b := &w.Blocks[i]
		if !on.all && b.Workchain != on.workchain {
			continue
		}
		if last == nil {
			last = b
		} else {
			longest = max(longest, first.Time.Sub(b.Time))
		}
		first = b
		n++
	}
	switch {
	case last != nil:
		return string(last.Cursor), (last.Time.Sub(first.Time) - longest) / time.Duration(max(n-2, 1))
	case on.balance: // of a chain without a masterchain, say
		return newest(w, head{all: true})
	}
	return "after " + w.After, 0
}

// known reports whether a client or a proxy has the answer already. A final one
// is known to be final from when it was given.
func (f *freshness) known(header http.Header) (final, known bool) {
	for _, line := range header["If-None-Match"] {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag != "" && (tag == f.lasting || tag == f.passing) {
				return tag == f.lasting, true
			}
		}
	}
	return false, false
}

// keep says in an answer's header how long it may be kept: for ever if it is
// final. It must have no errors. What the host has said of that already stands,
// of an answer that may be kept. An answer with stored blocks, which were read from
// the Backend, has no tag: the Handler would not notice if they changed.
func (f *freshness) keep(header http.Header, final, stored bool) {
	tag, how := f.passing, "no-cache"
	switch seconds := int(f.age.Seconds()); {
	case f.static:
		tag = f.lasting
	case final:
		tag, how = f.lasting, "max-age=31536000, immutable"
	case f.passing != "" && seconds > 0:
		how = "max-age=" + strconv.Itoa(seconds)
	}
	if tag == "" || stored && how == "no-cache" {
		header["Cache-Control"] = noStore
		return
	}
	if !stored {
		header.Set("ETag", tag)
	}
	if header["Cache-Control"] != nil {
		return
	}
	scope := "private, "
	if f.public {
		scope = "public, "
	}
	header.Set("Cache-Control", scope+how)
}

// notModified answers a GET whose answer is known.
func notModified(w http.ResponseWriter, f freshness, final bool) {
	f.keep(w.Header(), final, false)
	w.WriteHeader(http.StatusNotModified)
	_ = http.NewResponseController(w).Flush() // as write does; who cannot is left to net/http
}

// open reports whether a project's answers may be kept by proxies: it is known
// to have no secret.
func (h *Handler) open(project string) bool {
	switch auth := h.auth.(type) {
	case everybody:
		return true
	case digests:
		return auth[project].open
	}
	return false
}
