package file

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// unified is the difference of two texts as hunks of a unified diff, without the header that names the files.
func unified(before, after string) string {
	_, diff, _ := strings.Cut(udiff.Unified("", "", before, after), "\n+++ \n")
	return diff
}
