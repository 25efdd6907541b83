package plan

import (
	"encoding/json"

	"github.com/vektah/gqlparser/v2/ast"
)

// What the parts of plans take in memory, in bytes: the sizes of the structs, and
// what the allocator and maps add. Tests compare the sums with the growth of the
// heap.
const (
	entryBytes     = 256 // with the document and its element of the list
	keyBytes       = 128 // in the map of entries
	operationBytes = 336
	variableBytes  = 80
	liftedBytes    = 64
	typeBytes      = 48
	planBytes      = 192
	selectionBytes = 48
	fieldBytes     = 232
	listedBytes    = 16 // a field in one of the plan's lists
	locationBytes  = 16
	shapeBytes     = 96
	variantBytes   = 32
	argumentBytes  = 56
	literalBytes   = 160
	slotBytes      = 16 // an interface
	holeBytes      = 24
)

// textBytes is the memory of a string of n bytes.
func textBytes(n int) int { return (n + 15) &^ 15 }

// weigh returns the memory of a coerced value, without the interface that holds it.
// own reports whether the names in its objects are its own: else they are the
// schema's.
func weigh(v any, own bool) int {
	switch v := v.(type) {
	case nil, bool, absent:
		return 0
	case int:
		if v >= 0 && v < 256 {
			return 0 // the runtime has these
		}
	case string:
		return slotBytes + textBytes(len(v))
	case []any:
		bytes := 24 + slotBytes*cap(v)
		for _, item := range v {
			bytes += weigh(item, own)
		}
		return bytes
	case map[string]any:
		bytes := mapBytes(len(v))
		for name, item := range v {
			if bytes += weigh(item, own); own {
				bytes += textBytes(len(name))
			}
		}
		return bytes
	}
	return 8
}

// mapBytes is the memory of a map from strings to interfaces with n entries.
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

// weighLiteral returns the memory of a copy of a literal with each bytes for a node.
func weighLiteral(v *ast.Value, each int) int {
	bytes := each + textBytes(len(v.Raw))
	for _, c := range v.Children {
		bytes += textBytes(len(c.Name)) + weighLiteral(c.Value, each)
	}
	return bytes
}

// weighCoerced returns the memory of what was coerced to a type. What a host's scalar
// makes of a value may be anything: it counts as at least the length of the value as
// written.
func (s *Schema) weighCoerced(t *ast.Type, value any, written int) int {
	if !s.opaque[t.Name()] {
		return weigh(value, false)
	}
	return max(weigh(value, true), written)
}

// weighConstant returns the memory of what a literal, or none, was coerced to.
func (s *Schema) weighConstant(t *ast.Type, v *ast.Value, value any) int {
	if v == nil {
		return 0
	}
	return s.weighCoerced(t, value, len(v.String()))
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

func weighType(t *ast.Type) (bytes int) {
	for ; t != nil; t = t.Elem {
		bytes += typeBytes
	}
	return bytes
}

// A Holding is what somebody who keeps a Bound keeps, in bytes.
type Holding struct {
	Plan      uint64 // tells plans apart
	Shared    int    // by all who have the same plan
	Text      int    // of its own, of the document
	Variables int    // of its own, with the literals that were lifted out
	Written   int    // of a subscription: what those are as JSON
}

// Holding returns what keeping the Bound of a subscription keeps.
func (b *Bound) Holding() Holding {
	return Holding{Plan: b.plan.id, Shared: b.plan.size + b.op.size, Text: cap(b.text) + holeBytes*cap(b.holes),
		Variables: slotBytes*cap(b.variables) + b.own, Written: b.written}
}

// weighVariables counts what the values of b take: in memory, without those that
// are the operation's own, and as JSON, as they were given, with the literals in
// their place.
func (b *Bound) weighVariables(given lookup) {
	b.own, b.written = 0, 0
	for i, v := range b.op.variables[:b.op.declared] {
		if value, present := given(v.name); present {
			written := length(value)
			b.written += written
			b.own += b.cache.schema.weighCoerced(v.typ, b.variables[i], written)
		}
	}
	for _, v := range b.variables[b.op.declared:] {
		b.written += length(v)
		if len(b.holes) > 0 {
			b.own += weigh(v, false)
		}
	}
}

// length is about how long a value is as JSON.
func length(v any) (bytes int) {
	switch v := v.(type) {
	case string:
		return len(v) + len(`""`)
	case json.Number:
		return len(v)
	case []any:
		for _, item := range v {
			bytes += length(item) + len(",")
		}
		return bytes + len("[]")
	case map[string]any:
		for name, item := range v {
			bytes += len(name) + len(`"":,`) + length(item)
		}
		return bytes + len("{}")
	}
	return len("false")
}
