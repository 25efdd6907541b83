package strictjson

import "bytes"

// A Repeated holds the last string that [Reader.Repeated] has read.
type Repeated struct{ raw, text []byte }

// maxRepeated is the maximum length of a string in a Repeated.
const maxRepeated = 1 << 10

// Repeated is like Text. If the string has the same bytes as the last one, it neither checks nor decodes it. The result
// may be a part of last, which the next Repeated changes.
func (r *Reader) Repeated(last *Repeated) ([]byte, error) {
	r.peek()
	if start := r.at; len(last.raw) == 0 || !bytes.HasPrefix(r.text[start:], last.raw) {
		text, err := r.Text()
		if err == nil && r.at-start <= maxRepeated {
			last.raw, last.text = append(last.raw[:0], r.text[start:r.at]...), append(last.text[:0], text...)
		}
		return text, err
	}
	r.at += len(last.raw)
	return last.text, nil
}
