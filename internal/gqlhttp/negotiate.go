package gqlhttp

import (
	"mime"
	"strconv"
	"strings"
)

// Media types of responses.
const (
	JSON            = "application/json"
	GraphQLResponse = "application/graphql-response+json"
	EventStream     = "text/event-stream"
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
// events reports whether the headers accept event streams, for which a wildcard does not suffice. Headers of more than
// 4 KiB in total accept nothing.
func Negotiate(accept []string) (media string, events bool) {
	if len(accept) == 0 {
		return JSON, false
	}
	size := 0
	for _, line := range accept {
		size += len(line)
	}
	if size > maxAccept || len(accept) > maxAccept {
		return "", false
	}
	list := strings.TrimSpace(strings.Join(accept, ","))
	switch list {
	case "", "*/*", JSON:
		return JSON, false
	}
	preferences := map[string]preference{}
	position := 0
	for item := range strings.SplitSeq(list, ",") {
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
	switch {
	case max(own.q, json.q) == 0:
	case own.q > json.q, own.q == json.q && own.position < json.position:
		media = GraphQLResponse
	default:
		media = JSON
	}
	return media, preferences[EventStream].q > 0
}

// accepted parses one item of an Accept list. ok is false if the item is malformed or asks for a charset other than
// UTF-8.
func accepted(item string) (name string, q float64, ok bool) {
	name, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0, false
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "", 0, false
	}
	weight, weighted := params["q"]
	if !weighted {
		return name, 1, true
	}
	q, err = strconv.ParseFloat(weight, 64)
	return name, q, err == nil && q >= 0 && q <= 1
}
