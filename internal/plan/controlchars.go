package plan

import "strings"

// controlSubstitute is the first of the 32 characters that replace control characters in a document before
// gqlparser reads it. The GraphQL specification of September 2025 allows control characters in strings and
// comments, but gqlparser's lexer rejects them, because the specification of October 2021 did not allow them. The
// substitutes are a block of exactly 32 noncharacters in Unicode. Positions stay the same, because they count
// characters. After parsing, the control characters are restored in all values.
const controlSubstitute = '\uFDD0'

func isControl(r rune) bool    { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }
func isSubstitute(r rune) bool { return r >= controlSubstitute && r < controlSubstitute+' ' }

// substituteControls returns text with substitutes instead of control characters and reports whether it replaced
// any. A text that already contains substitutes is returned unchanged.
func substituteControls(text string) (string, bool) {
	if !strings.ContainsFunc(text, isControl) || strings.ContainsFunc(text, isSubstitute) {
		return text, false
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return controlSubstitute + r
		}
		return r
	}, text), true
}

// restoreControls replaces the substitutes in a value with the original control characters.
func restoreControls(value string) string {
	return strings.Map(func(r rune) rune {
		if isSubstitute(r) {
			return r - controlSubstitute
		}
		return r
	}, value)
}
