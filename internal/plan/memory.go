package plan

import (
	"encoding/json"
	"math/bits"

	"github.com/vektah/gqlparser/v2/ast"
)

// These constants are the sizes in bytes of the parts of a plan. They are the sizes of structs, rounded up for the
// allocator and for maps. Tests compare their sums with the growth of the heap.
const (
	entryBytes         = 256 // an entry with its document and its list element
	keyBytes           = 128 // a key in the map of entries
	operationBytes     = 336
	variableBytes      = 80
	parameterBytes     = 64
	typeBytes          = 48
	planBytes          = 192
	selectionBytes     = 96
	pieceBytes         = 32
	preparedPieceBytes = 32
	fieldBytes         = 136
	errorBytes         = 160 // an Error with one location
	listedBytes        = 16  // a field in one of the plan's lists
	locationBytes      = 16
	outputTypeBytes    = 96
	possibleTypeBytes  = 32
	callArgumentsBytes = 48
	argumentBytes      = 56
	literalBytes       = 160
	positionBytes      = 48 // an ast.Position
	slotBytes          = 16 // an interface value
	placeholderBytes   = 24
	literalsBytes      = 48 // a literals without its values
)

// textBytes returns the memory that a string of n bytes takes. The sizes that the allocator uses are multiples of 16
// bytes, and about a quarter of a power of two apart if they are larger than 512 bytes. Above 32 KiB, they are pages.
func textBytes(n int) int {
	step := 16
	if n > 512 {
		step = min(1<<(bits.Len(uint(n-1))-3), 8<<10)
	}
	return (n + step - 1) &^ (step - 1)
}

// sizeOf returns the memory of a coerced value, without the interface that holds it. If own is set, it counts the
// names in objects. Otherwise, they belong to the schema.
func sizeOf(v any, own bool) int {
	switch v := v.(type) {
	case nil, bool, absent:
		return 0
	case int:
		if v >= 0 && v < 256 {
			return 0 // the runtime does not allocate these
		}
	case string:
		return slotBytes + textBytes(len(v))
	case []any:
		bytes := 24 + slotBytes*cap(v)
		for _, item := range v {
			bytes += sizeOf(item, own)
		}
		return bytes
	case map[string]any:
		bytes := mapBytes(len(v))
		for name, item := range v {
			if bytes += sizeOf(item, own); own {
				bytes += textBytes(len(name))
			}
		}
		return bytes
	}
	return 8
}

// cloneSize returns the memory that cloneValue allocated for v. A clone shares all strings with the original.
func cloneSize(v any) (bytes int) {
	switch v := v.(type) {
	case []any:
		bytes = 24 + slotBytes*cap(v)
		for _, item := range v {
			bytes += cloneSize(item)
		}
	case map[string]any:
		bytes = mapBytes(len(v))
		for _, item := range v {
			bytes += cloneSize(item)
		}
	}
	return bytes
}

// mapBytes returns the memory of a map from strings to interfaces that has n entries.
func mapBytes(n int) int {
	const header, slot = 48, 33
	switch {
	case n == 0:
		return header
	case n <= 8:
		return header + 9*slot
	}
	slots := 16
	for n > slots*7/8 {
		slots *= 2
	}
	return 2*header + slots*(slot+7) // the allocator rounds large blocks up to at most 40 bytes for each slot
}

// literalSize returns the memory of a copy of v. Each node of the copy takes perNode bytes, in addition to its
// text.
func literalSize(v *ast.Value, perNode int) int {
	bytes := perNode + textBytes(len(v.Raw))
	if v.Kind == ast.Variable {
		bytes += positionBytes
	}
	for _, c := range v.Children {
		bytes += textBytes(len(c.Name)) + literalSize(c.Value, perNode)
	}
	return bytes
}

// coercedSize returns the memory of a value that was coerced to the type t. The value of a host's scalar counts as
// at least written, the length of the input, because it may have any Go type.
func (s *Schema) coercedSize(t *ast.Type, value any, written int) int {
	if !s.opaque[t.Name()] {
		return sizeOf(value, false)
	}
	return max(sizeOf(value, true), written)
}

