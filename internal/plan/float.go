package plan

import (
	"strconv"
	"strings"
)

const (
	maxFloatDigits = 19   // a uint64 can hold as many
	minFloatExp    = -306 // of 0.1e-306; smaller numbers may be subnormal
	maxFloatExp    = 309
	maxFloat       = "1797693134862315807" // the digits of the greatest number that is not out of range
)

// parseFloat parses a number of a GraphQL document or of JSON in bounded time. For a number that is subnormal or
// slightly out of range, and for some numbers with more digits than a uint64 can hold, strconv.ParseFloat needs up to
// 50 µs, several hundred times as long as for others, and clients can send thousands of these. Therefore, numbers
// nearer to zero than 1e-307 become 0, and only the first 19 significant digits count, which can change the result by
// one unit in the last place.
func parseFloat(text string) (float64, error) {
	short := make([]byte, 0, maxFloatDigits+8)
	at, digits, exp, fraction := 0, 0, 0, false // the number is 0.<digits> times 10 to the power of exp
	if text[0] == '-' {
		short, at = append(short, '-'), 1
	}
	for ; at < len(text) && text[at]|0x20 != 'e'; at++ {
		switch c := text[at]; {
		case c == '.':
			fraction = true
		case c == '0' && digits == 0:
			if fraction {
				exp--
			}
		default:
			if digits < maxFloatDigits {
				short, digits = append(short, c), digits+1
			}
			if !fraction {
				exp++
			}
		}
	}
	if at < len(text) {
		const limit = 1 << 29             // more than any number of digits
		n, _ := strconv.Atoi(text[at+1:]) // if the exponent is out of range, n is the nearest int
		exp += min(max(n, -limit), limit)
	}
	switch {
	case digits == 0, exp < minFloatExp:
		return 0, nil
	case exp > maxFloatExp, exp == maxFloatExp && strings.TrimPrefix(string(short), "-") > maxFloat:
		return 0, strconv.ErrRange
	}
	return strconv.ParseFloat(string(strconv.AppendInt(append(short, 'e'), int64(exp-digits), 10)), 64)
}
