package source

import (
	"cmp"
	"slices"

	"github.com/chaingql/chaingql"
)

// Is is a condition on one value. It holds if all comparisons hold; a comparison that is nil is ignored.
type Is[T cmp.Ordered] struct {
	Eq, Ne, Gt, Lt, Ge, Le *T
	In, NotIn              []*T
}

// A Filter is a condition on a block. It holds if all its fields hold, or if the filter Or holds.
type Filter struct {
	ID, Shard, ChainOrder *Is[string]
	SeqNo, GenUtime       *Is[float64]
	Workchain             *Is[int]
	Or                    *Filter
}

// Matches reports whether b matches the filter. A nil filter matches every block.
func (f *Filter) Matches(b *chaingql.Block) bool {
	if f == nil {
		return true
	}
	for ; f != nil; f = f.Or {
		if (f.ID == nil || f.ID.holds(b.Hash.String())) &&
			(f.Shard == nil || f.Shard.holds(Shard(b))) &&
			(f.ChainOrder == nil || f.ChainOrder.holds(string(b.Cursor))) &&
			(f.SeqNo == nil || f.SeqNo.holds(float64(b.SeqNo))) &&
			(f.GenUtime == nil || f.GenUtime.holds(float64(b.Time.Unix()))) &&
			(f.Workchain == nil || f.Workchain.holds(int(b.Workchain))) {
			return true
		}
	}
	return false
}

func (is *Is[T]) holds(v T) bool {
	same := func(item *T) bool { return item != nil && *item == v }
	return (is.Eq == nil || v == *is.Eq) && (is.Ne == nil || v != *is.Ne) &&
		(is.Gt == nil || v > *is.Gt) && (is.Lt == nil || v < *is.Lt) &&
		(is.Ge == nil || v >= *is.Ge) && (is.Le == nil || v <= *is.Le) &&
		(is.In == nil || slices.ContainsFunc(is.In, same)) &&
		(is.NotIn == nil || !slices.ContainsFunc(is.NotIn, same))
}