// constantSize returns the memory of value, to which the literal v was coerced. If v is nil, it returns 0.
func (s *Schema) constantSize(t *ast.Type, v *ast.Value, value any) int {
	if v == nil {
		return 0
	}
	return s.coercedSize(t, value, len(v.String()))
}

func (d *document) size() int {
	total := textBytes(len(d.text))
	for _, op := range d.operations {
		total += op.size
		if op.plan != nil {
			total += op.plan.size
		}
	}
	return total
}

func typeSize(t *ast.Type) (bytes int) {
	for ; t != nil; t = t.Elem {
		bytes += typeBytes
	}
	return bytes
}

// MemoryUse describes the memory that a Bound keeps alive. Sizes are in bytes. Except for Shared, they belong to
// the Bound alone.
type MemoryUse struct {
	// Plan is the id of the plan. Bounds with the same id share Shared.
	Plan uint64
	// Shared is the memory of the plan and its operation, which all Bounds with this plan share.
	Shared int
	// Text is the memory of the document's text if the plan was compiled from another text.
	Text int
	// Variables is the memory of the variables and parameters.
	Variables int
	// VariablesJSON is the length of the variables and of the literals in arguments as JSON.
	VariablesJSON int
}

// MemoryUse returns the memory that b keeps alive. For a query, Variables does not include their values, and
// VariablesJSON is 0.
func (b *Bound) MemoryUse() MemoryUse {
	return MemoryUse{Plan: b.plan.id, Shared: b.plan.size + b.op.size,
		Text:      cap(b.text) + placeholderBytes*cap(b.placeholders),
		Variables: slotBytes*cap(b.variables) + b.ownBytes, VariablesJSON: b.jsonBytes}
}

// measureVariables sets ownBytes and jsonBytes. ownBytes does not include strings in defaults and literals of the
// text that was compiled, because these belong to the operation.
func (b *Bound) measureVariables(valueOf lookup) {
	b.ownBytes, b.jsonBytes = 0, b.op.literalBytes
	for i, v := range b.op.variables[:b.op.declared] {
		value, present := valueOf(v.name)
		if !present {
			b.ownBytes += cloneSize(b.variables[i]) // a clone of the default
			continue
		}
		written := jsonLength(value)
		b.jsonBytes += written
		b.ownBytes += b.cache.schema.coercedSize(v.typ, b.variables[i], written)
	}
	for _, v := range b.variables[b.op.declared:] {
		b.jsonBytes += jsonLength(v)
		if len(b.placeholders) > 0 {
			b.ownBytes += sizeOf(v, false)
		}
	}
}

// jsonLength returns the approximate length of a value as JSON.
func jsonLength(v any) (bytes int) {
	switch v := v.(type) {
	case string:
		return len(v) + len(`""`)
	case json.Number:
		return len(v)
	case []any:
		for _, item := range v {
			bytes += jsonLength(item) + len(",")
		}
		return bytes + len("[]")
	case map[string]any:
		for name, item := range v {
			bytes += len(name) + len(`"":,`) + jsonLength(item)
		}
		return bytes + len("{}")
	}
	return len("false")
}

// literalLength returns the approximate length of the literals in the arguments of an operation and of all fragments.
func literalLength(tree *ast.QueryDocument, def *ast.OperationDefinition) (bytes int) {
	var length func(v *ast.Value) int
	length = func(v *ast.Value) int {
		if v.Kind == ast.Variable {
			return 0
		}
		n := len(v.Raw) + len(`""`)
		for _, c := range v.Children {
			n += len(c.Name) + len(`"":,`) + length(c.Value)
		}
		return n
	}
	for sel := range selections(tree, def) {
		if f, ok := sel.(*ast.Field); ok {
			for _, arg := range f.Arguments {
				bytes += length(arg.Value)
			}
		}
	}
	return bytes
}
