package gqlhttp

import (
	"iter"
	"strings"
)

// mime.ParseMediaType allocates several objects for each parameter and decodes the parts of parameters that RFC 2231
// splits. A client could make it take a millisecond before it is authorized. The functions below allocate nothing.

// cutMedia splits a media type at its first parameter.
func cutMedia(text string) (name, params string) {
	end := strings.IndexByte(text, ';')
	if end < 0 {
		end = len(text)
	}
	return strings.TrimSpace(text[:end]), text[end:]
}

// parameters yields the names and values of a media type's parameters. Values are without quotes, but with the
// backslashes in them. *ok is false if the text is malformed or the loop was left early.
func parameters(text string, ok *bool) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		*ok = false
		for {
			text = strings.TrimSpace(text)
			if text == "" || text == ";" {
				*ok = true
				return
			}
			if text[0] != ';' {
				return
			}
			name, rest := cutToken(strings.TrimSpace(text[1:]))
			rest, found := strings.CutPrefix(strings.TrimSpace(rest), "=")
			value, rest, valid := cutValue(strings.TrimSpace(rest))
			if name == "" || !found || !valid || !yield(name, value) {
				return
			}
			text = rest
		}
	}
}

// cutValue splits text after a token or a quoted string.
func cutValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		value, rest = cutToken(text)
		return value, rest, value != ""
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return text[1:i], text[i+1:], true
		case '\\':
			i++
		}
	}
	return "", "", false
}

// cutToken splits text after a token (RFC 2045, section 5.1).
func cutToken(text string) (token, rest string) {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?=`, c) >= 0 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// inUTF8 reports whether a parameter of a media type declares no charset other than UTF-8.
func inUTF8(name, value string) bool {
	return !equalFold(name, "charset") || value == "" || equalFold(value, "utf-8")
}

// equalFold compares text with ASCII letters without case. Letters outside of ASCII take more bytes than the ASCII
// letters that strings.EqualFold takes them for.
func equalFold(text, ascii string) bool {
	return len(text) == len(ascii) && strings.EqualFold(text, ascii)
}
