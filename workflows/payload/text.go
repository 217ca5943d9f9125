package payload

import (
	"fmt"
	"slices"
)

// Bounds on the texts in signals.
const (
	MaxName = 200
	MaxWhy  = 1000
)

// MaxCause bounds the text of a cause, or of an error, in them.
const MaxCause = 8_000

// MaxTexts is how many texts a list keeps that must be shortened.
const MaxTexts = 3

// Shorter are the lengths to which texts are shortened, one after the other, in characters.
var Shorter = []int{MaxWhy, MaxName, 40}

// Clip shortens a text to n characters, the last one an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func ClipAll(texts []string, n int) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = Clip(texts[i], n)
	}
	return texts
}

// ClipLast returns the last texts, with at most n characters each.
func ClipLast(texts []string, n int) []string {
	return ClipAll(texts[max(0, len(texts)-MaxTexts):], n)
}

// ClipFirst returns the first texts, with at most n characters each, and counts the others.
func ClipFirst(texts []string, n int) []string {
	short := ClipAll(texts[:min(len(texts), MaxTexts)], n)
	if more := len(texts) - MaxTexts; more > 0 {
		short = append(short, fmt.Sprintf("and %d more", more))
	}
	return short
}
