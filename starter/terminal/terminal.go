package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Table aligns columns of text. The last column is not padded.
type Table struct {
	rows [][]string
	// Indent is put before each row.
	Indent string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the rows.
func (t *Table) Write(w io.Writer) {
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
		fmt.Fprintln(w, t.Indent+strings.TrimRight(b.String(), " "))
	}
}

// OneLine makes one line of a text and drops control characters: a terminal would obey those of a world or a person.
func OneLine(s string) string {
	return strings.Join(strings.Fields(Printable(s)), " ")
}

// Printable drops control characters except line feeds and tabs.
func Printable(s string) string {
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
