package chaos_test

// A verdict is in what a subscriber's blocks are not as they should be.
type verdict struct {
	lost, twice, disordered, strange int
	silent                           int // blocks that the source lost, and that the subscriber was not told of
}

func (v *verdict) add(o verdict) {
	v.lost, v.twice, v.disordered = v.lost+o.lost, v.twice+o.twice, v.disordered+o.disordered
	v.strange, v.silent = v.strange+o.strange, v.silent+o.silent
}

// judge compares what came with the truth.
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
	v.strange = len(seen)
	return v
}

// verdict judges what a subscriber, which is at its end, has got. It returns the
// blocks that were due too.
func (s *subscriber) verdict(losses map[int]loss) (verdict, []int32) {
	silent := 0
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
		if !excused && !s.toldOf(l, n) {
			silent++
		}
	}
	v := judge(s.got, due)
	v.silent = silent
	return v, due
}

// toldOf tells whether a subscriber was sent back to before a block, after the
// service had noticed that it is missing.
func (s *subscriber) toldOf(l loss, n int32) bool {
	for _, t := range s.sentBack {
		if t.cursor < s.world.truth.blocks[n].Cursor && !l.asked.IsZero() && !t.when.Before(l.asked) {
			return true
		}
	}
	return false
}
