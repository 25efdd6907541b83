package natschain

import "sort"

// A span is a part of the stream, from one message to another.
type span struct{ from, to uint64 }

// spans are parts of the stream, ascending, that do not touch each other: at most
// mostSpans. Of more, those of the oldest messages are dropped.
type spans []span

const mostSpans = 1024

// at returns the span that a message is in.
func (x spans) at(seq uint64) (span, bool) {
	i := sort.Search(len(x), func(i int) bool { return x[i].to >= seq })
	if i == len(x) || x[i].from > seq {
		return span{}, false
	}
	return x[i], true
}

// add adds a part, and returns the last message of what it dropped for it, or 0.
func (x *spans) add(from, to uint64) (dropped uint64) {
	s := *x
	i := sort.Search(len(s), func(i int) bool { return s[i].to+1 >= from })
	j := i
	for ; j < len(s) && s[j].from <= to+1; j++ {
		from, to = min(from, s[j].from), max(to, s[j].to)
	}
	if i < j {
		s[i] = span{from, to}
		*x = append(s[:i+1], s[j:]...)
		return 0
	}
	s = append(s, span{})
	copy(s[i+1:], s[i:])
	s[i] = span{from, to}
	if len(s) > mostSpans {
		dropped = s[0].to
		s = s[:copy(s, s[1:])]
	}
	*x = s
	return dropped
}
