package attack

import (
	"fmt"
	"strings"
)

// boundaries returns, for each limit, documents that just meet the limit and documents that exceed it.
// The error must name the exceeded limit.
func boundaries() []attack {
	var all []attack
	for _, e := range []struct {
		limit string // as in the error message
		max   int
		text  func(n int) string
	}{
		{"limit of 50 aliases", 50, func(n int) string { return "{info{" + times(n, "a#:version ") + "}}" }},
		{"limit of 32 directives", 32, func(n int) string {
			return "{" + times(n, "...@skip(if:false){info{version}}") + "}"
		}},
		{"limit of 8 fields of one name", 8, func(n int) string { return "{info{" + times(n, "version ") + "}}" }},
		{"limit of 8 operations", 8, func(n int) string { return times(n, "query Q#{info{version}}") }},
		{"limit of 32 fragments", 32, func(n int) string {
			return "{" + times(n, "...F# ") + "}" + times(n, "fragment F# on Query{info{version}}")
		}},
		{"limit of 32 variables", 32, func(n int) string {
			return "query(" + times(n, "$v#:Boolean=true ") +
				"){" + times(n, "...@include(if:$v#){info{version}}") + "}"
		}},
		{"limit of 100 items", 100, func(n int) string {
			return `subscription{blocks(filter:{id:{in:[` + times(n, `"a"`) + `]}}){id}}`
		}},
		{"limit of 1500 fields", 1500, func(n int) string {
			return "{" + times((n-2)/2, "...F ") + "info{" + times((n-2)%2+1, "version ") +
				"}}fragment F on Query{info{version}}"
		}},
		{"limit of 2000 tokens", 2000, func(n int) string {
			return "{info{version" + strings.Repeat("#\n", n-6) + "}}"
		}},
		{"limit of 32768 bytes", 32 << 10, func(n int) string { return "{info{version}}" + strings.Repeat(",", n-15) }},
	} {
		within := "answered|operation name|406"
		all = append(all,
			doc("exactly the "+e.limit, within, e.text(e.max)),
			doc("one over the "+e.limit, "400 LIMIT_EXCEEDED "+e.limit, e.text(e.max+1)),
			doc("twice the "+e.limit, "400 LIMIT_EXCEEDED limit of", e.text(2*e.max)),
		)
	}
	// A subscription keeps its variables, which need a few bytes in addition to their text.
	for _, kept := range []struct {
		bytes int
		want  string
	}{{4000, "no answer on an open stream"}, {4100, "LIMIT_EXCEEDED limit of 4096 bytes"}} {
		all = append(all, plain(fmt.Sprintf("variables of a subscription, %d bytes", kept.bytes), kept.want,
			func(s *target) (outcome, error) {
				s.timeout = usual / 2
				return s.follow(request("POST", path, ofVariable(kept.bytes), "Accept: text/event-stream"))
			}))
	}
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, n := range []int{18, 19, 20, 21, 100, 10_000} {
		want := answered
		if n > 19 { // because the body itself counts as a level
			want = "400 LIMIT_EXCEEDED limit of 20 nested levels"
		}
		all = append(all, body(fmt.Sprintf("variables of %d levels", n), want,
			`{"query":"{info{version}}","variables":`+deep(n)+`}`))
		if n > 20 {
			all = append(all, body(fmt.Sprintf("extensions of %d levels", n), want,
				`{"query":"{info{version}}","extensions":`+deep(n)+`}`))
		}
	}
	for _, over := range []int{-1, 0, 1, 1000} {
		const start = `{"query":"{info{version}}"`
		text := start + strings.Repeat(" ", 128<<10+over-len(start+"}")) + "}"
		want := answered
		if over > 0 {
			want = "413 LIMIT_EXCEEDED limit of 131072 bytes"
		}
		all = append(all, body(fmt.Sprintf("body of 128 KiB and %d bytes", over), want, text))
	}
	return all
}
