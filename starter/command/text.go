package command

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// table lines up columns of text. The last column is never padded.
type table struct {
	rows   [][]string
	indent string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(w, t.indent+strings.TrimRight(b.String(), " "))
	}
}

// oneLine makes a text fit into a line: what a world or a person wrote may hold control characters, which a terminal
// would obey.
func oneLine(s string) string {
	return strings.Join(strings.Fields(printable(s)), " ")
}

// printable drops control characters but for line ends and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// indented puts a prefix before each line of a text.
func indented(prefix, s string) string {
	lines := strings.Split(strings.TrimRight(printable(s), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(prefix+line, " ")
	}
	return strings.Join(lines, "\n")
}

// took is a duration for people.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(0, d).Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if shorter := strings.TrimSuffix(text, zero); strings.HasSuffix(shorter, "m") || strings.HasSuffix(shorter, "h") {
			text = shorter
		}
	}
	return text
}

// clock is a time as the clock on this person's wall shows it.
func clock(t time.Time, layout string) string {
	return t.Local().Format(layout) //nolint:gosmopolitan // a person reads it
}

// clipped is the first n characters of a line.
func clipped(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:max(0, n-1)]) + "…"
	}
	return s
}

// quoted is a word for a POSIX shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
