package follow

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// View shows a task while it runs.
type View interface {
	// ShowState shows the state as of now.
	ShowState(s protocol.State, now time.Time)
	// PrintLine puts a line between what is shown.
	PrintLine(line string)
	// Hide leaves the screen to others until the next state is shown.
	Hide()
	// Close leaves the screen to what comes next.
	Close()
}

// plainView writes a line for each thing that happens, for a file or a pipe.
type plainView struct {
	out io.Writer
	n   *narrator
}

func newPlainView(server tasks.Server, t tasks.Run, out io.Writer) *plainView {
	return &plainView{out, newNarrator(server, t, out, out)}
}

func (v *plainView) ShowState(s protocol.State, now time.Time) { v.n.narrate(s, now) }

func (v *plainView) PrintLine(line string) { fmt.Fprintln(v.out, line) }

func (v *plainView) Hide() {}

func (v *plainView) Close() {}

// NewView returns a live view on a terminal, else a plain one, which has no escape codes. NO_COLOR
// asks for that as well.
func NewView(server tasks.Server, t tasks.Run, out io.Writer) View {
	if !terminal.IsTerminal(out) || os.Getenv("TERM") == "dumb" || os.Getenv("NO_COLOR") != "" {
		return newPlainView(server, t, out)
	}
	file := out.(*os.File)
	return newLiveView(server, t, out, func() (int, int) {
		w, h, err := term.GetSize(int(file.Fd()))
		if err != nil || w <= 0 || h <= 0 { // a terminal without a size
			return 80, 24
		}
		return w, h
	})
}
