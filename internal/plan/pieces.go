package plan

import "slices"

// A piece is a part of an object: a text, followed by the value that append appends.
type piece struct {
	text   string                   // with all keys, braces and commas since the previous value
	append func([]byte, any) []byte // nil in the last piece
}

// maxPieceText is the maximum size in bytes of the texts of an object's pieces. Objects with the same fields up to one
// have different texts, so long names in a fragment would be copied for each place of the fragment. An object of a block
// with all fields takes 120 bytes.
const maxPieceText = 512

// pieces returns the pieces of an object with these fields, which include the pieces of the objects that are the same
// Go value. If a field needs more than the source, or the names are too long, it returns nil.
func (k *compiler) pieces(fields []*field) (all []piece) {
	size := 0
	for _, f := range fields {
		size += len(f.key) + len(f.typename)
		switch {
		case f.append != nil, f.typename != nil:
		case f.same != nil && f.same.pieces != nil:
			for _, p := range f.same.pieces {
				size += len(p.text)
			}
		default:
			return nil
		}
	}
	if size > maxPieceText {
		return nil
	}
	text := []byte{'{'}
	for _, f := range fields {
		text = append(text, f.key...)
		switch {
		case f.append != nil:
			all, text = append(all, piece{k.text(text), f.append}), text[:0]
		case f.typename != nil:
			text = append(text, f.typename...)
		default:
			for _, p := range f.same.pieces {
				if text = append(text, p.text...); p.append != nil {
					all, text = append(all, piece{k.text(text), p.append}), text[:0]
				}
			}
		}
	}
	all = append(all, piece{text: k.text(append(text, '}'))})
	k.plan.size += pieceBytes * len(all)
	return slices.Clone(all)
}

// key returns field.key for a response name.
func (k *compiler) key(name string, comma bool) string {
	key := `"` + name + `":`
	if comma {
		key = "," + key
	}
	return k.text([]byte(key))
}

// text returns a text as a string that all its uses in the plan share.
func (k *compiler) text(text []byte) string {
	if known, ok := k.texts[string(text)]; ok {
		return known
	}
	own := string(text)
	k.texts[own] = own
	k.plan.size += textBytes(len(own))
	return own
}
