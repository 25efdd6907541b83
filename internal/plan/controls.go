package plan

import "strings"

// The specification of September 2025 takes any character in strings and
// comments; gqlparser's lexer refuses control characters there, as that of
// October 2021 did. So it is shown noncharacters instead, of which Unicode has
// just enough in a row, and the values that it reads are put right. Positions
// stay what they are: both are one character.
const disguise = '\uFDD0'

func isControl(r rune) bool   { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }
func isDisguised(r rune) bool { return r >= disguise && r < disguise+' ' }

// disguised returns a text for gqlparser to read, and whether values read from
// it have to be put right. A text that has such noncharacters of its own is
// left alone.
func disguised(text string) (string, bool) {
	if !strings.ContainsFunc(text, isControl) || strings.ContainsFunc(text, isDisguised) {
		return text, false
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return disguise + r
		}
		return r
	}, text), true
}

// undisguised puts a value right.
func undisguised(value string) string {
	return strings.Map(func(r rune) rune {
		if isDisguised(r) {
			return r - disguise
		}
		return r
	}, value)
}
