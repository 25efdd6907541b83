package plan

import (
	"encoding/json"

	"github.com/vektah/gqlparser/v2/ast"
)

// The memory of the parts of plans in bytes: sizes of structs, rounded up for the
// allocator and maps. Tests compare the sums with the growth of the heap.
const (
	entryBytes        = 256 // with the document and its element of the list
	keyBytes          = 128 // in the map of entries
	operationBytes    = 336
	variableBytes     = 80
	parameterBytes    = 64
	typeBytes         = 48
	planBytes         = 192
	selectionBytes    = 48
	fieldBytes        = 232
	listedBytes       = 16 // a field in one of the plan's lists
	locationBytes     = 16
	outputTypeBytes   = 96
	possibleTypeBytes = 32
	argumentBytes     = 56
	literalBytes      = 160
	slotBytes         = 16 // an interface
	placeholderBytes  = 24
)

// textBytes returns the memory of a string of n bytes.
func textBytes(n int) int { return (n + 15) &^ 15 }

// sizeOf returns the memory of a coerced value, without the interface that holds it.
// If own is set, the names in its objects count: otherwise the schema holds them.
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

// cloneSize returns the memory that cloneValue allocated for v. Clones share all
// strings.
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

// mapBytes returns the memory of a map from strings to interfaces with n entries.
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
	return 2*header + slots*(slot+3)
}

// literalSize returns the memory of a copy of a literal with each bytes for a node.
func literalSize(v *ast.Value, each int) int {
	bytes := each + textBytes(len(v.Raw))
	for _, c := range v.Children {
		bytes += textBytes(len(c.Name)) + literalSize(c.Value, each)
	}
	return bytes
}

// coercedSize returns the memory of a value that was coerced to a type. A host's
// scalar may return anything: its value counts as at least the length of the input.
func (s *Schema) coercedSize(t *ast.Type, value any, written int) int {
	if !s.opaque[t.Name()] {
		return sizeOf(value, false)
	}
	return max(sizeOf(value, true), written)
}

// constantSize returns the memory of the value of a literal. v may be nil.
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

// MemoryUse describes the memory that a Bound, an operation with its variables, keeps alive. Sizes are in bytes.
type MemoryUse struct {
	Plan   uint64 // identifies the plan
	Shared int    // the plan and its operation: shared by all Bounds with this plan

	// The rest belongs to the Bound alone.
	Text      int // the document, if it differs from the one that was compiled
	Variables int // with parameters

	VariablesJSON int // length of a subscription's variables as JSON
}

// MemoryUse returns the memory of a subscription's Bound.
func (b *Bound) MemoryUse() MemoryUse {
	return MemoryUse{Plan: b.plan.id, Shared: b.plan.size + b.op.size,
		Text:      cap(b.text) + placeholderBytes*cap(b.placeholders),
		Variables: slotBytes*cap(b.variables) + b.ownBytes, VariablesJSON: b.jsonBytes}
}

// measureVariables sets ownBytes and jsonBytes. Strings in defaults, and literals of the
// text that was compiled, belong to the operation, so ownBytes does not contain them.
func (b *Bound) measureVariables(valueOf lookup) {
	b.ownBytes, b.jsonBytes = 0, 0
	for i, v := range b.op.variables[:b.op.declared] {
		value, present := valueOf(v.name)
		if !present {
			b.ownBytes += cloneSize(b.variables[i]) // of the default
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
