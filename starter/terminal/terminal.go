package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/seed-62bf7108/unwind/activities"
)

// Table aligns columns of text. The last column is not padded.
type Table struct {
	rows [][]string
	// Indent is put before each row.
	Indent string
	// Width is how wide a row may be; 0: as wide as it is. Cells of the columns in Least are clipped
	// for it, the widest first, each column down to that width. A first cell that is wider than its
	// column then stands on a line of its own, above the rest of its row.
	Width int
	Least []int
}

// maxFirst is how wide a first column may be where the width of a row is bounded: wider cells do
// not widen it.
const maxFirst = 32

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the rows.
func (t *Table) Write(w io.Writer) {
	widths := t.widths()
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			if i == 0 && t.Width > 0 && utf8.RuneCountInString(cell) > widths[0] {
				fmt.Fprintln(w, t.Indent+Clip(cell, t.Width))
				cell = ""
			}
			if t.Width > 0 {
				cell = Clip(cell, widths[i])
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		fmt.Fprintln(w, t.Indent+strings.TrimRight(b.String(), " "))
	}
}

// gap is how many spaces are between two columns.
const gap = 2

// widths are those of the columns.
func (t *Table) widths() (widths []int) {
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if width := utf8.RuneCountInString(cell); i > 0 || t.Width == 0 || width <= maxFirst {
				widths[i] = max(widths[i], width)
			}
		}
	}
	if t.Width == 0 || len(widths) == 0 {
		return widths
	}
	over := gap*(len(widths)-1) - t.Width
	for _, width := range widths {
		over += width
	}
	for ; over > 0; over-- {
		widest := 0 // the first column is narrowed where no other can be
		for i, least := range t.Least {
			if i > 0 && least > 0 && widths[i] > least && (widest == 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest == 0 && widths[0] <= t.Least[0] {
			break
		}
		widths[widest]--
	}
	return widths
}

// OneLine makes one printable line of a text: a terminal would obey the control characters of a
// world or a person.
func OneLine(s string) string {
	return strings.Join(strings.Fields(Printable(s)), " ")
}

// Printable is a text as a person sees it: see activities.Visible.
func Printable(s string) string { return activities.Visible(s) }

// Indent puts a prefix before each line of a printable text.
func Indent(prefix, s string) string {
	lines := strings.Split(strings.TrimRight(Printable(s), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(prefix+line, " ")
	}
	return strings.Join(lines, "\n")
}

// Duration formats a duration for people.
func Duration(d time.Duration) string {
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

// LocalTime formats a time in the local time zone.
func LocalTime(t time.Time, layout string) string {
	return t.Local().Format(layout) //nolint:gosmopolitan // a person reads it
}

// Clip shortens a line to n characters, the last one an ellipsis.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:max(0, n-1)]) + "…"
	}
	return s
}

// ShellQuote quotes a word for a POSIX shell.
func ShellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Plural puts a number before a noun, which takes an s unless the number is 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsTerminal says that a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
