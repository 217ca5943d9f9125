package file

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// unified is the unified diff of two texts, without its header.
func unified(before, after string) string {
	_, diff, _ := strings.Cut(udiff.Unified("", "", before, after), "\n+++ \n")
	return diff
}
