package attack

import (
	"fmt"
	"strings"
	"time"
)

// An attack is one hostile action of a client.
type attack struct {
	name string // unique in its family
	// want lists the permitted outcomes, separated by "|". Each is a list of words, all of which the
	// outcome must contain. Any other outcome is a failure.
	want   string
	within time.Duration // maximum elapsed time
	cpu    time.Duration // maximum CPU time of the server; 0 means no limit
	do     func(s *target) (outcome, error)
	body   func() string // returns the body to post if do is nil; building it is not timed
}

// An outcome is the result of an attack. Its class is the GraphQL error code of the response, or one
// of these:
//   - "answered": the response has no error
//   - "served": the socket or stream works
//   - "held": the connections stay open
//   - "closed" and a code: the server sent a WebSocket close frame
//   - "refused": the server sent an error message on a socket, or refused some of many requests
//   - "mixed": several clients had outcomes of different classes
//   - "cut": the connection ended without a response
//   - "net/http": net/http refused the request before the handler saw it
//   - "no answer": no response arrived before the timeout
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
	name     string
	attacks  []attack
	separate bool   // run on a separate server, in parallel with other families
	busy     bool   // needs most of a processor; two such families at once would delay honest clients
	atOnce   bool   // run all attacks in parallel, because they wait for timeouts
	kind     string // kind of the separate server; default: strong
	many     bool   // opens up to 9,000 connections; two such families at once would need too many files
	recent   bool   // honest clients query only the last block during the attacks
	peak     int64  // maximum RSS growth during the attacks, if larger than maxPeak
}

// Default limits of an attack. The limit of elapsed time is generous, because the machine may be busy.
// The CPU time that a document takes does not depend on other programs.
const (
	usual       = time.Second
	documentCPU = 100 * time.Millisecond
)

// These are frequent values of attack.want.
const (
	refused    = "400 GRAPHQL_PARSE_FAILED|400 GRAPHQL_VALIDATION_FAILED|400 LIMIT_EXCEEDED|400 BAD_USER_INPUT"
	invalid    = "400 GRAPHQL_VALIDATION_FAILED"
	unparsable = "400 GRAPHQL_PARSE_FAILED"
	badRequest = "400 BAD_REQUEST"
	badInput   = "400 BAD_USER_INPUT"
	fieldError = "200 BAD_USER_INPUT"
	overLimit  = "LIMIT_EXCEEDED limit of"
	answered   = "200 answered"
	either     = "200|400" // the response may be an error or not; both are harmless
)

// plain returns an attack with the default time limit.
func plain(name, want string, do func(s *target) (outcome, error)) attack {
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

// posted returns an attack that posts the body that the function body returns. The body contains a
// document, so the attack has the default limits of elapsed time and CPU time.
func posted(name, want string, body func() string) attack {
	return attack{name: name, want: want, within: usual, cpu: documentCPU, body: body}
}

// docs returns one attack for each document, named after its text.
func docs(want string, texts ...string) []attack {
	var all []attack
	for _, text := range texts {
		all = append(all, doc(short(text), want, text))
	}
	return all
}

// body returns an attack that posts text with the given headers.
func body(name, want, text string, headers ...string) attack {
	return plain(name, want, func(s *target) (outcome, error) { return s.post(text, headers...) })
}

// wire returns an attack that sends text, which is often invalid HTTP, to a new connection.
func wire(name, want, text string) attack {
	return plain(name, want, func(s *target) (outcome, error) { return s.send([]byte(text)) })
}

// grown returns attacks of doubling sizes from "from" to "to". The server may answer the smaller sizes
// and must refuse the last one.
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

// grownDoc is like grown, with attacks that post documents. Because a document may exceed the body
// limit, refusals with status 413 are also permitted.
func grownDoc(name, refusal string, from, to int, text func(n int) string) []attack {
	return grown(name, refusal+"|413 LIMIT_EXCEEDED", from, to, func(name, want string, n int) attack {
		return posted(name, want, func() string { return asJSON(map[string]any{"query": text(n)}) })
	})
}

// times concatenates n copies of text. In each copy, it replaces # with the index of the copy.
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
