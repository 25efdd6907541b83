package attack

import (
	"fmt"
	"strings"
	"time"
)

// An attack is one hostile thing that a client does.
type attack struct {
	name string // says in its family what is done
	// want is what may come of it: alternatives, separated by "|", of words that
	// must all be in the outcome. Any other outcome is a failure.
	want   string
	within time.Duration // the time it may take
	effort time.Duration // the processor time of the server's it may take; 0 is not looked at
	do     func(s *site) (outcome, error)
	body   func() string // is posted where there is no do; making it takes none of the time
}

// An outcome is what came of an attack. Its class is the code of a refusal,
// "answered", "served" (a socket or stream that works), "held" (connections that
// stay open), "closed" with a WebSocket close code, "cut" (the connection ended
// without a word), "net/http" (refused before the handler saw it), or "no answer".
type outcome struct{ class, text string }

func (o outcome) String() string { return strings.TrimSpace(o.class + " " + o.text) }

// meets reports whether an outcome is one that was wanted.
func (o outcome) meets(want string) bool {
	text := o.String()
	for alternative := range strings.SplitSeq(want, "|") {
		all := true
		for word := range strings.FieldsSeq(alternative) {
			all = all && strings.Contains(text, word)
		}
		if all {
			return true
		}
	}
	return false
}

// A family is attacks of one kind.
type family struct {
	name    string
	attacks []attack
	// apart is that they are done on a server of the family's own, beside the
	// other families; atOnce that so are all of them, since they wait for timeouts.
	apart, atOnce bool
	kind          string // of that server, if not strong
	recent        bool   // that honest clients ask for no more than recent blocks meanwhile
	// honest is the time in which honest queries must be answered, if not a second.
	honest time.Duration
	peak   int64 // what the server's RSS may grow by meanwhile, where that is more than maxPeak
}

// What attacks may take unless they say otherwise: time that a busy machine needs
// for them, and of documents what they cost, which no neighbour changes.
const (
	usual      = time.Second
	ofDocument = 100 * time.Millisecond
)

// Outcomes that are wanted often.
const (
	refused    = "400 GRAPHQL_PARSE_FAILED|400 GRAPHQL_VALIDATION_FAILED|400 LIMIT_EXCEEDED|400 BAD_USER_INPUT"
	invalid    = "400 GRAPHQL_VALIDATION_FAILED"
	unparsable = "400 GRAPHQL_PARSE_FAILED"
	badRequest = "400 BAD_REQUEST"
	badInput   = "400 BAD_USER_INPUT"
	fieldError = "200 BAD_USER_INPUT"
	overLimit  = "LIMIT_EXCEEDED limit of"
	answered   = "200 answered"
	either     = "200|400" // harmless either way
)

// plain is an attack in the usual time.
func plain(name, want string, do func(s *site) (outcome, error)) attack {
	return attack{name: name, want: want, within: usual, do: do}
}

// doc posts a document.
func doc(name, want, text string) attack { return docWith(name, want, text, nil) }

// docWith posts a document with variables.
func docWith(name, want, text string, variables any) attack {
	return posted(name, want, func() string {
		return asJSON(map[string]any{"query": text, "variables": variables})
	})
}

// posted posts a body with a document.
func posted(name, want string, body func() string) attack {
	return attack{name: name, want: want, within: usual, effort: ofDocument, body: body}
}

// docs posts documents that are named by themselves and may come to the same.
func docs(want string, texts ...string) []attack {
	var all []attack
	for _, text := range texts {
		all = append(all, doc(short(text), want, text))
	}
	return all
}

// body posts a body that should have been JSON.
func body(name, want, text string, headers ...string) attack {
	return plain(name, want, func(s *site) (outcome, error) { return s.post(text, headers...) })
}

// wire sends bytes that should have been HTTP.
func wire(name, want, text string) attack {
	return plain(name, want, func(s *site) (outcome, error) { return s.send([]byte(text)) })
}

// grown makes an attack of each size, doubling it: up to a point it may be
// harmless, and the last one must be refused.
func grown(name, refusal string, from, to int, make func(name, want string, n int) attack) []attack {
	var all []attack
	for n := from; ; n *= 2 {
		last := n >= to
		want := refusal
		if !last {
			want += "|" + answered
		}
		all = append(all, make(fmt.Sprintf("%s, %d times", name, min(n, to)), want, min(n, to)))
		if last {
			return all
		}
	}
}

// grownDoc grows a document, which may become too large for a body.
func grownDoc(name, refusal string, from, to int, text func(n int) string) []attack {
	return grown(name, refusal+"|413 LIMIT_EXCEEDED", from, to, func(name, want string, n int) attack {
		return posted(name, want, func() string { return asJSON(map[string]any{"query": text(n)}) })
	})
}

// times joins n copies of a text in which # stands for their number.
func times(n int, text string) string {
	if !strings.Contains(text, "#") {
		return strings.Repeat(text, n)
	}
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "#", fmt.Sprint(i)))
	}
	return b.String()
}

// short is a text as part of a name.
func short(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if len(quoted) > 100 {
		return fmt.Sprintf("%.80s... (%d bytes)", quoted, len(text))
	}
	return quoted
}
