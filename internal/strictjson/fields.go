package strictjson

// Fields reads the object in text, which must contain nothing else, and calls field with each key and the text of its
// value. The key is valid only during the call. The value is a part of text.
//
// Fields accepts exactly the objects in UTF-8 that encoding/json accepts. Unlike Read, it permits repeated keys: it
// calls field for each of them. It builds no values, so that its cost depends only on the length of the text.
func Fields(text []byte, field func(key, value []byte)) error {
	var r Reader
	r.Reset(text, MaxDepth)
	if r.peek() != '{' {
		return r.unexpected()
	}
	err := r.nest('}', func() error {
		key, err := r.Text()
		if err != nil {
			return err
		}
		if !r.Is(':') {
			return r.unexpected()
		}
		value, err := r.skip()
		if err == nil {
			field(key, value)
		}
		r.room = r.room[:0]
		return err
	})
	if err == nil && !r.End() {
		err = r.unexpected()
	}
	return err
}

// skip reads the next value and returns its text. It does not call itself for nested values, because the stack of
// 10,000 calls would be many times as large as the text.
func (r *Reader) skip() ([]byte, error) {
	var few [32]byte
	open := few[:0] // the closing bytes of the objects and arrays that are being read
	c := r.peek()
	for start := r.at; ; c = r.peek() {
		first := c == '{' || c == '['
		if first {
			if len(open) == r.depth {
				return nil, ErrDepth
			}
			open = append(open, c+2) // '{'+2 is '}', and '['+2 is ']'
			r.at++
		} else if err := r.skipScalar(c); err != nil {
			return nil, err
		}
		for len(open) > 0 && r.Is(open[len(open)-1]) {
			open, first = open[:len(open)-1], false
		}
		if len(open) == 0 {
			return r.text[start:r.at:r.at], nil
		}
		if !first && !r.Is(',') {
			return nil, r.unexpected()
		}
		if open[len(open)-1] == '}' {
			if _, err := r.readText(false); err != nil {
				return nil, err
			}
			if !r.Is(':') {
				return nil, r.unexpected()
			}
		}
	}
}

// skipScalar reads a string, number or word that begins with c.
func (r *Reader) skipScalar(c byte) error {
	switch {
	case c == '"':
		_, err := r.readText(false)
		return err
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case r.word("null") || r.word("true") || r.word("false"):
		return nil
	}
	return r.unexpected()
}
