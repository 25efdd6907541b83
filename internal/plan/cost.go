package plan

// A Cost is what running an operation asks of the host, at most: calls of its
// backend and blocks read in them.
type Cost struct {
	Calls, Blocks int
	Items         int // that what is beneath it is asked for; zero is one
}

func (c Cost) plus(d Cost) Cost {
	return Cost{Calls: sum(c.Calls, d.Calls), Blocks: sum(c.Blocks, d.Blocks)}
}

// boundless is more than any limit. Where an int has 32 bits, twice of it does not fit.
const boundless = 1 << 30

func sum(a, b int) int     { return int(min(int64(a)+int64(b), boundless)) }
func product(a, b int) int { return int(min(int64(a)*int64(b), boundless)) }

// Cost prices b, before or after it runs. Each field is priced once.
func (b *Bound) Cost() Cost {
	cost := b.plan.fixed
	var room [8]Cost // most plans have fewer
	prices := room[:0]
	for _, f := range b.plan.priced {
		prices = append(prices, b.price(f))
	}
	for i, f := range b.plan.priced {
		own := prices[i]
		for above := f.under; above != nil; above = above.under {
			n := max(prices[above.priced].Items, 1)
			own.Calls, own.Blocks = product(own.Calls, n), product(own.Blocks, n)
		}
		cost = cost.plus(own)
	}
	return cost
}

// price is a field's own cost. Of a host's what makes no sense is nothing.
func (b *Bound) price(f *field) Cost {
	args, err := f.arguments(b, nil)
	if err != nil {
		return Cost{} // nothing is called
	}
	if f.info == nil {
		return f.source.Cost(args)
	}
	c := f.source.Price(b.cache.schema.hostArgs(f, args))
	sane := func(n int) int { return min(max(n, 0), boundless) }
	return Cost{sane(c.Calls), sane(c.Blocks), sane(c.Items)}
}

// afford refuses what costs too much. What cannot, whatever its variables, is
// not priced.
func (b *Bound) afford() *Error {
	l := &b.cache.limits
	if l.covers(b.plan.most) {
		return nil
	}
	cost := b.Cost()
	switch {
	case l.covers(cost):
		return nil
	case l.Calls > 0 && cost.Calls > l.Calls:
		return b.tooExpensive("Calls", "calls of the backend", cost.Calls, l.Calls)
	}
	return b.tooExpensive("Blocks", "blocks", cost.Blocks, l.Blocks)
}

func (b *Bound) tooExpensive(limit, what string, cost, most int) *Error {
	err := limitError(limit, nil, "The query costs %d %s, more than the limit of %d.", cost, what, most)
	err.Locations = []Location{b.op.at}
	return err
}

func (l *Limits) covers(c Cost) bool {
	return (l.Calls <= 0 || c.Calls <= l.Calls) && (l.Blocks <= 0 || c.Blocks <= l.Blocks)
}

// price adds a field to what the plan costs.
func (k *compiler) price(f *field) {
	switch cost := f.source.Cost; {
	case f.source.Price != nil:
		f.priced = len(k.plan.priced)
		k.plan.priced = append(k.plan.priced, f)
		k.plan.size += listedBytes
		k.plan.most = Cost{Calls: boundless, Blocks: boundless}
	case cost == nil:
	case f.dynamic != nil:
		k.plan.priced = append(k.plan.priced, f)
		k.plan.size += listedBytes
		k.plan.most = k.plan.most.plus(cost(nil))
	default:
		k.plan.spend(cost(f.constant))
	}
	if f.source.Batch == "" || !f.shape.asks(f.source.Batch) {
		return
	}
	if len(k.plan.batch) == 0 || !f.source.AtOnce {
		k.plan.spend(Cost{Calls: 1})
	}
	k.plan.batch = append(k.plan.batch, f)
	k.plan.size += listedBytes
}

func (p *Plan) spend(c Cost) { p.fixed, p.most = p.fixed.plus(c), p.most.plus(c) }
