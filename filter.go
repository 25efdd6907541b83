package chaingql

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chaingql/chaingql/internal/plan"
)

// A blockFilter is a compiled BlockFilter. A block must satisfy all conditions of the filter, or of an alternative in
// OR. An alternative without conditions matches every block, and so does a blockFilter without alternatives.
//
// Clients choose the number of conditions. SubscriptionBytes limits the conditions of all subscriptions together.
type blockFilter [][]condition

// A condition is an operator of a field.
type condition struct {
	field filterField
	// accepted reports whether the condition accepts a value that is less than the operands, a value that is equal to
	// one of them, and any other value.
	accepted [3]bool
	// operands is in ascending order. Only in and notIn have more than one operand.
	operands []operand
}

// An operand has a number or a text, depending on the type of the field.
type operand struct {
	number float64
	text   string
}

// A fieldValue is the value of a field of a block. Its text is in memory that is reused.
type fieldValue struct {
	number float64
	text   []byte
}

type filterField byte

const (
	filterID filterField = iota
	filterSeqNo
	filterWorkchain
	filterShard
	filterTime
	filterCursor
)

// filterFields contains the names of the fields of BlockFilter, except OR.
var filterFields = [...]string{
	filterID: "id", filterSeqNo: "seq_no", filterWorkchain: "workchain_id", filterShard: "shard",
	filterTime: "gen_utime", filterCursor: "chain_order",
}

// filterOperators contains the accepted values of each operator; see [condition].
var filterOperators = map[string][3]bool{
	"eq": {false, true, false}, "ne": {true, false, true},
	"in": {false, true, false}, "notIn": {true, false, true},
	"lt": {true, false, false}, "ge": {false, true, true},
	"gt": {false, false, true}, "le": {true, true, false},
}

// These constants are the sizes of the parts of a compiled filter in memory, in bytes.
const (
	alternativeBytes = 48
	conditionBytes   = 96 // with an operand, and with unused capacity
	itemBytes        = 40 // an operand of in or notIn
)

// newBlockFilter compiles a BlockFilter. It also returns the memory of the blockFilter in bytes.
func newBlockFilter(filter any) (compiled blockFilter, size int, err *plan.Error) {
	for filter != nil {
		size += alternativeBytes
		fields := filter.(map[string]any)
		var all []condition
		for field, name := range filterFields {
			operators, _ := fields[name].(map[string]any) // nil if absent or null
			for operator, value := range operators {
				c, own, err := newCondition(filterField(field), operator, value)
				if err != nil {
					return nil, 0, err
				}
				all = append(all, c)
				size += own
			}
		}
		compiled = append(compiled, all)
		filter = fields["OR"]
	}
	return compiled, size, nil
}

// maxHexOperand is the number of bytes of an operand that are compared with hex digits. A hash has 64 digits, so bytes
// after the 65th do not change the result. With 80 bytes, the allocator needs no more than is counted.
const maxHexOperand = 80

// newCondition compiles an operator, and returns its memory in bytes. Hex digits are compared in lower case. Null
// equals no value, so eq null matches no block, and ne null matches every block.
func newCondition(field filterField, operator string, value any) (c condition, size int, err *plan.Error) {
	c, size = condition{field: field, accepted: filterOperators[operator]}, conditionBytes
	items, list := value.([]any)
	switch {
	case list:
		c.operands = make([]operand, 0, len(items))
		size += itemBytes * len(items)
	case operator == "in" || operator == "notIn":
		message := filterFields[field] + `: "` + operator + `" must not be null`
		return c, 0, &plan.Error{Message: message, Code: plan.CodeInput}
	case value == nil && operator != "ne":
		c.accepted = [3]bool{}
	default:
		items = []any{value}
	}
	for _, item := range items {
		switch v := item.(type) {
		case int:
			c.operands = append(c.operands, operand{number: float64(v)})
		case float64:
			c.operands = append(c.operands, operand{number: v})
		case string:
			text := v
			if field != filterCursor {
				v = v[:min(len(v), maxHexOperand)]
				text = strings.ToLower(v)
			}
			if text != v {
				size += len(text) * 9 / 8 // the allocator rounds up
			}
			c.operands = append(c.operands, operand{text: text})
		}
	}
	slices.SortFunc(c.operands, func(a, b operand) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text))
	})
	return c, size, nil
}

// searchBlocks returns the number of old blocks that one search of a subscription compares with the filter. They take
// at most about 50 µs, so that subscriptions with expensive filters do not delay others that start.
func (f blockFilter) searchBlocks() int {
	work := 10 // the work for the values of a block, compared with that for a condition
	for _, all := range f {
		work += len(all)
	}
	return max(1, 1600/work)
}

// matches reports whether a block satisfies the filter. Neither b nor its values escape, so matches needs no memory on
// the heap: each new block is compared with the filters of all subscriptions.
func (f blockFilter) matches(b *Block) bool {
	if len(f) == 0 {
		return true
	}
	var (
		hash   [64]byte
		shard  [16]byte
		cursor [MaxCursor]byte
	)
	values := [...]fieldValue{
		filterID:        {text: b.Hash.append(hash[:0])},
		filterSeqNo:     {number: float64(b.SeqNo)},
		filterWorkchain: {number: float64(b.Workchain)},
		filterShard:     {text: appendShard(shard[:0], b.Shard)},
		filterTime:      {number: float64(b.Time.Unix())},
		filterCursor:    {text: append(cursor[:0], b.Cursor...)},
	}
	return slices.ContainsFunc(f, func(all []condition) bool {
		for i := range all {
			if c := &all[i]; !c.accepts(&values[c.field]) {
				return false
			}
		}
		return true
	})
}

func (c *condition) accepts(value *fieldValue) bool {
	from, to := 0, len(c.operands) // the range in which value may be
	for from < to {
		middle := (from + to) / 2
		switch order := value.compare(&c.operands[middle]); {
		case order == 0:
			return c.accepted[1]
		case order < 0:
			to = middle
		default:
			from = middle + 1
		}
	}
	if from == 0 {
		return c.accepted[0]
	}
	return c.accepted[2]
}

func (v *fieldValue) compare(o *operand) int {
	switch {
	case v.number < o.number || string(v.text) < o.text:
		return -1
	case v.number > o.number || string(v.text) > o.text:
		return 1
	}
	return 0
}

// workchainsOf returns a BlockFilter that has only the conditions on workchains. It matches every block that the whole
// filter matches, and possibly more.
func workchainsOf(filter any) any {
	fields, ok := filter.(map[string]any)
	if !ok {
		return nil
	}
	rest := map[string]any{"workchain_id": fields["workchain_id"]}
	if or := workchainsOf(fields["OR"]); or != nil {
		rest["OR"] = or
	}
	return rest
}
