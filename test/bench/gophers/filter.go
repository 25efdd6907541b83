package gophers

import "github.com/chaingql/chaingql/test/bench/source"

type blockFilter struct {
	ID, Shard, ChainOrder *stringFilter
	SeqNo, GenUtime       *floatFilter
	WorkchainID           *intFilter
	OR                    *blockFilter
}

type stringFilter struct {
	Eq, Ne, Gt, Lt, Ge, Le *string
	In, NotIn              *[]*string
}

type floatFilter struct {
	Eq, Ne, Gt, Lt, Ge, Le *float64
	In, NotIn              *[]*float64
}

type intFilter struct {
	Eq, Ne, Gt, Lt, Ge, Le *int32
	In, NotIn              *[]*int32
}

func (f *blockFilter) filter() *source.Filter {
	if f == nil {
		return nil
	}
	return &source.Filter{
		ID: f.ID.is(), Shard: f.Shard.is(), ChainOrder: f.ChainOrder.is(),
		SeqNo: f.SeqNo.is(), GenUtime: f.GenUtime.is(), Workchain: f.WorkchainID.is(), Or: f.OR.filter(),
	}
}

func (f *stringFilter) is() *source.Is[string] {
	if f == nil {
		return nil
	}
	return &source.Is[string]{Eq: f.Eq, Ne: f.Ne, Gt: f.Gt, Lt: f.Lt, Ge: f.Ge, Le: f.Le, In: list(f.In),
		NotIn: list(f.NotIn)}
}

func (f *floatFilter) is() *source.Is[float64] {
	if f == nil {
		return nil
	}
	return &source.Is[float64]{Eq: f.Eq, Ne: f.Ne, Gt: f.Gt, Lt: f.Lt, Ge: f.Ge, Le: f.Le, In: list(f.In),
		NotIn: list(f.NotIn)}
}

func (f *intFilter) is() *source.Is[int] {
	if f == nil {
		return nil
	}
	return &source.Is[int]{Eq: wide(f.Eq), Ne: wide(f.Ne), Gt: wide(f.Gt), Lt: wide(f.Lt), Ge: wide(f.Ge),
		Le: wide(f.Le), In: wides(f.In), NotIn: wides(f.NotIn)}
}

func list[T any](items *[]*T) []*T {
	if items == nil {
		return nil
	}
	return *items
}

func wides(items *[]*int32) []*int {
	if items == nil {
		return nil
	}
	all := make([]*int, len(*items))
	for i, item := range *items {
		all[i] = wide(item)
	}
	return all
}
