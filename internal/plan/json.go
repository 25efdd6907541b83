package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// plain is true for the ASCII characters that AppendString does not escape.
var plain = func() (all [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		all[c] = c != '"' && c != '\\'
	}
	return all
}()

// AppendString appends s as a JSON string. It replaces invalid UTF-8 with U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				dst = append(dst, s[start:i]...)
				dst = append(dst, `\ufffd`...)
				start = i + size
			case r == '\u2028' || r == '\u2029': // line terminators in JavaScript
				dst = append(dst, s[start:i]...)
				dst = append(dst, `\u202`...)
				dst = append(dst, hexDigits[r&0xf])
				start = i + size
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendInt appends n in decimal.
func AppendInt(dst []byte, n int64) []byte {
	if n < 0 {
		dst, n = append(dst, '-'), -n
	}
	return AppendUint(dst, uint64(n))
}

// AppendUint appends n in decimal. It takes half the time of strconv.AppendUint for the numbers of a block, because it
// computes eight digits at once and writes them directly into dst.
func AppendUint(dst []byte, n uint64) []byte {
	const zeros = '0' * 0x0101010101010101
	switch {
	case n < 10: // most workchains
		return append(dst, '0'+byte(n))
	case n < 100: // the rest of most times
		return append(dst, '0'+byte(n/10), '0'+byte(n%10))
	case n < 1e8:
		digits := eightDigits(n)
		leading := bits.TrailingZeros64(digits) / 8
		dst = binary.LittleEndian.AppendUint64(dst, (digits+zeros)>>(8*leading))
		return dst[:len(dst)-leading]
	}
	dst = AppendUint(dst, n/1e8)
	return binary.LittleEndian.AppendUint64(dst, eightDigits(n%1e8)+zeros)
}

// eightDigits returns the decimal digits of a number below 1e8, the first digit in the lowest byte. It splits the
// number into two numbers of four digits, these into four of two, and these into eight digits. It multiplies by rounded
// reciprocals, 10486/1<<20 for 1/100 and 103/1<<10 for 1/10. For numbers of so few digits, the quotients are exact.
func eightDigits(n uint64) uint64 {
	q := n / 1e4
	n = q | (n-q*1e4)<<32
	q = n * 10486 >> 20 & 0x0000007f0000007f
	n = q | (n-q*100)<<16
	q = n * 103 >> 10 & 0x000f000f000f000f
	return q | (n-q*10)<<8
}

// marshal returns a value from the host as JSON in valid UTF-8. encoding/json does not check the bytes that a
// json.Marshaler, such as json.RawMessage, returns. A WebSocket client must close its connection if it receives
// invalid UTF-8.
func marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte(`\ufffd`))
	}
	return text, err
}

var errNotFinite = errors.New("Float cannot represent a non-finite value")

// appendFloat appends f as JSON: without a decimal point if f is an integer, and with an exponent if f is very
// large or very small.
func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, errNotFinite
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
}
