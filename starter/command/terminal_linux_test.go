package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tty is a real pseudo terminal with a screen that understands as much as the live view writes.
type tty struct {
	*testing.T
	user    *os.File // the person's side
	program *os.File

	mu       sync.Mutex
	lines    []string
	row, col int
	ended    chan struct{}
	escaped  bool
}

func newTTY(t *testing.T, width, height uint16) *tty {
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
	s := &tty{T: t, user: user, program: program, ended: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		_, _ = user.WriteString("\n") // a command that has ended may still be reading, which keeps its side open
		_ = program.Close()
		<-s.ended
		_ = user.Close()
	})
	return s
}

// read draws what the program writes, until it closes its side.
func (s *tty) read() {
	defer close(s.ended)
	buf := make([]byte, 64<<10)
	var rest []byte
	for {
		n, err := s.user.Read(buf)
		if err != nil {
			return
		}
		rest = s.draw(append(rest, buf[:n]...))
	}
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)

// draw draws b but for an unfinished end of it.
func (s *tty) draw(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		switch b[0] {
		case '\n':
			s.row++
			b = b[1:]
		case '\r':
			s.col = 0
			b = b[1:]
		case 0x1b:
			s.escaped = true
			m := escape.FindSubmatch(b)
			if m == nil {
				return b
			}
			n, _ := strconv.Atoi(string(m[1]))
			switch string(m[2]) {
			case "A":
				s.row -= n
			case "J":
				if s.row < len(s.lines) {
					s.lines = s.lines[:s.row]
				}
			case "m":
			default:
				panic("unknown escape " + string(m[0]))
			}
			b = b[len(m[0]):]
		default:
			end := bytes.IndexAny(b, "\n\r\x1b")
			if end < 0 {
				end = len(b)
				for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
					if !utf8.FullRune(b[len(b)-i:]) && utf8.RuneStart(b[len(b)-i]) {
						end = len(b) - i // a letter that has not come whole yet
					}
				}
				if end == 0 {
					return b
				}
			}
			for s.row >= len(s.lines) {
				s.lines = append(s.lines, "")
			}
			line := []rune(s.lines[s.row])
			text := []rune(string(b[:end]))
			s.lines[s.row] = string(line[:min(s.col, len(line))]) + string(text)
			s.col += len(text)
			b = b[end:]
		}
	}
	return nil
}

func (s *tty) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func (s *tty) sawEscape() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.escaped
}

func (s *tty) shows(text string) {
	s.Helper()
	require.Eventually(s, func() bool { return strings.Contains(s.screen(), text) }, waitFor, tick,
		"%q is not on the screen", text)
}

// run types a command at the terminal.
func (s *tty) run(d *desk, args ...string) chan int { return s.runFrom(d, s.program, args...) }

// show has a command write to the terminal while nobody sits at its standard input.
func (s *tty) show(d *desk, args ...string) chan int {
	return s.runFrom(d, strings.NewReader(""), append(args, "--wait")...)
}

func (s *tty) runFrom(d *desk, in io.Reader, args ...string) chan int {
	end := make(chan int, 1)
	go func() {
		end <- Run(d.Context(), d.options(), args, Streams{In: in, Out: s.program, Err: s.program})
	}()
	return end
}

func (s *tty) types(line string) {
	s.Helper()
	_, err := s.user.WriteString(line + "\n")
	require.NoError(s, err)
}

func TestTheLiveViewRedrawsInPlaceAndLetsGatesScrollAway(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 40)
	end := s.show(d, "run", d.file(gated), "--id", t.Name(), "--watch")
	s.shows("◆ two")
	s.shows("reject it")
	d.ok("approve", t.Name(), "two", "--yes")
	require.Equal(t, statusOK, <-end)
	s.shows("to take it back") // the last line
	screen := normal(s.screen())
	require.Equal(t, 1, strings.Count(screen, "◆")+strings.Count(screen, "✓ one")+strings.Count(screen, "▸"), screen)
	_, after, _ := strings.Cut(screen, "--why WHY\n")
	require.Equal(t, `
task `+t.Name()+` · Ship it! · agent bot · committed · T
 ✓ one fake.set set a to "x"
 ✓ two fake.set set b to "y"

report of `+t.Name()+`
committed: every step is done and stays
lasted: T

STEP ACTION TOOK WHAT IT DID
one fake.set T set a to "x"
two fake.set T set b to "y"

two: approved by ME

to take it back while its undo records are kept: starter rollback `+t.Name(), after)
}

func TestApproveAsksThePersonAtTheTerminal(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)

	s := newTTY(t, 100, 40)
	end := s.run(d, "approve", t.Name(), "two")
	s.shows("approve it? [y/N]")
	_, _ = s.user.WriteString("\n")
	require.Equal(t, statusFailed, <-end)
	s.shows("not confirmed: nothing was sent")
	require.Len(t, d.state(t.Name()).Gates, 1)

	s = newTTY(t, 100, 40)
	end = s.run(d, "approve", t.Name(), "two")
	s.shows("approve it? [y/N]")
	_, _ = s.user.WriteString("y\n")
	require.Equal(t, statusOK, <-end)
	s.shows("approved: step two")
	d.ok("watch", t.Name())
}

func TestWithNO_COLORNoEscapeCodeIsWritten(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	d := newLoneDesk(t)
	s := newTTY(t, 100, 40)
	end := s.run(d, "run", d.file(good), "--id", t.Name(), "--watch")
	require.Equal(t, statusOK, <-end)
	s.shows("to take it back")
	require.False(t, s.sawEscape())
}

func TestALongTaskFitsTheScreen(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: long\nsteps:\n")
	for i := range 40 {
		fmt.Fprintf(&b, "  - {id: s%d, uses: fake.set, with: {key: k%d, value: x}}\n", i, i)
	}
	b.WriteString("  - {id: last, uses: fake.set, with: {key: z, value: y}, gate: ask}\n")
	d := newDesk(t)
	s := newTTY(t, 60, 12)
	end := s.show(d, "run", d.file(b.String()), "--id", t.Name(), "--watch")
	s.shows("◆ last")
	screen := s.screen()
	drawn := screen[strings.LastIndex(screen, "task "+t.Name()):]
	require.LessOrEqual(t, strings.Count(drawn, "\n"), 10)
	require.Contains(t, drawn, "before")
	for line := range strings.SplitSeq(drawn, "\n") {
		require.LessOrEqual(t, len([]rune(line)), 59)
	}
	d.ok("approve", t.Name(), "last", "--yes")
	require.Equal(t, statusOK, <-end)
}
