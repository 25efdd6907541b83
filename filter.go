package chaingql

import (
	"slices"
	"strings"

	"github.com/chaingql/chaingql/internal/plan"
)

// A condition reports whether a block satisfies a filter, or one operator of a filter.
type condition func(*Block) bool

// These constants are the sizes of the parts of a compiled filter in memory, in bytes.
const (
	alternativeBytes = 48
	conditionBytes   = 96
	itemBytes        = 40 // an item of a list
)

// blockFilter compiles a BlockFilter to a condition, and returns the condition's memory in bytes. A block must satisfy
// all fields of the filter, or the alternative in OR. A filter or an alternative without fields matches every block.
func blockFilter(filter any) (match condition, bytes int, err *plan.Error) {
	var alternatives [][]condition
	for filter != nil {
		bytes += alternativeBytes
		fields := filter.(map[string]any)
		var all []condition
		for _, field := range filterFields {
			operators, ok := fields[field.name].(map[string]any)
			if !ok {
				continue // absent, or null
			}
			c, err := field.conditions(operators)
			if err != nil {
				err.Message = field.name + ": " + err.Message
				return nil, 0, err
			}
			all = append(all, c...)
			bytes += operatorBytes(operators)
		}
		alternatives = append(alternatives, all)
		filter = fields["OR"]
	}
	if len(alternatives) == 0 {
		return func(*Block) bool { return true }, 0, nil
	}
	return func(b *Block) bool {
		return slices.ContainsFunc(alternatives, func(all []condition) bool {
			return !slices.ContainsFunc(all, func(c condition) bool { return !c(b) })
		})
	}, bytes, nil
}

func operatorBytes(operators map[string]any) (bytes int) {
	for _, operand := range operators {
		bytes += conditionBytes + copiedBytes(operand)
		if items, ok := operand.([]any); ok {
			bytes += itemBytes * len(items)
			for _, item := range items {
				bytes += copiedBytes(item)
			}
		}
	}
	return bytes
}

// copiedBytes returns the memory of the lower-case copy of an operand, or 0 if no copy is needed.
func copiedBytes(operand any) int {
	if s, ok := operand.(string); ok && s != strings.ToLower(s) {
		return len(s)
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

// filterFields lists the fields of BlockFilter and compiles the conditions on them. Hex digits are compared in lower
// case.
var filterFields = []struct {
	name       string
	conditions func(operators map[string]any) ([]condition, *plan.Error)
}{
	{"id", conditions(func(b *Block) string { return b.Hash.String() }, lower)},
	{"seq_no", conditions(func(b *Block) float64 { return float64(b.SeqNo) }, float)},
	{"workchain_id", conditions(func(b *Block) int { return int(b.Workchain) }, integer)},
	{"shard", conditions(func(b *Block) string { return string(appendShard(nil, b.Shard)) }, lower)},
	{"gen_utime", conditions(func(b *Block) float64 { return float64(b.Time.Unix()) }, float)},
	{"chain_order", conditions(func(b *Block) string { return string(b.Cursor) }, text)},
}

func lower(v any) string  { return strings.ToLower(v.(string)) }
func text(v any) string   { return v.(string) }
func float(v any) float64 { return v.(float64) }
func integer(v any) int   { return v.(int) }

// conditions returns a function that compiles the operators of one field. get returns the field's value for a block,
// and of converts an operand. Null equals no value, so eq null matches no block, and ne null matches every block.
func conditions[T interface{ ~string | ~float64 | ~int }](
	get func(*Block) T, of func(any) T,
) func(map[string]any) ([]condition, *plan.Error) {
	never := func(*Block) bool { return false }
	compare := map[string]func(a, b T) bool{
		"eq": func(a, b T) bool { return a == b },
		"ne": func(a, b T) bool { return a != b },
		"gt": func(a, b T) bool { return a > b },
		"lt": func(a, b T) bool { return a < b },
		"ge": func(a, b T) bool { return a >= b },
		"le": func(a, b T) bool { return a <= b },
	}
	return func(operators map[string]any) ([]condition, *plan.Error) {
		var all []condition
		for name, operand := range operators {
			switch name {
			case "in", "notIn":
				items, ok := operand.([]any)
				if !ok {
					return nil, &plan.Error{Message: `"` + name + `" must not be null`, Code: plan.CodeInput}
				}
				set := make(map[T]bool, len(items))
				for _, item := range items {
					if item != nil {
						set[of(item)] = true
					}
				}
				all = append(all, func(b *Block) bool { return set[get(b)] == (name == "in") })
			default:
				if operand != nil {
					right, holds := of(operand), compare[name]
					all = append(all, func(b *Block) bool { return holds(get(b), right) })
				} else if name != "ne" {
					all = append(all, never)
				}
			}
		}
		return all, nil
	}
}
