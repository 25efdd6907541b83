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
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/plan"
)

// A head is the part of the chain that a value depends on: the newest block of one workchain, or of all.
type head struct {
	workchain int32
	all       bool
	balance   bool // of all if the workchain has none
	blocks    bool // and on gaps before it that are repaired
	page      bool // no longer, once it is known to be final
}

var (
	// Balances and info are final with the blocks of the masterchain.
	ofTheChain = func(plan.Args) any { return head{workchain: masterchain, balance: true} }
	ofNothing  = func(plan.Args) any { return nil }
)

// ofItsBlocks returns the head that a page depends on.
func ofItsBlocks(args plan.Args) any {
	on := head{all: true, blocks: true, page: args[argAfter] != nil || args[argBefore] != nil}
	if workchain, ok := args[argWorkchain].(int); ok {
		on.workchain, on.all = int32(workchain), false
	}
	return on
}

// settling is the age, relative to the newest block, from which a page can be final: until then the source may still
// deliver a block that it skipped.
const settling = time.Minute

// settled returns the cursor up to which nothing will change, and "" if it is unknown.
func settled(w blocklog.Window[Block]) Cursor {
	for i := len(w.Blocks) - 1; i >= 0 && w.Live; i-- {
		if w.Blocks[len(w.Blocks)-1].Time.Sub(w.Blocks[i].Time) >= settling {
			return w.Blocks[i].Cursor
		}
	}
	return "" // blocks before the window may be as new as its first one
}

// final reports whether a page will never change: it lies between two blocks, those at its end are old, and the
// window proves that it is complete. A page of the Backend may have a gap that is filled later. A page that starts
// with the oldest block is not final: older blocks may have been pruned or may still arrive.
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

// A freshness states how long a response to GET may be cached, and its entity tags.
type freshness struct {
	public bool
	// lasting is the tag of a final response, passing that of a response which is valid until the next block arrives
	// or a gap is found; "" if there is none. A page that is not final has a tag only if it was read from the window.
	lasting, passing string
	age              time.Duration // of the latter
	reached          string        // by the window, and how many gaps it had
	gaps             uint64
	static           bool // it depends on nothing but the service itself
}

// fresh returns the freshness of an operation. It is called before the operation runs: what it reads can only be newer.
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

// recheck drops the passing tag if a block that the response depends on arrived while it was produced: the response
// may be from before or after that block, and a tag must name one response. The lasting tag is a different one.
func (h *Handler) recheck(f *freshness, op *plan.Bound, media, project string) {
	if w := h.blocks.Window(); w.Reached == f.reached && w.Gaps == f.gaps {
		return
	}
	if now := h.fresh(op, media, project); now.passing != f.passing {
		f.passing = ""
	}
}

// newest returns the newest relevant block of a window, and the usual interval of such blocks, without the longest
// one, in which the chain may have stopped. If the window has no such block, it returns the start of the window,
// which changes before a block can arrive and leave the window.
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

// known reports whether a client or a proxy has the response already, and whether by its lasting tag.
func (f *freshness) known(header http.Header) (final, known bool) {
	final = gqlhttp.Matches(header, f.lasting)
	return final, final || gqlhttp.Matches(header, f.passing)
}

// keep sets the cache headers of a response without errors. If the host has set Cache-Control, only the tag is set. A
// response with blocks that were read from the Backend has no tag: the Handler would not notice if they changed.
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
		header["Cache-Control"] = gqlhttp.NoStore
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

// notModified responds 304 to a GET.
func notModified(w http.ResponseWriter, f freshness, final bool) {
	f.keep(w.Header(), final, false)
	w.WriteHeader(http.StatusNotModified)
	_ = http.NewResponseController(w).Flush() // as Send does; otherwise net/http does it later
}

// open reports whether shared caches may keep a project's responses: the project is known to have no secret.
func (h *Handler) open(project string) bool {
	switch auth := h.auth.(type) {
	case allowAll:
		return true
	case projectDigests:
		return auth[project].open
	}
	return false
}
