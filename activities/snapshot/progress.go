package snapshot

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Progress is how far the work on a folder has come, for people who watch. A nil one is told
// nothing.
type Progress struct{ now atomic.Pointer[phase] }

type phase struct {
	doing  string
	copied filetree.Tally
}

// begin says what is done from now on, and returns the tally of what that copies.
func (p *Progress) begin(doing string) *filetree.Tally {
	next := &phase{doing: doing}
	if p != nil {
		p.now.Store(next)
	}
	return &next.copied
}

func (p *Progress) lines(of string) []string {
	now := p.now.Load()
	if now == nil {
		return nil
	}
	line := of + ": " + now.doing
	if nodes, bytes := now.copied.Nodes(), now.copied.Bytes(); nodes > 0 || bytes > 0 {
		line += fmt.Sprintf(", %s (%d MB) so far", activities.CountOf(nodes, "path"), bytes>>20)
	}
	return []string{line}
}

// Show has the progress of the work on something shown until stop is called.
func Show(ctx context.Context, of string) (p *Progress, stop func()) {
	p = &Progress{}
	return p, activities.ShowProgress(ctx, func() []string { return p.lines(of) })
}
