package environments

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// The targets: how many times faster than the usual commands, how much longer than a stop and a
// start the container may be stopped, and what is kept of ten checkpoints.
const (
	firstTarget    = 5
	secondTarget   = 20
	rollbackTarget = 3
	downTarget     = 200 * time.Millisecond
	keptTarget     = 1.3
)

// compared is one operation, in milliseconds.
type compared struct {
	What   string  `json:"what"`
	Usual  float64 `json:"usual_ms"`
	Ours   float64 `json:"ours_ms"`
	Down   float64 `json:"down_ms"`
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"`
}

// figures are all that was measured.
type figures struct {
	Compared []compared `json:"compared"`
	// Restart is a stop and a start of the container alone.
	Restart float64 `json:"restart_ms"`
	// Kept is what ten checkpoints take on disk, but for those of the database, by what the parts take.
	Kept float64 `json:"kept"`
}

// bench is a measurement under way.
type bench struct {
	*ours
	usual *usual
	round int
	figures
}

// Run measures: a first checkpoint, one after a hundredth has changed, with the container stopped and
// paused, and a rollback, each by the usual commands and by ours.
func Run(ctx context.Context) (result any, missed []string, err error) {
	p, err := newParts(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	o, err := p.startWorker(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := &bench{ours: o, usual: &usual{parts: p}}
	if err := b.measure(ctx); err != nil {
		return nil, nil, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tusual\tours\tratio\ttarget\tcontainer stopped or paused")
	for _, c := range b.Compared {
		fmt.Fprintf(w, "%s\t%.0f ms\t%.0f ms\t%.1f\t%.0f\t%.0f ms\n", c.What, c.Usual, c.Ours, c.Ratio, c.Target, c.Down)
		if c.Ratio < c.Target {
			missed = append(missed, fmt.Sprintf("%s: %.1f times, target %.0f", c.What, c.Ratio, c.Target))
		}
	}
	fmt.Fprintf(w, "stop and start\t\t\t\t\t%.0f ms\nten checkpoints keep\t\t%.2f times\t\t%.1f\t\n", b.Restart, b.Kept,
		keptTarget)
	if b.Kept > keptTarget {
		missed = append(missed, fmt.Sprintf("ten checkpoints keep %.2f times what there is, target %.1f", b.Kept, keptTarget))
	}
	return b.figures, missed, w.Flush()
}

func (b *bench) measure(ctx context.Context) error {
	first, err := b.compareCheckpoints(ctx, "a first checkpoint", firstTarget)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err = b.compareCheckpoints(ctx, "one after 1 % has changed", secondTarget); err != nil {
			return err
		}
	}
	if err := b.pause(ctx); err != nil {
		return err
	}
	for range 3 {
		if _, err = b.compareCheckpoints(ctx, "the same, container paused", secondTarget); err != nil {
			return err
		}
	}
	for range 2 { // with these there are ten
		if err := b.changeMore(ctx); err != nil {
			return err
		}
		if _, _, err := b.checkpoint(ctx); err != nil {
			return err
		}
	}
	if _, _, err := b.checkpoint(ctx); err != nil {
		return err
	}
	if b.Kept, err = b.kept(ctx); err != nil {
		return err
	}
	if err := b.usual.prepare(ctx); err != nil {
		return err
	}
	for range 3 {
		if err := b.compareRollbacks(ctx, first); err != nil {
			return err
		}
	}
	down, err := b.restart(ctx)
	b.Restart = ms(down)
	return err
}

func (b *bench) changeMore(ctx context.Context) error {
	b.round++
	return b.change(ctx, b.round)
}

func (b *bench) compareCheckpoints(ctx context.Context, what string, target float64) (id string, err error) {
	if err := b.changeMore(ctx); err != nil {
		return "", err
	}
	theirs, err := timed(func() error { return b.usual.checkpoint(ctx) })
	if err == nil {
		err = b.usual.keepWorking(ctx)
	}
	if err != nil {
		return "", err
	}
	var down time.Duration
	mine, err := timed(func() (err error) { id, down, err = b.checkpoint(ctx); return err })
	b.add(what, theirs, mine, down, target)
	return id, err
}

// compareRollbacks goes back both ways.
func (b *bench) compareRollbacks(ctx context.Context, to string) error {
	var down time.Duration
	mine, err := timed(func() (err error) { down, err = b.rollBack(ctx, to); return err })
	if err == nil {
		err = b.changeMore(ctx)
	}
	if err != nil {
		return err
	}
	theirs, err := timed(func() error { return b.usual.rollBack(ctx) })
	b.add("a rollback", theirs, mine, down, rollbackTarget)
	return err
}

func (b *bench) add(what string, theirs, mine, down time.Duration, target float64) {
	b.Compared = append(b.Compared, compared{What: what, Usual: ms(theirs), Ours: ms(mine), Down: ms(down),
		Ratio: float64(theirs) / float64(mine), Target: target})
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
