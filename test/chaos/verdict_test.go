package chaos_test

// A verdict counts the errors in the blocks that a subscriber has received.
type verdict struct {
	lost       int // blocks that were due and did not arrive
	twice      int // blocks that arrived again
	disordered int // blocks that arrived after a later block
	unexpected int // blocks that were not due
	silent     int // blocks that the source never had, and for which the subscriber received no STREAM_GAP
}

func (v *verdict) add(o verdict) {
	v.lost, v.twice, v.disordered = v.lost+o.lost, v.twice+o.twice, v.disordered+o.disordered
	v.unexpected, v.silent = v.unexpected+o.unexpected, v.silent+o.silent
}

// judge compares the received blocks with the blocks that were due.
func judge(got, expected []int32) (v verdict) {
	seen := make(map[int32]bool, len(got))
	newest := int32(-1)
	for _, n := range got {
		switch {
		case seen[n]:
			v.twice++
		case n < newest:
			v.disordered++
		}
		seen[n], newest = true, max(newest, n)
	}
	for _, n := range expected {
		if !seen[n] {
			v.lost++
		}
		delete(seen, n)
	}
	v.unexpected = len(seen)
	return v
}

// verdict judges the blocks that a subscriber has received at the end of a run. It also returns the
// numbers of the blocks that were due. It sets s.silent.
func (s *subscriber) verdict(losses map[int]loss) (verdict, []int32) {
	s.silent = nil
	got := make(map[int32]bool, len(s.got))
	for _, n := range s.got {
		got[n] = true
	}
	var due []int32
	for _, n := range s.matching() {
		l, isLoss := losses[int(n)]
		excused := isLoss && s.excused[l.hole]
		if !isLoss || got[n] || !l.optional && !excused {
			due = append(due, n)
			continue
		}
		if !excused && !s.receivedGapFor(l, n) {
			s.silent = append(s.silent, n)
		}
	}
	v := judge(s.got, due)
	v.silent = len(s.silent)
	return v, due
}

// receivedGapFor reports whether the subscriber received a STREAM_GAP with a cursor before block n, after
// the service had noticed the gap.
func (s *subscriber) receivedGapFor(l loss, n int32) bool {
	for _, t := range s.rewinds {
		if t.cursor < s.world.truth.blocks[n].Cursor && !l.asked.IsZero() && !t.when.Before(l.asked) {
			return true
		}
	}
	return false
}
