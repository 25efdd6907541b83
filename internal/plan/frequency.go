package plan

// A frequency estimates how often things were used recently: a count-min sketch whose counters are halved regularly, as
// in TinyLFU (Einziger, Friedman and Manes, 2017). It also counts the uses of things that are no longer cached. The
// caches on pkg.go.dev with such a sketch evict on goroutines of their own, and know neither several keys for one entry
// nor entries that share memory.
type frequency struct {
	counts [4][1 << 14]uint8
	added  int // uses since the start, halved whenever the counters are
}

// countedUses is the number of uses after which the counters are halved: four for each counter of a row.
const countedUses = 1 << 16

// add counts one use of the thing with this hash.
func (f *frequency) add(hash uint64) {
	for i := range f.counts {
		if n := &f.counts[i][hash>>(16*i)%(1<<14)]; *n < 255 {
			*n++
		}
	}
	if f.added++; f.added == countedUses {
		for i := range f.counts {
			for j := range f.counts[i] {
				f.counts[i][j] /= 2
			}
		}
		f.added /= 2
	}
}

// of returns the estimated number of uses, which is too high if the thing shares all its counters with others.
func (f *frequency) of(hash uint64) uint8 {
	least := uint8(255)
	for i := range f.counts {
		least = min(least, f.counts[i][hash>>(16*i)%(1<<14)])
	}
	return least
}
