package plan

import (
	"slices"
	"strconv"
)

// A Cost is the maximum work that an operation or a field may cause in the backend of the host.
type Cost struct {
	// Calls is the maximum number of backend calls.
	Calls int
	// Blocks is the maximum number of blocks that these calls read.
	Blocks int
	// Items is the maximum number of items for which the fields below are resolved. The costs of these fields are
	// multiplied by Items. Zero means one.
	Items int
}

func (c Cost) appendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"calls":`...), int64(c.Calls), 10)
	dst = strconv.AppendInt(append(dst, `,"blocks":`...), int64(c.Blocks), 10)
	return append(dst, '}')
}

func (c Cost) add(d Cost) Cost {
	return Cost{Calls: addCapped(c.Calls, d.Calls), Blocks: addCapped(c.Blocks, d.Blocks)}
}

// unboundedCost is higher than any limit. Twice this number overflows an int of 32 bits, so the functions below use
// 64 bits.
const unboundedCost = 1 << 30

func addCapped(a, b int) int { return int(min(int64(a)+int64(b), unboundedCost)) }
func mulCapped(a, b int) int { return int(min(int64(a)*int64(b), unboundedCost)) }

// A pricedField is a field with a cost that is computed for each request.
type pricedField struct {
	*field
	same  int // index in Plan.priced of the first field with the same call, whose price is the same
	built int // index of the first field with the same arguments in memory, which may be one of another type
}

// A call is what the price of a field depends on.
type call struct {
	source *Field // nil to find all fields with these arguments
	args   *callArguments
}

// Cost returns the cost of b. It calls a price function once for each place in the document that has a priced field,
// even if the place is in a fragment that is spread many times.
func (b *Bound) Cost() Cost {
	if b.priced {
		return b.cost
	}
	cost := b.plan.fixedCost
	var array [8]Cost // enough for most plans, so that prices need not be allocated
	prices := array[:0]
	var buffer [8]builtArgs
	args := buffer[:0]
	for i, f := range b.plan.priced {
		if args = append(args, builtArgs{}); f.built < i {
			args[i] = args[f.built]
		} else {
			args[i].Args, args[i].err = f.arguments(b, nil)
		}
		if f.same < i {
			prices = append(prices, prices[f.same])
		} else {
			prices = append(prices, f.price(args[i]))
		}
	}
	for i, f := range b.plan.priced {
		own := prices[i]
		for above := f.pricedParent(); above != nil; above = above.pricedParent() {
			n := max(prices[above.info.priceIndex].Items, 1)
			own.Calls, own.Blocks = mulCapped(own.Calls, n), mulCapped(own.Blocks, n)
		}
		cost = cost.add(own)
	}
	return cost
}

// pricedParent returns the nearest host field above f with a price, or nil. Built-in fields are not below host fields.
func (f *field) pricedParent() *field {
	if f.info == nil {
		return nil
	}
	return f.info.pricedParent
}

// builtArgs are the arguments of a field, or the error that it returns instead of calling its resolver.
type builtArgs struct {
	Args
	err *Error
}

// price returns the cost of f without the fields below it. Negative numbers in a cost from the host count as zero.
func (f *field) price(args builtArgs) Cost {
	if args.err != nil {
		return Cost{}
	}
	if f.info == nil {
		return f.source.Cost(args.Args)
	}
	c := f.source.Price(f.hostArgs(args.Args))
	sane := func(n int) int { return min(max(n, 0), unboundedCost) }
	return Cost{sane(c.Calls), sane(c.Blocks), sane(c.Items)}
}

// ReturnsMore reports whether b may return more than a number of blocks.
func (b *Bound) ReturnsMore(blocks int) bool {
	return b.plan.maxCost.Blocks > blocks && b.Cost().Blocks > blocks
}

// checkCost returns an error if b costs more than the limits allow. It calculates the cost only if the maximum cost
// of the plan exceeds a limit.
func (b *Bound) checkCost() *Error {
	l := &b.cache.limits
	if l.allow(b.plan.maxCost) {
		return nil
	}
	cost := b.Cost()
	b.cost, b.priced = cost, true
	switch {
	case l.allow(cost):
		return nil
	case l.Calls > 0 && cost.Calls > l.Calls:
		return b.tooExpensive("BackendCalls", "calls of the backend", cost.Calls, l.Calls)
	}
	return b.tooExpensive("QueryBlocks", "blocks", cost.Blocks, l.Blocks)
}

func (b *Bound) tooExpensive(name, unit string, cost, limit int) *Error {
	err := limitError(name, nil, "The query costs %d %s, more than the limit of %d.", cost, unit, limit)
	err.Locations = []Location{b.op.at}
	return err
}

// tooExpensive reports whether the error is one of checkCost. Documents and plans with such an error are not cached: a
// short document can have a large plan, and is refused each time.
func (e *Error) tooExpensive() bool { return e.Limit == "BackendCalls" || e.Limit == "QueryBlocks" }

func (l *Limits) allow(c Cost) bool {
	return (l.Calls <= 0 || c.Calls <= l.Calls) && (l.Blocks <= 0 || c.Blocks <= l.Blocks)
}

// price adds the cost of a field to the plan.
func (k *compiler) price(f *field) {
	switch cost := f.source.Cost; {
	case f.source.Price != nil:
		f.info.priceIndex = len(k.plan.priced)
		k.addPriced(f)
		k.plan.maxCost = Cost{Calls: unboundedCost, Blocks: unboundedCost}
	case cost == nil:
	case f.dynamic != nil:
		k.addPriced(f)
		k.plan.maxCost = k.plan.maxCost.add(cost(nil))
	default:
		k.plan.addCost(cost(f.constant))
	}
	if f.source.Batch == "" || !f.typ.selects(f.source.Batch) {
		return
	}
	if len(k.plan.batch) == 0 || !f.source.AtOnce {
		k.plan.addCost(Cost{Calls: 1})
	}
	k.plan.batch = append(k.plan.batch, f)
	k.plan.size += listedBytes
}

func (k *compiler) addPriced(f *field) {
	first := func(source *Field) int {
		call := call{source, f.callArguments}
		if _, ok := k.sharing.priced[call]; !ok {
			k.sharing.priced[call] = len(k.plan.priced)
		}
		return k.sharing.priced[call]
	}
	k.plan.priced = append(k.plan.priced, pricedField{f, first(f.source), first(nil)})
	k.plan.size += 2 * listedBytes
}

func (p *Plan) addCost(c Cost) { p.fixedCost, p.maxCost = p.fixedCost.add(c), p.maxCost.add(c) }

// selects reports whether a field with this name is selected at any depth.
func (s *outputType) selects(name string) bool {
	if s.elem != nil {
		return s.elem.selects(name)
	}
	return s.object.selects(name) ||
		slices.ContainsFunc(s.types, func(v possibleType) bool { return v.sel.selects(name) })
}

func (s *selection) selects(name string) bool {
	return s != nil && slices.ContainsFunc(s.fields, func(f *field) bool {
		return f.declaredName() == name || f.typ != nil && f.typ.selects(name)
	})
}
