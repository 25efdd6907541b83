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

// A dependency is the part of the chain on which a value in a response depends: the newest block of one workchain, or
// of all workchains.
type dependency struct {
	workchain int32
	all       bool // all workchains
	balance   bool // if the workchain has no blocks, the value depends on all workchains
	blocks    bool // the value also depends on repaired gaps before the newest block
	page      bool // the value depends on nothing more once the page is known to be final
}

var (
	// onMasterchain is the dependency of balances, which change only with a block of the masterchain.
	onMasterchain = func(plan.Args) any { return dependency{workchain: masterchain, balance: true} }
	// onNothing is the dependency of values that do not depend on the chain.
	onNothing = func(plan.Args) any { return nil }
	// onAllBlocks is the dependency of values that any block may change.
	onAllBlocks = func(plan.Args) any { return dependency{all: true, blocks: true} }
)

// onPage returns the dependency of a page of blocks. A range of masterchain blocks may end at the newest one, so a page
// of it also changes with the masterchain, whatever its workchain. If the chain has an epoch, a page between cursors
// without it, or between numbers, is never final, because a cache would keep the page after the chain was replaced.
func (r *resolvers) onPage(args plan.Args) any {
	bounded := args[argAfter] != nil || args[argBefore] != nil || args[argMasterRange] != nil
	on := dependency{all: true, blocks: true, page: bounded}
	if suffix := r.chains.current().suffix; suffix != "" {
		on.page = bounded && args[argMasterRange] == nil
		for _, arg := range []int{argAfter, argBefore} {
			cursor, ok := args[arg].(string)
			on.page = on.page && (!ok || len(cursor) <= maxClientCursor && strings.Contains(cursor, suffix))
		}
	}
	if workchain, ok := args[argWorkchain].(int); ok && args[argMasterRange] == nil {
		on.workchain, on.all = int32(workchain), false
	}
	return on
}

// settling is the minimum age of the blocks in a final page, relative to the newest block. Until then, the source may
// still deliver a block that it skipped.
const settling = time.Minute

// settled reports whether the chain will not change any more up to the cursor end.
func settled(w blocklog.Window[Block], end Cursor) bool {
	i, _ := place(w.Blocks, end)
	return w.Live && i < len(w.Blocks) && w.Blocks[len(w.Blocks)-1].Time.Sub(w.Blocks[i].Time) >= settling
}

// final reports whether a page will never change: it lies between two cursors, the blocks at its end are old, and the
// window shows that it is complete. A page from the Backend is not final, because it may have a gap that is filled
// later. A page that starts with the oldest block is not final, because that block may be pruned, or older ones may
// still arrive.
func (c *chain) final(q *pageQuery, blocks *blocklog.List[Block], more bool, w *blocklog.Window[Block]) bool {
	if q.after == "" && (q.first > 0 || !more) {
		return false
	}
	begin, end := q.after, q.before
	switch {
	case q.last > 0 && more:
		begin = blocks.At(0).Cursor
	case end == "" && q.first > 0 && more:
		end = blocks.At(blocks.Len() - 1).Cursor
	}
	var workchain *int32
	if q.in.ByWorkchain {
		workchain = &q.in.Workchain
	}
	return end != "" && settled(*w, end) && c.blocks.Complete(*w, workchain, string(begin), string(end))
}

// A freshness contains the cache headers that a response to GET or QUERY may have.
type freshness struct {
	public bool // shared caches may store the response
	// finalTag is the entity tag of the response if no later block can change the response. currentTag is its entity
	// tag if the response is valid until the next block arrives or a gap is found. "" means that there is no such tag.
	// A page that is not final has a tag only if it was read from the window.
	finalTag, currentTag string
	age                  time.Duration // how long a response with currentTag may be cached
	maxAge               time.Duration // Options.MaxCacheAge; 0 if not set
	reached              string        // the window's Reached when the tags were computed
	gaps                 uint64        // the window's Gaps when the tags were computed
	static               bool          // the response depends on nothing but the service itself
	chain                *chain        // the chain on which the tags depend
}

