package gqlhttp

import (
	"iter"
	"mime"
	"strconv"
	"strings"
)

// These are the media types of responses.
const (
	JSON            = "application/json"
	GraphQLResponse = "application/graphql-response+json"
	EventStream     = "text/event-stream"
	Multipart       = "multipart/mixed" // with the parameter subscriptionSpec=1.0
)

// maxAccept is the maximum size of all Accept headers together, in bytes. Browsers send less than 300 bytes.
const maxAccept = 4 << 10

// A preference is the weight and the position of a media type in an Accept list. Positions count from 1. The position
// is 0 if the type is not in the list.
type preference struct {
	q        float64
	position int
}

// Negotiate returns the JSON media type that the Accept headers prefer (RFC 9110, section 12.5.1), or "" if they
// accept none. If both types have the same weight, it returns the one that is listed first. A wildcard stands for
// application/json, unless the headers exclude application/json by name. Then it stands for the other type.
//
// stream is the media type of streams that the headers prefer, EventStream or Multipart, or "" if they accept neither.
// A wildcard does not suffice for streams. Headers of more than 4 KiB in total accept nothing.
func Negotiate(accept []string) (media, stream string) {
	if len(accept) == 0 {
		return JSON, ""
	}
	size := 0
	for _, line := range accept {
		size += len(line)
	}
	if size > maxAccept || len(accept) > maxAccept {
		return "", ""
	}
	list := strings.TrimSpace(strings.Join(accept, ","))
	switch list {
	case "", "*/*", JSON:
		return JSON, ""
	}
	preferences := map[string]preference{}
	position := 0
	for item := range items(list) {
		position++
		name, q, ok := accepted(item)
		if known := preferences[name]; ok && (known.position == 0 || known.q < q) {
			preferences[name] = preference{q, position}
		}
	}
	json, own, wildcard := preferences[JSON], preferences[GraphQLResponse], preferences["application/*"]
	if wildcard.position == 0 {
		wildcard = preferences["*/*"]
	}
	switch {
	case json.position == 0:
		json = wildcard
	case json.q == 0 && own.position == 0:
		own = wildcard
	}
	media = preferred(json, JSON, own, GraphQLResponse)
	return media, preferred(preferences[EventStream], EventStream, preferences[Multipart], Multipart)
}

// preferred returns the name of the preference with the higher weight or, if the weights are equal, of the one that is
// listed first. It returns "" if both weights are 0.
func preferred(a preference, nameOfA string, b preference, nameOfB string) string {
	switch {
	case max(a.q, b.q) == 0:
		return ""
	case b.q > a.q, b.q == a.q && b.position < a.position:
		return nameOfB
	}
	return nameOfA
}

// items splits a list at the commas outside of quoted strings.
func items(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		begin, quoted := 0, false
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case c == '"':
				quoted = !quoted
			case c == '\\' && quoted:
				i++
			case c == ',' && !quoted:
				if !yield(list[begin:i]) {
					return
				}
				begin = i + 1
			}
		}
		yield(list[begin:])
	}
}

// accepted parses one item of an Accept list. ok is false if the item is malformed, asks for a charset other than
// UTF-8, or is a multipart type other than that of Apollo's protocol for subscriptions.
func accepted(item string) (name string, q float64, ok bool) {
	name, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0, false
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", 0, false
	}
	if name == Multipart && params["subscriptionspec"] != "1.0" {
		return "", 0, false
	}
	weight, weighted := params["q"]
	if !weighted {
		return name, 1, true
	}
	q, err = strconv.ParseFloat(weight, 64)
	return name, q, err == nil && q >= 0 && q <= 1
}
