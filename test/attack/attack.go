package attack

import (
	"fmt"
	"strings"
	"time"
)

// An attack is one hostile action of a client.
type attack struct {
	name string // unique in its family
	// want lists the permitted outcomes: alternatives separated by "|", each a list of words that
	// the outcome must contain. Any other outcome is a failure.
	want   string
	within time.Duration // maximum elapsed time
	cpu    time.Duration // maximum CPU time of the server; 0 means no limit
	do     func(s *site) (outcome, error)
	body   func() string // posted if do is nil; building it is not timed
}

// An outcome is the result of an attack. Its class is the code of a refusal, or one of these:
//   - "answered": a response without an error
//   - "served": a working socket or stream
//   - "held": connections that stay open
//   - "closed": a WebSocket close frame; text holds the code
//   - "cut": the connection ended without a response
//   - "net/http": refused before the handler saw the request
//   - "no answer": a timeout
type outcome struct{ class, text string }

func (o outcome) String() string { return strings.TrimSpace(o.class + " " + o.text) }

// meets reports whether the outcome is permitted by want.
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

// A family is a group of similar attacks.
type family struct {
	name    string
	attacks []attack
	apart   bool   // run on a separate server, in parallel with other families
	atOnce  bool   // run all attacks in parallel, because they wait for timeouts
	kind    string // kind of the separate server; default: strong
	recent  bool   // honest clients query only the last block meanwhile
	peak    int64  // maximum RSS growth meanwhile, if larger than maxPeak
}

// Default limits of an attack: elapsed time, with room for a busy machine, and CPU time for
// documents, which does not depend on other programs.
const (
	usual      = time.Second
	ofDocument = 100 * time.Millisecond
)

// Frequent values of attack.want.
const (
	refused    = "400 GRAPHQL_PARSE_FAILED|400 GRAPHQL_VALIDATION_FAILED|400 LIMIT_EXCEEDED|400 BAD_USER_INPUT"
	invalid    = "400 GRAPHQL_VALIDATION_FAILED"
	unparsable = "400 GRAPHQL_PARSE_FAILED"
	badRequest = "400 BAD_REQUEST"
	badInput   = "400 BAD_USER_INPUT"
	fieldError = "200 BAD_USER_INPUT"
	overLimit  = "LIMIT_EXCEEDED limit of"
	answered   = "200 answered"
	either     = "200|400" // both are harmless
)

// plain returns an attack with the default time limit.
func plain(name, want string, do func(s *site) (outcome, error)) attack {
	return attack{name: name, want: want, within: usual, do: do}
}

// doc returns an attack that posts a document.
func doc(name, want, text string) attack { return docWith(name, want, text, nil) }

// docWith is like doc, with variables.
func docWith(name, want, text string, variables any) attack {
	return posted(name, want, func() string {
		return asJSON(map[string]any{"query": text, "variables": variables})
	})
}

// posted returns an attack that posts a body with a document, with the default limits of elapsed
// and CPU time.
func posted(name, want string, body func() string) attack {
	return attack{name: name, want: want, within: usual, cpu: ofDocument, body: body}
}

// docs returns one attack for each document, named after its text.
func docs(want string, texts ...string) []attack {
	var all []attack
	for _, text := range texts {
		all = append(all, doc(short(text), want, text))
	}
	return all
}

// body returns an attack that posts an invalid JSON body.
func body(name, want, text string, headers ...string) attack {
	return plain(name, want, func(s *site) (outcome, error) { return s.post(text, headers...) })
}

// wire returns an attack that sends invalid HTTP.
func wire(name, want, text string) attack {
	return plain(name, want, func(s *site) (outcome, error) { return s.send([]byte(text)) })
}

// grown returns attacks of doubling sizes. Smaller sizes may be answered; the last one must be
// refused.
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

// grownDoc is grown for documents. A document may exceed the body limit.
func grownDoc(name, refusal string, from, to int, text func(n int) string) []attack {
	return grown(name, refusal+"|413 LIMIT_EXCEEDED", from, to, func(name, want string, n int) attack {
		return posted(name, want, func() string { return asJSON(map[string]any{"query": text(n)}) })
	})
}

// times concatenates n copies of text and replaces # by the index of the copy.
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

// short quotes a text for use in an attack name and shortens it.
func short(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if len(quoted) > 100 {
		return fmt.Sprintf("%.80s... (%d bytes)", quoted, len(text))
	}
	return quoted
}
