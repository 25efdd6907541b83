package chaingql

import (
	"math"
	"slices"
	"unsafe"

	"github.com/chaingql/chaingql/internal/plan"
)

// A preparedBlock is a block of the window with its fields as JSON. Most queries are for recent blocks, and formatting
// their fields would take most of the time of a query. It implements [plan.Prepared].
type preparedBlock struct {
	Block
	suffix string // of the cursor
	text   string
	ends   [9]uint16 // one more than the number of preparedFields
}

// preparedFields are the fields of a block in a page, followed by the cursor of its edge.
var preparedFields = func() []plan.Field {
	fields := slices.Concat([]plan.Field{
		{Name: "id", Type: "ID!",
			Desc: `The unique id: "block/" followed by the hash.`, Append: func(dst []byte, src any) []byte {
				dst = append(dst, `"block/`...)
				return append(blockOf(src).Hash.append(dst), '"')
			}},
		{Name: "hash", Type: "String",
			Desc: "The hash of the block, as 64 hex digits in lower case.", Append: appendHash},
	}, blockFields, []plan.Field{
		{Name: "cursor", Type: "String!", Desc: "The cursor of the block.", Append: appendCursor},
	})
	for i := range fields {
		fields[i].Part = i + 1
	}
	return fields
}()

// prepare returns b as a preparedBlock, and its size in bytes.
func (c *chain) prepare(b Block) (any, int) {
	p := &preparedBlock{Block: b, suffix: c.suffix}
	text := make([]byte, 0, 512)
	for i, f := range preparedFields {
		text = append(append(append(text, `,"`...), f.Name...), `":`...)
		if text = f.Append(text, p); len(text) > math.MaxUint16 {
			return nil, 0 // its cursor is extremely long
		}
		p.ends[i+1] = uint16(len(text))
	}
	p.text = string(text)
	return p, int(unsafe.Sizeof(*p)) + len(p.text)
}

// Parts implements [plan.Prepared].
func (p *preparedBlock) Parts() (text string, ends []uint16) { return p.text, p.ends[:] }