// fresh returns the freshness of an operation. It is called before the operation runs, so the data that the operation
// reads cannot be older than the tags.
func (h *Handler) fresh(op *plan.Bound, media, project string) *freshness {
	c := h.chains.current()
	w := c.blocks.Window()
	f := &freshness{
		public: h.open(project), maxAge: h.opts.MaxCacheAge, static: true, reached: w.Reached, gaps: w.Gaps, chain: c,
	}
	mayLast := true
	var heads strings.Builder
	var known dependency
	blocks := false
	for what := range op.Depends() {
		on, ok := what.(dependency)
		if !ok {
			return &freshness{chain: c} // anything may have changed
		}
		mayLast, blocks = mayLast && on.page, blocks || on.blocks
		if on.page = false; !f.static && on == known {
			continue // many accounts have the same dependency
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
	sum := sha256.Sum256(op.Identity([]byte(h.edition + media + c.suffix + " ")))
	identity := hex.EncodeToString(sum[:16])
	if mayLast {
		f.finalTag = `"` + identity + `"`
	}
	if blocks { // a repaired gap changes them; each process counts its own gaps
		fmt.Fprint(&heads, c.id, " ", w.Gaps)
	}
	if w.Live && !f.static {
		sum := sha256.Sum256([]byte(heads.String()))
		f.currentTag = `"` + identity + "-" + hex.EncodeToString(sum[:8]) + `"`
	}
	return f
}

// recheck drops currentTag if a block that the response depends on arrived while the response was produced. The
// response may be from before or after that block, but a tag must identify one response. finalTag is not affected.
func (h *Handler) recheck(f *freshness, op *plan.Bound, media, project string) {
	c := h.chains.current()
	if w := c.blocks.Window(); c == f.chain && w.Reached == f.reached && w.Gaps == f.gaps {
		return
	}
	if now := h.fresh(op, media, project); now.currentTag != f.currentTag {
		f.currentTag = ""
	}
}

// newest returns the cursor of the newest block in the window that belongs to a dependency, and the average interval
// between such blocks. The longest interval is not counted, because the chain may have stopped during it. If the window
// has no such block, newest returns the start of the window instead of a cursor: it changes before a block can arrive
// and leave the window again.
func newest(w blocklog.Window[Block], on dependency) (cursor string, pace time.Duration) {
	var f blocklog.Filter
	if !on.all {
		f = blocklog.Filter{ByWorkchain: true, Workchain: on.workchain}
	}
	blocks := w.Select(f)
	end := blocks.Len()
	begin := max(0, end-paceBlocks)
	switch {
	case begin < end:
		var longest time.Duration
		for i := begin + 1; i < end; i++ {
			longest = max(longest, blocks.At(i).Time.Sub(blocks.At(i-1).Time))
		}
		last := blocks.At(end - 1)
		span := last.Time.Sub(blocks.At(begin).Time) - longest
		return string(last.Cursor), span / time.Duration(max(end-begin-2, 1))
	case on.balance: // the chain may have no masterchain
		return newest(w, dependency{all: true})
	}
	return "after " + w.After, 0
}

// known reports whether the client or a proxy already has the response. final reports whether no later block can change
// it. If Options.MaxCacheAge is set, an expired response is sent again even if it is final, because the host may want
// to recall it.
func (f *freshness) known(header http.Header) (final, known bool) {
	final = (f.maxAge == 0 || f.static) && gqlhttp.Matches(header, f.finalTag)
	return final, final || gqlhttp.Matches(header, f.currentTag)
}

// keep sets the cache headers of a response without errors. If the host has set Cache-Control, keep sets only the tag.
// A response with blocks that were read from the Backend has no tag, because the Handler would not notice if these
// blocks changed.
func (f *freshness) keep(header http.Header, final, stored bool) {
	tag, how, age := f.currentTag, "no-cache", f.age
	if final = final && f.finalTag != ""; f.maxAge > 0 && (final || age > f.maxAge) {
		age = f.maxAge
	}
	switch {
	case f.static:
		tag = f.finalTag
	case final && f.maxAge == 0:
		tag, how = f.finalTag, "max-age=31536000, immutable"
	case (final || tag != "") && age >= time.Second:
		how = "max-age=" + strconv.Itoa(int(age.Seconds()))
	}
	if how == "no-cache" && (tag == "" || stored) {
		header["Cache-Control"] = gqlhttp.NoStore
		return
	}
	if tag != "" && !stored {
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

// notModified responds to a GET or QUERY with status 304.
func (h *Handler) notModified(w http.ResponseWriter, r *http.Request, f *freshness, final bool) {
	f.keep(w.Header(), final, false)
	h.writeHeader(w, r, h.statusCode(statusNotModified, ""))
}

// open reports whether shared caches may store a project's responses, because the project is known to have no secret.
func (h *Handler) open(project string) bool {
	switch auth := h.auth.(type) {
	case allowAll:
		return true
	case projectDigests:
		return auth[project].open
	}
	return false
}
