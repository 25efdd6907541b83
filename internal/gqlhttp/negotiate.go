package gqlhttp

import (
	"iter"
	"slices"
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
const maxAccept = 1 << 10

// acceptable has the items of an Accept list that matter, in lower case. Others are not parsed.
var acceptable = [...]string{JSON, GraphQLResponse, EventStream, Multipart, "application/*", "*/*"}

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
// A wildcard does not suffice for streams. Headers of more than 1 KiB in total accept nothing.
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
	var preferences [len(acceptable)]preference
	position := 0
	for item := range items(list) {
		position++
		at, q, ok := accepted(item)
		if ok && (preferences[at].position == 0 || preferences[at].q < q) {
			preferences[at] = preference{q, position}
		}
	}
	json, own, wildcard := preferences[0], preferences[1], preferences[4]
	if wildcard.position == 0 {
		wildcard = preferences[5]
	}
	switch {
	case json.position == 0:
		json = wildcard
	case json.q == 0 && own.position == 0:
		own = wildcard
	}
	media = preferred(json, JSON, own, GraphQLResponse)
	return media, preferred(preferences[2], EventStream, preferences[3], Multipart)
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

// maxWeight is the maximum length of a weight in bytes. RFC 9110, section 12.4.2, permits five.
const maxWeight = 32

// accepted parses one item of an Accept list and returns its index in acceptable. ok is false if it is not there, is
// malformed, asks for a charset other than UTF-8, or is a multipart type other than that of Apollo's protocol for
// subscriptions.
func accepted(item string) (at int, q float64, ok bool) {
	name, rest := cutMedia(item)
	at = slices.IndexFunc(acceptable[:], func(known string) bool { return equalFold(name, known) })
	if at < 0 {
		return 0, 0, false
	}
	weight, spec := "1", ""
	for name, value := range parameters(rest, &ok) {
		switch {
		case equalFold(name, "q"):
			weight = value
		case equalFold(name, "subscriptionSpec"):
			spec = value
		case !inUTF8(name, value):
			return 0, 0, false
		}
	}
	if !ok || acceptable[at] == Multipart && spec != "1.0" {
		return 0, 0, false
	}
	whole, fraction, _ := strings.Cut(weight, ".")
	if len(whole)+len(fraction) == 0 || !digits(whole) || !digits(fraction) || len(weight) > maxWeight {
		return 0, 0, false // ParseFloat would allocate an error, or take long
	}
	q, err := strconv.ParseFloat(weight, 64)
	return at, q, err == nil && q <= 1
}

func digits(text string) bool { return strings.Trim(text, "0123456789") == "" }
