package debug

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns text with an escape such as ‹U+202E› for each character that a reader cannot see,
// that changes the direction of the text, or that looks like a space. Without escapes, two different
// texts could look the same.
func visible(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1: // a byte that is not UTF-8
			fmt.Fprintf(&b, "‹0x%02X›", text[i])
		case !unicode.IsPrint(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector),
			r == '\u2800' || r == '‹': // a Braille pattern without dots, and the begin of an escape
			fmt.Fprintf(&b, "‹U+%04X›", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
