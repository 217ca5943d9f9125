package file

import (
	"fmt"
	"slices"
	"strings"
)

// unified is the difference of two texts as hunks of a unified diff, with three lines of context.
func unified(before, after string) string {
	a, b := splitLines(before), splitLines(after)
	edits := edits(a, b)
	const context = 3
	var out strings.Builder
	for i := 0; i < len(edits); {
		if edits[i].sign == ' ' {
			i++
			continue
		}
		// A hunk goes on while no more than two contexts lie between two edits.
		first, last := i, i
		for j := i; j < len(edits) && j-last <= 2*context; j++ {
			if edits[j].sign != ' ' {
				last = j
			}
		}
		from, to := max(0, first-context), min(len(edits), last+1+context)
		hunk(&out, edits[from:to])
		i = to
	}
	return out.String()
}

type edit struct {
	sign byte // ' ', '-' or '+'
	line string
	a, b int // how many lines of each text come before it
}

func hunk(out *strings.Builder, edits []edit) {
	var inA, inB int
	for _, e := range edits {
		if e.sign != '+' {
			inA++
		}
		if e.sign != '-' {
			inB++
		}
	}
	start := func(before, lines int) int {
		if lines == 0 {
			return before
		}
		return before + 1
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", start(edits[0].a, inA), inA, start(edits[0].b, inB), inB)
	for _, e := range edits {
		line, whole := strings.CutSuffix(e.line, "\n")
		fmt.Fprintf(out, "%c%s\n", e.sign, line)
		if !whole {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
}

func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// edits turns a into b. What is the same at both ends is set aside; between them, the longest common subsequence is kept
// where the table for it is small, and all is replaced where it is not.
func edits(a, b []string) []edit {
	var out []edit
	na, nb := 0, 0
	add := func(sign byte, line string) {
		out = append(out, edit{sign, line, na, nb})
		if sign != '+' {
			na++
		}
		if sign != '-' {
			nb++
		}
	}
	for len(a) > na && len(b) > nb && a[na] == b[nb] {
		add(' ', a[na])
	}
	tail := 0
	for len(a)-tail > na && len(b)-tail > nb && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	restA, restB := a[na:len(a)-tail], b[nb:len(b)-tail]
	common := table(restA, restB)
	i, j := 0, 0
	for i < len(restA) || j < len(restB) {
		switch {
		case common != nil && i < len(restA) && j < len(restB) && restA[i] == restB[j]:
			add(' ', restA[i])
			i, j = i+1, j+1
		case i < len(restA) && (common == nil || j == len(restB) || common[i+1][j] >= common[i][j+1]):
			add('-', restA[i])
			i++
		default:
			add('+', restB[j])
			j++
		}
	}
	for _, line := range a[len(a)-tail:] {
		add(' ', line)
	}
	return out
}

// table holds, for each pair of ends, how long their longest common subsequence is; nil where it would be too big.
func table(a, b []string) [][]int32 {
	const most = 4 << 20
	if (len(a)+1)*(len(b)+1) > most {
		return nil
	}
	t := make([][]int32, len(a)+1)
	for i := range t {
		t[i] = make([]int32, len(b)+1)
	}
	for i, line := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			if line == b[j] {
				t[i][j] = t[i+1][j+1] + 1
			} else {
				t[i][j] = max(t[i+1][j], t[i][j+1])
			}
		}
	}
	return t
}
