package activities

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Visible makes a text of a world, or of anybody, one that a person sees as it is: what a screen
// would not show, or would obey, stands as in JSON, such as \u202e for the mark that turns the
// direction of writing. Line feeds and tabs stay.
func Visible(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if !strings.ContainsFunc(s, isHidden) && strings.ToValidUTF8(s, "") == s {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !isHidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// variationSelectors change nothing that a person would miss, and can carry a text.
var variationSelectors = &unicode.RangeTable{R32: []unicode.Range32{{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}}}

// isHidden reports whether a character is a control, turns the direction of writing, or takes no
// place.
func isHidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x7f:
		return r < ' '
	}
	return !unicode.IsGraphic(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, variationSelectors)
}
