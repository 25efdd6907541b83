package plan

import "slices"

// A piece is a part of an object: a text, followed by the value of a field.
type piece struct {
	text   string                   // all keys, braces and commas since the previous value
	append func([]byte, any) []byte // appends the value; nil in the last piece
	key    uint8                    // the length of the field's key at the end of text, if part is set
	part   uint8                    // Field.Part, unless the response has another name for the field
}

// A Prepared source has some of its fields as JSON. Field.Part is the number of such a field. A list whose items are
// Prepared is appended faster, above all if the selection has the fields in the order of their parts.
type Prepared interface {
	// Parts returns the text of all parts, each with a comma, its key and its value. Part n ends before ends[n], and
	// ends[0] is 0.
	Parts() (text string, ends []uint16)
}

// A preparedPiece is a part of an object with a Prepared source: a text, followed by parts or the value of a field.
type preparedPiece struct {
	text     string
	append   func([]byte, any) []byte // appends the value of a field; nil if parts follow, or nothing
	from, to uint8                    // the parts after from up to to follow
	skip     uint8                    // 1 if the comma of the first of these parts is left out
}

// maxPieceText is the maximum size in bytes of the texts of an object's pieces. Objects that differ in one field may
// share no text, so without this limit, long names in a fragment could be copied for each spread of the fragment. The
// texts of a block with all fields take 120 bytes.
const maxPieceText = 512

// pieces returns the pieces of an object with these fields, including those of nested objects with the same source. It
// returns nil if a field needs more than the source, or if the names are too long.
func (k *compiler) pieces(fields []*field) (all []piece) {
	size := 0
	for _, f := range fields {
		size += len(f.key) + len(f.typename)
		switch {
		case f.append != nil, f.typename != "":
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
	add := func(p piece) {
		p.text, text = k.text(text), text[:0]
		all = append(all, p)
	}
	for _, f := range fields {
		text = append(text, f.key...)
		switch {
		case f.append != nil && f.source.Part > 0 && f.name() == f.source.Name:
			add(piece{append: f.append, key: uint8(len(f.key)), part: uint8(f.source.Part)})
		case f.append != nil:
			add(piece{append: f.append})
		case f.typename != "":
			text = append(text, f.typename...)
		default:
			for _, p := range f.same.pieces {
				if text = append(text, p.text...); p.append != nil {
					add(p)
				}
			}
		}
	}
	text = append(text, '}')
	add(piece{})
	k.plan.size += pieceBytes * len(all)
	return slices.Clone(all)
}

// preparedPieces returns the pieces of an object with a Prepared source. If no field is a part, it returns nil.
func (k *compiler) preparedPieces(pieces []piece) (all []preparedPiece) {
	parts := false
	for _, p := range pieces {
		if p.part == 0 {
			all = append(all, preparedPiece{text: p.text, append: p.append})
			continue
		}
		parts = true
		before, key := p.text[:len(p.text)-int(p.key)], p.text[len(p.text)-int(p.key):]
		if n := len(all); before == "" && n > 0 && all[n-1].to > 0 && all[n-1].to == p.part-1 {
			all[n-1].to = p.part
			continue
		}
		next := preparedPiece{text: k.text([]byte(before)), from: p.part - 1, to: p.part}
		if key[0] != ',' {
			next.skip = 1
		}
		all = append(all, next)
	}
	if !parts {
		return nil
	}
	k.plan.size += preparedPieceBytes * len(all)
	return slices.Clone(all)
}

// pieces appends an object from its pieces.
func (r *run) pieces(s *selection, src any) bool {
	dst := r.dst
	var source Prepared
	if s.prepared != nil {
		source, _ = src.(Prepared)
	}
	if source != nil {
		text, ends := source.Parts()
		for i := range s.prepared {
			p := &s.prepared[i]
			dst = append(dst, p.text...)
			if p.to > 0 {
				dst = append(dst, text[ends[p.from]+uint16(p.skip):ends[p.to]]...)
			} else if p.append != nil {
				dst = p.append(dst, src)
			}
		}
	} else {
		for i := range s.pieces {
			p := &s.pieces[i]
			if dst = append(dst, p.text...); p.append != nil {
				dst = p.append(dst, src)
			}
		}
	}
	r.dst = dst
	r.step(len(s.pieces))
	return !r.full()
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
