package plan

import "strings"

// controlSubstitute is the first of the characters that replace control characters
// before gqlparser reads a document. The specification of September 2025 allows any
// character in strings and comments, but gqlparser's lexer refuses control characters,
// as the specification of October 2021 did. The substitutes are noncharacters of
// Unicode, which has a block of exactly 32. Positions do not change: they count
// characters. Values are restored after parsing.
const controlSubstitute = '\uFDD0'

func isControl(r rune) bool    { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }
func isSubstitute(r rune) bool { return r >= controlSubstitute && r < controlSubstitute+' ' }

// substituteControls returns the text that gqlparser reads and reports whether it
// differs. It leaves a text alone that contains some of the substitutes itself.
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

// restoreControls replaces the substitutes in a value by the control characters.
func restoreControls(value string) string {
	return strings.Map(func(r rune) rune {
		if isSubstitute(r) {
			return r - controlSubstitute
		}
		return r
	}, value)
}
