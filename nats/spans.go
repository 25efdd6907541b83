package natschain

import "sort"

// A span is the range [from, to] of stream sequence numbers.
type span struct{ from, to uint64 }

// spans is a set of stream sequence numbers, stored as ascending spans with gaps between
// them. If the set has more than maxSpans spans, the lowest one is dropped.
type spans []span

const maxSpans = 1024

// at returns the span that contains seq, and false if there is none.
func (x spans) at(seq uint64) (span, bool) {
	i := sort.Search(len(x), func(i int) bool { return x[i].to >= seq })
	if i == len(x) || x[i].from > seq {
		return span{}, false
	}
	return x[i], true
}

// add adds the numbers in [from, to] to the set. It returns the last number of the span
// that it dropped, or 0 if it dropped none.
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
	if len(s) > maxSpans {
		dropped = s[0].to
		s = s[:copy(s, s[1:])]
	}
	*x = s
	return dropped
}
