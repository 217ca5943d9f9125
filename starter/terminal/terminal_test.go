package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestDurationsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 40 * time.Millisecond: "40ms", 1500 * time.Millisecond: "1.5s",
		12300 * time.Millisecond: "12s",
		3 * time.Minute:          "3m", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 2*time.Hour +
			90*time.Second: "2h2m", 30 * time.Minute: "30m",
		100 * time.Hour: "100h", 50 * time.Second: "50s",
	} {
		require.Equal(t, want, Duration(d), d)
	}
}

func TestWordsForAShell(t *testing.T) {
	for word, want := range map[string]string{"a-b.1": "a-b.1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(x)": "'$(x)'"} {
		require.Equal(t, want, ShellQuote(word))
	}
}

func TestATableFitsItsWidth(t *testing.T) {
	write := func(width int, rows ...[]string) string {
		table := Table{Width: width, Least: []int{6, 4, 5}}
		for _, row := range rows {
			table.Row(row...)
		}
		var b strings.Builder
		table.Write(&b)
		return b.String()
	}
	head := []string{"ID", "NAME", "STATUS", "AT"}
	require.Equal(t, "ID  NAME  STATUS  AT\nab  cd    ef      gh\n", write(60, head, []string{"ab", "cd", "ef", "gh"}),
		"what fits is left alone")
	require.Equal(t, "ID       NAME  STAT…  AT\nabcdefg  lon…  comm…  noon\n",
		write(26, head, []string{"abcdefg", "long words", "committed", "noon"}), "the widest cells are clipped")
	require.Equal(t, "ID  NAME  STATUS  AT\n"+strings.Repeat("x", 33)+"\n    cd    ef      gh\n",
		write(60, head, []string{strings.Repeat("x", 33), "cd", "ef", "gh"}), "a long id stands alone, and whole")
	for n := range 200 {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		var rows [][]string
		for range 1 + r.IntN(5) {
			rows = append(rows,
				[]string{strings.Repeat("é", r.IntN(90)), strings.Repeat("n", r.IntN(90)), strings.Repeat("s", r.IntN(90)),
					"12:00"})
		}
		for line := range strings.SplitSeq(write(28, rows...), "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 28, line)
		}
	}
}
