package debug

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns text with an escape such as ‹U+202E› in place of each character that a reader would
// not see, that changes the direction of others, or that looks like a space. So two texts that differ
// do not look alike because of such characters.
func visible(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1: // a byte that is no UTF-8
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
