package payload

import (
	"encoding/json"
	"slices"
)

// Max bounds the answer to a query, and whatever goes alone.
const Max = 1_500_000

// Cut is one way to make a payload shorter: what says what it leaves out.
type Cut struct {
	What string
	Make func()
}

// Shorten cuts a payload until it has at most limit bytes as JSON, and says what it has left out.
func Shorten(payload any, limit int, cuts ...Cut) (omitted []string) {
	size := SizeOf(payload)
	for _, c := range cuts {
		if size <= limit {
			break
		}
		c.Make()
		before := size
		if size = SizeOf(payload); size < before && !slices.Contains(omitted, c.What) {
			omitted = append(omitted, c.What)
		}
	}
	return omitted
}

// KeepFirst returns the first of items, at least one, whose sizes together stay within a limit.
func KeepFirst[T any](items []T, limit int) []T {
	n := 0
	for total := 0; n < len(items); n++ {
		if total += SizeOf(items[n]) + len(","); total > limit && n > 0 {
			break
		}
	}
	return items[:n]
}

// KeepLast returns the last of items whose sizes together stay within a limit.
func KeepLast[T any](items []T, limit int, size func(T) int) []T {
	first := len(items)
	for total := 0; first > 0; first-- {
		if total += size(items[first-1]); total > limit {
			break
		}
	}
	return items[first:]
}

// SizeOf is how many bytes v has as JSON.
func SizeOf(v any) int {
	raw, _ := json.Marshal(v) // plain data
	return len(raw)
}

// SizeOfItem is how many bytes an item adds to a list.
func SizeOfItem[T any](item T) int { return SizeOf(item) + len(",") }
